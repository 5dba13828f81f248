//! What is written of a member's tasks, in the stream `desk/<team id>_<number of the member>`.
//!
//! A record is JSON. A snapshot is the records of what there is, each after its length.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::ledger::{Durable, Kept, Task, TaskLedger};

const KIND: &str = "desk";

/// The stream of a team's member.
pub(crate) fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    StreamId::new(KIND, &id).expect("an id and a number have only letters, digits and `_`")
}

/// One record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record<'r> {
    /// A task came.
    Assigned(Cow<'r, Task>),
    /// It has a result.
    Ended(Cow<'r, Kept>),
    /// These results were received.
    Taken(BTreeSet<MessageId>),
    /// In a snapshot: a result that was received.
    Known(Cow<'r, Kept>),
}

/// A snapshot that makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a record is cut short")]
    Short,
}

pub(crate) fn encode(record: &Record<'_>) -> Vec<u8> {
    serde_json::to_vec(record).expect("plain data")
}

pub(crate) fn snapshot(durable: &Durable) -> Vec<u8> {
    let Durable { tasks, waiting, known } = durable;
    let known = known.iter().map(|kept| Record::Known(Cow::Borrowed(kept)));
    let waiting = waiting.iter().map(|kept| Record::Ended(Cow::Borrowed(kept)));
    let tasks = tasks.iter().map(|task| Record::Assigned(Cow::Borrowed(task)));
    let mut bytes = Vec::new();
    for record in known.chain(waiting).chain(tasks) {
        let record = encode(&record);
        let length = u32::try_from(record.len()).expect("contents are bounded");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    bytes
}

/// Takes in what the journal has.
pub(crate) fn replay(
    ledger: &mut TaskLedger,
    snapshot: Option<&[u8]>,
    records: &[Vec<u8>],
) -> Result<(), Unreadable> {
    let mut bytes = snapshot.unwrap_or_default();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or(Unreadable::Short)?;
        take_in(ledger, serde_json::from_slice(record)?);
        bytes = rest;
    }
    if !bytes.is_empty() {
        return Err(Unreadable::Short);
    }
    for record in records {
        take_in(ledger, serde_json::from_slice(record)?);
    }
    Ok(())
}

fn take_in(ledger: &mut TaskLedger, record: Record<'_>) {
    match record {
        Record::Assigned(task) => ledger.restore_task(Arc::new(task.into_owned())),
        Record::Ended(kept) => ledger.restore_result(Arc::new(kept.into_owned())),
        Record::Taken(messages) => drop(ledger.confirm(&messages)),
        Record::Known(kept) => ledger.restore_known(Arc::new(kept.into_owned())),
    }
}
