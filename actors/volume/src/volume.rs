//! Event-sourced state of a volume, in its stream `volume/ID`.

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

/// Volume as its records have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) owner: User,
    pub(crate) label: String,
    /// Size of its file system; a multiple of 1 MiB.
    pub(crate) size_bytes: u64,
    pub(crate) created_at: DateTime<Utc>,
    /// Time from which it is removed once nothing has it mounted.
    pub(crate) expires_at: Option<DateTime<Utc>>,
    pub(crate) phase: VolumePhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumePhase {
    /// Intended; a start of the daemon undoes it.
    Making,
    /// Made and usable.
    Ready,
    /// To be removed; a start of the daemon finishes that.
    Deleting,
}

impl Volume {
    /// True if it is there and `owner`'s.
    pub(crate) fn is_ready(&self, owner: User) -> bool {
        self.owner == owner && self.phase == VolumePhase::Ready
    }

    /// True if its time is over.
    pub(crate) fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.phase == VolumePhase::Ready && self.expires_at.is_some_and(|end| end <= now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// Intent to make it.
    Wanted {
        owner: User,
        label: String,
        size_bytes: u64,
        at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<DateTime<Utc>>,
    },
    /// The file system is on the disk.
    Made,
    /// Intent to remove it.
    DeleteWanted,
}

impl Sourced for Volume {
    const KIND: &'static str = "volume";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Wanted { owner, label, size_bytes, at, expires_at } => Ok(Self {
                owner,
                label,
                size_bytes,
                created_at: at,
                expires_at,
                phase: VolumePhase::Making,
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        self.phase = match (record, self.phase) {
            (Record::Made, VolumePhase::Making) => VolumePhase::Ready,
            (Record::DeleteWanted, VolumePhase::Making | VolumePhase::Ready) => {
                VolumePhase::Deleting
            }
            (other, _) => return Err(other),
        };
        Ok(())
    }
}
