//! The records of a member's tasks, in the stream `desk/<team id>_<number of the member>`.
//!
//! A record is JSON. A snapshot is the records of what there is, each after its length.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_runtime::log::{self, Sourced};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::ledger::{StoredResult, Task, TaskLedger};
use crate::snapshot;

/// The stream of a team's member.
pub fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    log::stream::<TaskLedger>(id).expect("an id and a number have only letters, digits and `_`")
}

/// Record of a task ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A task came.
    Assigned(#[serde(with = "shared")] Arc<Task>),
    /// A task has a result.
    Ended(#[serde(with = "shared")] Arc<StoredResult>),
    /// Results were received; named by the messages that assigned their tasks.
    Taken(BTreeSet<MessageId>),
    /// In a snapshot: a result that was received.
    Known(#[serde(with = "shared")] Arc<StoredResult>),
}

/// A value behind an [`Arc`], written as the value.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub(super) fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

impl Sourced for TaskLedger {
    const KIND: &'static str = "desk";
    const FOLD_EVERY: usize = 512;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut ledger = Self::default();
        ledger.apply(record).map(|()| ledger)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Assigned(task) => self.assigned(task),
            Record::Ended(result) => self.ended(result),
            Record::Taken(messages) => self.taken(&messages),
            Record::Known(result) => self.remembered(result),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        let known = self.known().cloned().map(Record::Known);
        let waiting = self.results().items().cloned().map(Record::Ended);
        let tasks = self.open().cloned().map(Record::Assigned);
        snapshot::of(known.chain(waiting).chain(tasks))
    }

    fn unfold(bytes: &[u8]) -> Result<Self, String> {
        let mut ledger = Self::default();
        for record in snapshot::records(bytes)? {
            // Each of them follows.
            drop(ledger.apply(record));
        }
        Ok(ledger)
    }
}
