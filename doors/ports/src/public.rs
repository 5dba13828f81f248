//! Public ports of workspaces, in the stream `port-url/all`. They go with their workspaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_ports::WorkspaceFiles;
use hivekeep_runtime::log::{self, Decision, Log, LogError, Sourced};
use hivekeep_store::{Journal, NewEvent, Seq, SubscriptionItem};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Public ports of one workspace, and of all.
const MOST_OF_ONE: usize = 64;
const MOST: usize = 4096;
/// How far the reader of events may fall behind.
const BEHIND: usize = 1024;

/// Record of the stream `port-url/all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The port is public.
    Opened { workspace: WorkspaceId, port: u16, at: DateTime<Utc> },
    /// The port is public no longer.
    Closed { workspace: WorkspaceId, port: u16, at: DateTime<Utc> },
    /// The workspace is gone.
    Forgotten { workspace: WorkspaceId },
}

/// Public ports of each workspace, by the records. None of the sets is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open(BTreeMap<WorkspaceId, BTreeSet<u16>>);

impl Open {
    fn has(&self, workspace: WorkspaceId, port: u16) -> bool {
        self.0.get(&workspace).is_some_and(|ports| ports.contains(&port))
    }

    fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

impl Sourced for Open {
    const KIND: &'static str = "port-url";
    const FOLD_EVERY: usize = 512;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut open = Self::default();
        open.apply(record)?;
        Ok(open)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        let done = match &record {
            Record::Opened { workspace, port, .. } => {
                self.0.entry(*workspace).or_default().insert(*port)
            }
            Record::Closed { workspace, port, .. } => {
                let ports = self.0.get_mut(workspace);
                let closed = ports.is_some_and(|ports| ports.remove(port));
                self.0.retain(|_, ports| !ports.is_empty());
                closed
            }
            Record::Forgotten { workspace } => self.0.remove(workspace).is_some(),
        };
        if done { Ok(()) } else { Err(record) }
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

/// The public ports. Cheap to clone.
#[derive(Clone)]
pub(super) struct PublicPorts {
    log: Log<Open>,
    workspaces: Arc<dyn WorkspaceFiles>,
}

impl PublicPorts {
    /// Reads the public ports from the journal.
    ///
    /// # Errors
    /// When their stream cannot be read.
    pub(super) async fn open(
        journal: &Journal,
        workspaces: Arc<dyn WorkspaceFiles>,
    ) -> Result<Self, LogError> {
        let stream = log::stream::<Open>("all").expect("a name of letters");
        Ok(Self { log: Log::open(journal.clone(), stream).await?, workspaces })
    }

    /// Whether a port is public.
    pub(super) fn has(&self, workspace: WorkspaceId, port: u16) -> bool {
        self.log.view(|open| open.is_some_and(|open| open.has(workspace, port)))
    }

    /// Public ports of a workspace, in order.
    pub(super) fn of(&self, workspace: WorkspaceId) -> Vec<u16> {
        let of = |open: &Open| open.0.get(&workspace).into_iter().flatten().copied().collect();
        self.log.view(|open| open.map(of).unwrap_or_default())
    }

    /// Makes a port public, or private again. Answered when it is durable.
    ///
    /// # Errors
    /// `too_many_public_ports`, `journal_failed`.
    pub(super) async fn set(
        &self,
        workspace: WorkspaceId,
        port: u16,
        public: bool,
    ) -> Result<(), ToolError> {
        let durable = self.log.decide(|open| {
            let none = Open::default();
            let open = open.unwrap_or(&none);
            if open.has(workspace, port) == public {
                return Ok(Decision::nothing());
            }
            let at = Utc::now();
            let kind = if public { "port_url.opened" } else { "port_url.closed" };
            let event = NewEvent {
                kind: kind.to_owned(),
                subject: workspace.to_string(),
                data: json!({ "port": port }),
            };
            if !public {
                let record = Record::Closed { workspace, port, at };
                return Ok(Decision::record(record).event(event));
            }
            let own = open.0.get(&workspace).map_or(0, BTreeSet::len);
            let gone = |id: &WorkspaceId| self.workspaces.find(&id.to_string()).is_none();
            // Workspaces whose destruction was missed.
            let stale = match open.count() >= MOST {
                true => open.0.keys().copied().filter(gone).collect(),
                false => Vec::new(),
            };
            if own >= MOST_OF_ONE || (open.count() >= MOST && stale.is_empty()) {
                return Err(too_many());
            }
            let opened = Decision::record(Record::Opened { workspace, port, at }).event(event);
            let forgotten = stale.into_iter().map(|workspace| Record::Forgotten { workspace });
            Ok(forgotten.fold(opened, Decision::and))
        })?;
        Ok(durable.await?)
    }

    /// Forgets the ports of destroyed workspaces, until the door closes. Begins with the events that are
    /// kept, for the daemon may have ended between a destruction and this.
    pub(super) fn forget_destroyed_until(&self, journal: &Journal, end: CancellationToken) {
        let (public, mut events) =
            (self.clone(), journal.events().subscribe(Some(Seq::new(0)), BEHIND));
        tokio::spawn(async move {
            while let Some(Ok(item)) = end.run_until_cancelled(events.next()).await {
                let SubscriptionItem::Event(event) = item else { continue };
                if event.kind == "workspace.destroyed"
                    && let Ok(workspace) = event.subject.parse()
                    && let Err(error) = public.forget(workspace).await
                {
                    tracing::error!(%error, "a destroyed workspace's public ports stay");
                }
            }
        });
    }

    async fn forget(&self, workspace: WorkspaceId) -> Result<(), ToolError> {
        if self.of(workspace).is_empty() {
            return Ok(());
        }
        let durable = self.log.decide(|open| {
            let known = open.is_some_and(|open| open.0.contains_key(&workspace));
            Ok::<_, ToolError>(match known {
                true => Decision::record(Record::Forgotten { workspace }),
                false => Decision::nothing(),
            })
        })?;
        Ok(durable.await?)
    }
}

fn too_many() -> ToolError {
    let what = format!("at most {MOST_OF_ONE} ports of a workspace, and {MOST} in all, are public");
    ToolError::new(Layer::Door, codes::TOO_MANY_PUBLIC_PORTS, what)
        .next("make some private again; port_forward lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_add_up_and_what_cannot_follow_is_rejected() {
        let (a, b, at) = (WorkspaceId::new(), WorkspaceId::new(), Utc::now());
        let opened = |workspace, port| Record::Opened { workspace, port, at };
        let mut open = Open::begin(opened(a, 80)).expect("the first");
        assert!(Open::begin(Record::Forgotten { workspace: a }).is_err());
        open.apply(opened(a, 81)).expect("another");
        open.apply(opened(b, 80)).expect("another's");
        assert!(open.apply(opened(a, 80)).is_err(), "twice");
        assert_eq!(Open::unfold(&open.fold().expect("a snapshot")), Ok(open.clone()));
        open.apply(Record::Closed { workspace: b, port: 80, at }).expect("it was open");
        assert!(open.apply(Record::Closed { workspace: b, port: 80, at }).is_err());
        assert!(open.has(a, 81) && !open.has(b, 80));
        open.apply(Record::Forgotten { workspace: a }).expect("it was there");
        assert_eq!(open, Open::default());
    }
}
