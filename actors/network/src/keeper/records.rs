//! What is written of a member, in its stream `network/<workspace id>`.
//!
//! A record is all of a member, so the last one counts and a stream is folded by putting the same
//! bytes into its snapshot. A member that leaves takes its stream along.

use std::collections::BTreeMap;

use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_store::{Journal, NewEvent, StreamId};
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::refuse;
use crate::plan::Member;

const KIND: &str = "network";
/// Every so many records a stream is folded.
const FOLD_EVERY: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Member(Member),
}

fn stream(id: WorkspaceId) -> StreamId {
    StreamId::new(KIND, &id.to_string()).expect("an id has only letters, digits and `_`")
}

/// All members that are recorded. Blocks.
///
/// # Errors
/// In words, when a stream cannot be read.
pub(super) fn load(journal: &Journal) -> Result<BTreeMap<WorkspaceId, Member>, String> {
    let streams = journal.streams(&format!("{KIND}/")).map_err(|error| error.to_string())?;
    let mut members = BTreeMap::new();
    for stream in streams {
        let unreadable = |what: String| format!("the stream {stream}: {what}");
        let id = stream.id().parse().map_err(|error| unreadable(format!("{error}")))?;
        let replay = journal.replay(&stream).map_err(|error| unreadable(error.to_string()))?;
        let last = replay.records.into_iter().next_back().or(replay.snapshot);
        let Some((_, bytes)) = last else { continue };
        let Record::Member(member) =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        members.insert(id, member);
    }
    Ok(members)
}

/// What changes come to for one member, however many they are.
struct Sum<'c> {
    member: Option<&'c Member>,
    events: Vec<NewEvent>,
}

/// Makes changes durable, all of them when it returns.
///
/// # Errors
/// `journal_failed`; which of them are durable is then for the journal to say.
pub(super) async fn write(journal: &Journal, changes: &[Change]) -> Result<(), ToolError> {
    let mut sums: BTreeMap<WorkspaceId, Sum<'_>> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.before != change.after) {
        let member = change.after.as_ref();
        let sum = sums.entry(change.id).or_insert(Sum { member, events: Vec::new() });
        sum.member = member;
        sum.events.extend(change.event());
    }
    let writes = sums.into_iter().map(|(id, sum)| write_one(journal, stream(id), sum));
    futures::future::try_join_all(writes).await.map(drop).map_err(|error| refuse::store(&error))
}

async fn write_one(
    journal: &Journal,
    stream: StreamId,
    Sum { member, events }: Sum<'_>,
) -> Result<(), hivekeep_store::Error> {
    let Some(member) = member else { return journal.forget(&stream).await };
    let bytes = serde_json::to_vec(&Record::Member(member.clone())).expect("plain data");
    let last = journal.append_and_publish(&stream, vec![bytes.clone()], events).await?;
    if last.get().is_multiple_of(FOLD_EVERY)
        && let Err(error) = journal.snapshot(&stream, last, bytes).await
    {
        tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
    }
    Ok(())
}
