//! Store identity: the file `STORE` says which store this directory is.
//!
//! The file is written once, when the store is created, and never again. The same id is in the
//! database and in `HEAD`: a database that was emptied, exchanged or mixed from two backups does
//! not pass for the right one.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Error, fsx};

const FILE: &str = "STORE";
/// Version of the directory's layout.
const FORMAT: u32 = 1;

/// Contents of `STORE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreIdentity {
    pub(crate) format: u32,
    pub(crate) store_id: Uuid,
    pub(crate) created: DateTime<Utc>,
}

impl StoreIdentity {
    pub(crate) fn fresh() -> Self {
        StoreIdentity { format: FORMAT, store_id: Uuid::new_v4(), created: Utc::now() }
    }

    /// Reads `STORE`; `None` when there is none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let bytes = match fs::read(dir.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading STORE", &error)),
        };
        let identity: StoreIdentity = serde_json::from_slice(&bytes)
            .map_err(|error| Error::unreadable(format!("STORE is damaged: {error}")))?;
        if identity.format > FORMAT {
            return Err(Error::TooNew { found: identity.format, known: FORMAT });
        }
        Ok(Some(identity))
    }

    /// Writes `STORE` for the first and only time.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let bytes = serde_json::to_vec_pretty(self).expect("three plain fields serialize");
        fsx::write_atomic(dir, FILE, &bytes)
    }
}
