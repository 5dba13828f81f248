//! Event-sourced state of a script, in its stream `script/ID`.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

/// Size that a version counts for at least, so that many small ones are bounded too.
const LEAST_BYTES: usize = 4 * 1024;

/// Version of a script. Never changes; shared by the states that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) code: String,
    pub(crate) at: DateTime<Utc>,
}

impl Version {
    /// Size in bytes that counts against the library.
    pub(crate) fn bytes(&self) -> usize {
        let description = self.description.as_ref().map_or(0, String::len);
        (self.code.len() + description).max(LEAST_BYTES)
    }
}

/// Script with all its versions.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) owner: User,
    /// In order; never empty.
    pub(crate) versions: Vec<Arc<Version>>,
    pub(crate) deleted_at: Option<DateTime<Utc>>,
}

impl Script {
    /// Newest version.
    pub(crate) fn newest(&self) -> &Version {
        self.versions.last().expect("a script begins with a version")
    }

    /// True if it is `owner`'s and not deleted.
    pub(crate) fn is_live(&self, owner: User) -> bool {
        self.owner == owner && self.deleted_at.is_none()
    }

    /// Size in bytes of all versions.
    pub(crate) fn bytes(&self) -> usize {
        self.versions.iter().map(|version| version.bytes()).sum()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Saved { owner: User, version: Arc<Version> },
    Updated { version: Arc<Version> },
    Deleted { at: DateTime<Utc> },
}

impl Sourced for Script {
    const KIND: &'static str = "script";
    /// A version's code may take six times its size as JSON.
    const PIECE_BYTES: Option<usize> = Some(512 * 1024);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Saved { owner, version } => {
                Ok(Self { owner, versions: vec![version], deleted_at: None })
            }
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Updated { version } if self.deleted_at.is_none() => self.versions.push(version),
            Record::Deleted { at } if self.deleted_at.is_none() => self.deleted_at = Some(at),
            other => return Err(other),
        }
        Ok(())
    }
}
