//! Event-sourced keyring: the records of credentials, in the stream `credential/all`.

use chrono::{DateTime, Utc};
use hivekeep_kernel::CredentialId;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use super::CredentialRow;

/// A credential as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) row: CredentialRow,
    /// SHA-256 of the secret, as hexadecimal digits.
    pub(super) sha256: String,
}

/// Record of the stream `credential/all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Created(Kept),
    Revoked { id: CredentialId, at: DateTime<Utc> },
}

/// The credentials that are not revoked, the oldest first, each with its digest.
#[derive(Debug, Clone, Default)]
pub(super) struct Keyring(Vec<([u8; 32], Kept)>);

impl Keyring {
    pub(super) fn all(&self) -> &[([u8; 32], Kept)] {
        &self.0
    }

    pub(super) fn rows(&self) -> Vec<CredentialRow> {
        self.0.iter().map(|(_, kept)| kept.row.clone()).collect()
    }

    fn add(&mut self, kept: Kept) -> Result<(), Kept> {
        match bytes(&kept.sha256) {
            Some(digest) => self.0.push((digest, kept)),
            None => return Err(kept),
        }
        Ok(())
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Sourced for Keyring {
    const KIND: &'static str = "credential";
    const FOLD_EVERY: usize = 256;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut keyring = Self::default();
        keyring.apply(record)?;
        Ok(keyring)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Created(kept) => self.add(kept).map_err(Record::Created),
            Record::Revoked { id, at } => {
                let before = self.0.len();
                self.0.retain(|(_, kept)| kept.row.id != id);
                match self.0.len() < before {
                    true => Ok(()),
                    false => Err(Record::Revoked { id, at }),
                }
            }
        }
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.0.iter().map(|(_, kept)| kept).collect::<Vec<_>>()).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let all: Vec<Kept> = serde_json::from_slice(snapshot).map_err(|error| error.to_string())?;
        let mut keyring = Self::default();
        for kept in all {
            keyring.add(kept).map_err(|kept| format!("{} has no digest", kept.row.id))?;
        }
        Ok(keyring)
    }
}
