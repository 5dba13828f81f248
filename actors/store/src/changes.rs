//! Write set: the changes of one commit before it is written.

use std::collections::BTreeMap;

use crate::error::IoContext;
use crate::keys::{self, BaseKey, PIECE_BYTES};
use crate::{Error, Seq, frame};

/// Change of one key.
pub(crate) enum KeyChange {
    /// The key must not exist: acknowledged records are never overwritten.
    New(Vec<u8>),
    /// The key may exist.
    Put(Vec<u8>),
    Delete,
}

/// Changes gathered for one commit. Later changes see earlier ones.
#[derive(Default)]
pub(crate) struct KeyChanges {
    pending: BTreeMap<Vec<u8>, KeyChange>,
}

impl KeyChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Puts a pair, overwriting any present one.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.pending.insert(key, KeyChange::Put(value));
    }

    /// Deletes a pair.
    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.pending.insert(key, KeyChange::Delete);
    }

    fn has(&self, db: &sled::Db, key: &[u8]) -> Result<bool, Error> {
        match self.pending.get(key) {
            Some(KeyChange::New(_) | KeyChange::Put(_)) => Ok(true),
            Some(KeyChange::Delete) => Ok(false),
            None => db.contains_key(key).doing("reading the database"),
        }
    }

    /// Writes a value that must be new, cut into pieces.
    pub(crate) fn write_new(&mut self, base: &BaseKey, seq: Seq, bytes: &[u8]) {
        let base = base.encode();
        for (number, piece) in (0..).zip(frame::wrap(&base, seq, bytes).chunks(PIECE_BYTES)) {
            let key = keys::piece(&base, number);
            // A key deleted earlier in this commit still exists on disk.
            let change = match self.pending.get(&key) {
                Some(_) => KeyChange::Put(piece.to_vec()),
                None => KeyChange::New(piece.to_vec()),
            };
            self.pending.insert(key, change);
        }
    }

    /// Replaces a present value.
    pub(crate) fn replace(
        &mut self,
        db: &sled::Db,
        base: &BaseKey,
        seq: Seq,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.erase(db, base)?;
        let base = base.encode();
        for (number, piece) in (0..).zip(frame::wrap(&base, seq, bytes).chunks(PIECE_BYTES)) {
            self.put(keys::piece(&base, number), piece.to_vec());
        }
        Ok(())
    }

    /// Deletes a value with all its pieces.
    pub(crate) fn erase(&mut self, db: &sled::Db, base: &BaseKey) -> Result<(), Error> {
        let base = base.encode();
        for number in 0..=u16::MAX {
            let key = keys::piece(&base, number);
            if !self.has(db, &key)? {
                break;
            }
            self.delete(key);
        }
        Ok(())
    }

    pub(crate) fn into_pairs(self) -> impl Iterator<Item = (Vec<u8>, KeyChange)> {
        self.pending.into_iter()
    }
}
