//! Changes of members, each from the decision to the answer, and the logs that they are written to: one
//! stream `network/<workspace id>` for each member.
//!
//! A record is all of a member, so the last one counts, and a snapshot is the last record. A member
//! that leaves takes its stream along.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use hivekeep_kernel::{ToolError, WorkspaceId, lock};
use hivekeep_ports::{ForwardedPort, ReachPolicy};
use hivekeep_runtime::log::{self, Decision, Loaded, Log, LogError, LogRecord, Sourced, Streams};
use hivekeep_store::{Journal, NewEvent, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::plan::NetworkMember;

/// Time at which the caller of a change is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When the change is in the journal.
    Durable,
    /// When the kernel has applied the change. A change that the kernel refuses is undone.
    Applied,
}

type Answer = Box<dyn FnOnce(Result<(), ToolError>) + Send + Sync>;

/// A change that was decided.
pub(super) struct Change {
    pub(super) id: WorkspaceId,
    pub(super) before: Option<NetworkMember>,
    pub(super) after: Option<NetworkMember>,
    pub(super) when: When,
    answer: Option<Answer>,
}

impl Change {
    /// Change that nobody waits for.
    pub(super) fn quiet(
        id: WorkspaceId,
        before: Option<NetworkMember>,
        after: Option<NetworkMember>,
    ) -> Self {
        Self { id, before, after, when: When::Durable, answer: None }
    }

    /// Answers with a value when it is time.
    pub(super) fn answering<T: Send + Sync + 'static>(
        mut self,
        when: When,
        reply: oneshot::Sender<Result<T, ToolError>>,
        value: T,
    ) -> Self {
        self.when = when;
        self.answer = Some(Box::new(move |outcome| {
            // Whoever asked may have gone; the change holds all the same.
            let _ = reply.send(outcome.map(|()| value));
        }));
        self
    }

    pub(super) fn done(self, outcome: Result<(), ToolError>) {
        if let Some(answer) = self.answer {
            answer(outcome);
        }
    }

    /// True when anything changes.
    pub(super) fn is_any(&self) -> bool {
        self.before != self.after
    }

    /// The change back, which answers with the error that made it necessary.
    pub(super) fn undone(self, error: ToolError) -> Self {
        let Self { id, before, after, answer, .. } = self;
        let answer = answer.map(|answer| -> Answer {
            // If this is not written either, that is what is to be said.
            Box::new(move |outcome| answer(outcome.and(Err(error))))
        });
        Self { id, before: after, after: before, when: When::Durable, answer }
    }

    /// Event about the change. A workspace's actor itself reports that the workspace came or went.
    pub(super) fn event(&self) -> Option<NewEvent> {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return None };
        let (kind, data) = if before.policy != after.policy {
            ("network.policy_changed", json!({ "policy": ReachPolicy::from(&after.policy) }))
        } else if before.forwards != after.forwards {
            let all: Vec<_> = after.forwards.iter().copied().map(ForwardedPort::from).collect();
            ("network.forwards_changed", json!({ "forwards": all }))
        } else if before.lease == after.lease {
            return None;
        } else {
            ("network.moved", json!({ "from": before.lease.address, "to": after.lease.address }))
        };
        Some(NewEvent { kind: kind.to_owned(), subject: self.id.to_string(), data })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Member(NetworkMember),
}

/// A member as its records tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded(NetworkMember);

impl Sourced for Recorded {
    const KIND: &'static str = "network";
    const FOLD_EVERY: usize = 64;
    type Record = Record;

    fn begin(Record::Member(member): Record) -> Result<Self, Record> {
        Ok(Self(member))
    }

    fn apply(&mut self, Record::Member(member): Record) -> Result<(), Record> {
        self.0 = member;
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        Record::Member(self.0.clone()).encode().ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let Record::Member(member) = Record::decode(snapshot)?;
        Ok(Self(member))
    }
}

/// The members' logs. They outlive the actor, so that an incarnation waits for what the one before
/// it had decided.
#[derive(Default)]
pub(super) struct Logs(Mutex<HashMap<WorkspaceId, Log<Recorded>>>);

impl Logs {
    /// All members, behind everything that was decided before.
    ///
    /// # Errors
    /// When a stream cannot be read.
    pub(super) async fn open(
        &self,
        journal: &Journal,
    ) -> Result<BTreeMap<WorkspaceId, NetworkMember>, LogError> {
        let before = std::mem::take(&mut *lock(&self.0));
        for log in before.values() {
            log.idle().await;
        }
        let mut members = BTreeMap::new();
        for (id, stream, loaded) in by_id(log::read_all(journal).await?)? {
            members.insert(id, loaded.state.0.clone());
            lock(&self.0).insert(id, Log::of(journal.clone(), stream, Some(loaded)));
        }
        Ok(members)
    }

    /// Makes changes durable, those of several members side by side; all of them when it returns.
    ///
    /// # Errors
    /// When one could not be written; which of them are durable is then for the journal to say.
    pub(super) async fn write(
        &self,
        journal: &Journal,
        changes: &[Change],
    ) -> Result<(), LogError> {
        // Last state and all events of each member that changed.
        let mut sums: BTreeMap<WorkspaceId, (Option<&NetworkMember>, Vec<NewEvent>)> =
            BTreeMap::new();
        for change in changes.iter().filter(|change| change.is_any()) {
            let (member, events) = sums.entry(change.id).or_default();
            *member = change.after.as_ref();
            events.extend(change.event());
        }
        let writes = sums.into_iter().map(async |(id, (member, events))| {
            let log = self.of(journal, id);
            let Some(member) = member.cloned() else {
                log.forget().await?;
                lock(&self.0).remove(&id);
                return Ok(());
            };
            let decision = Decision::record(Record::Member(member));
            let decision = events.into_iter().fold(decision, Decision::event);
            log.decide(|_| Ok::<_, LogError>(decision))?.await
        });
        futures::future::try_join_all(writes).await.map(drop)
    }

    /// The log of a member, or of one that is going to be.
    fn of(&self, journal: &Journal, id: WorkspaceId) -> Log<Recorded> {
        let stream =
            || log::stream::<Recorded>(id).expect("an id has only letters, digits and `_`");
        let new = || Log::of(journal.clone(), stream(), None);
        lock(&self.0).entry(id).or_insert_with(new).clone()
    }
}

/// All members as they are recorded now. Blocks.
///
/// # Errors
/// When a stream cannot be read.
pub(super) fn load(journal: &Journal) -> Result<Vec<NetworkMember>, LogError> {
    let all = by_id(log::load_all::<Recorded>(journal)?)?;
    Ok(all.into_iter().map(|(_, _, loaded)| loaded.state.0).collect())
}

type Stream = (WorkspaceId, StreamId, Loaded<Recorded>);

fn by_id(streams: Streams<Recorded>) -> Result<Vec<Stream>, LogError> {
    let id = |(stream, loaded): (StreamId, _)| match stream.id().parse() {
        Ok(id) => Ok((id, stream, loaded)),
        Err(error) => Err(LogError::Unreadable { stream, what: format!("{error}") }),
    };
    streams.loaded.into_iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{AddressLease, MemberPolicy};

    #[test]
    fn the_last_record_counts_and_a_snapshot_is_a_record() {
        let lease = AddressLease::at([10, 213, 0, 7].into());
        let member = |allow_internet| {
            let policy = MemberPolicy { allow_internet, ..MemberPolicy::default() };
            NetworkMember { lease, policy, forwards: Vec::new(), parked: false }
        };
        let mut recorded = Recorded::begin(Record::Member(member(false))).unwrap();
        recorded.apply(Record::Member(member(true))).unwrap();
        assert_eq!(recorded.0, member(true));
        let snapshot = recorded.fold().unwrap();
        assert_eq!(snapshot, Record::Member(member(true)).encode().unwrap());
        assert_eq!(Recorded::unfold(&snapshot).unwrap(), recorded);
        assert!(Recorded::unfold(b"{}").is_err());
    }
}
