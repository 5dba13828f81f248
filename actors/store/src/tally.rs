//! Integrity checksum: a count and a sum over all live pairs, by which a loss is noticed.
//!
//! The sum adds a 128-bit hash per pair, so it does not depend on order, and a commit updates it
//! from the pairs it touches. At start-up it is computed again from what the database returns: a
//! pair lost, changed, added, or brought back from the past makes a difference. It guards against
//! damage, not against a forger.

use crate::Error;
use crate::error::IoContext;
use crate::keys;

/// Count and sum. Keys that start with `m` are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) sum: u128,
}

impl Tally {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if !counts(key) {
            return;
        }
        self.pairs += 1;
        self.sum = self.sum.wrapping_add(hash(key, value));
    }

    pub(crate) fn remove(&mut self, key: &[u8], value: &[u8]) {
        if !counts(key) {
            return;
        }
        self.pairs -= 1;
        self.sum = self.sum.wrapping_sub(hash(key, value));
    }

    /// Walks the whole database. Also returns the bytes of keys and values.
    pub(crate) fn of(db: &sled::Db) -> Result<(Tally, u64), Error> {
        let mut tally = Tally::default();
        let mut live_bytes = 0;
        for pair in db.iter() {
            let (key, value) = pair.doing("reading the database")?;
            live_bytes += (key.len() + value.len()) as u64;
            tally.add(&key, &value);
        }
        Ok((tally, live_bytes))
    }
}

/// True if a pair is part of the tally.
pub(crate) fn counts(key: &[u8]) -> bool {
    !key.starts_with(&[keys::META])
}

fn hash(key: &[u8], value: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    let hash = hasher.finalize();
    let low = hash.as_bytes().first_chunk::<16>().expect("a blake3 hash has 32 bytes");
    u128::from_le_bytes(*low)
}
