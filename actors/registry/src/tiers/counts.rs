//! Event-sourced counts of a user's calls, in its stream `usage/USER`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::{self, Sourced};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

/// Window of a limit, and the calls that are written down as made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountedWindow {
    pub(super) began: DateTime<Utc>,
    /// Calls that may have been made.
    pub(super) upto: u32,
}

/// Newest window of each limit, by its key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallCounts(pub(super) BTreeMap<String, CountedWindow>);

/// Calls of some limits that are about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum CountRecord {
    Leased { windows: BTreeMap<String, CountedWindow> },
}

impl Sourced for CallCounts {
    const KIND: &'static str = "usage";
    const FOLD_EVERY: usize = 256;
    type Record = CountRecord;

    fn begin(record: CountRecord) -> Result<Self, CountRecord> {
        let CountRecord::Leased { windows } = record;
        Ok(Self(windows))
    }

    fn apply(&mut self, record: CountRecord) -> Result<(), CountRecord> {
        let CountRecord::Leased { windows } = record;
        self.0.extend(windows);
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

/// Stream of a user's counts.
pub(crate) fn stream(user: User) -> StreamId {
    let id = user.to_string().replace(':', "-");
    log::stream::<CallCounts>(id).expect("a user is letters, digits and `-`")
}
