//! What all workspaces of a daemon share, and how one writes its records.

use std::{path::PathBuf, sync::Arc};

use hivekeep_image::ImageStore;
use hivekeep_kernel::{
    Address, Census, Layer, Room, ToolError, WorkspaceId,
    ports::{Network, Sessions},
};
use hivekeep_machine::{Driver, Isolation, MachineHandle, sweep::Sweeper};
use hivekeep_runtime::Redact;
use hivekeep_store::{Events, Journal, NewEvent, Seq, StreamId};
use serde_json::Value;

use crate::{
    Options, codes,
    directory::Directory,
    gate::Gate,
    ledger::{Ledger, MachineFact},
    pool::Traffic,
    records::Record,
    snapshots::RefCounts,
    workspace::{self, TransferQuota},
};

/// Kind of the streams that hold workspaces.
pub(crate) const STREAM: &str = "workspace";

/// Records after which a stream is folded into a snapshot.
const SNAPSHOT_EVERY: usize = 256;

/// Where workspaces keep things.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Disks; a folder a workspace.
    pub disks: PathBuf,
    /// Layers of disks that snapshots froze, or that stand on one.
    pub layers: PathBuf,
    /// Memory of snapshots; a folder a snapshot.
    pub memories: PathBuf,
    /// Sockets of running machines; a folder a workspace.
    pub run: PathBuf,
    /// Consoles; a folder a workspace.
    pub logs: PathBuf,
    /// The host's side of file_transfer.
    pub transfers: PathBuf,
}

/// Everything outside one workspace that it works with.
pub struct Shared {
    /// What downloads may take on the host.
    pub(crate) transfers: TransferQuota,
    /// Configuration.
    pub options: Options,
    /// What the git tools answer to servers.
    pub git: crate::GitOptions,
    /// Places.
    pub folders: Folders,
    /// The journal.
    pub journal: Journal,
    /// The event bus.
    pub events: Events,
    /// For what guests say and events pass on.
    pub hide: Redact,
    /// Who owns what.
    pub sessions: Arc<dyn Sessions>,
    /// Addresses, policies and forwards.
    pub network: Arc<dyn Network>,
    /// Free space on the host.
    pub room: Room,
    /// Images.
    pub images: ImageStore,
    /// The drivers, one a kind of isolation that this host can do.
    pub drivers: Vec<Arc<dyn Driver>>,
    /// Finds what a crash left behind.
    pub(crate) sweeper: Sweeper,
    /// Vital signs.
    pub census: Census,
    /// Who is there.
    pub directory: Directory,
    /// Who needs which files of disks and snapshots.
    pub(crate) holds: RefCounts,
    /// Turns at merging layers.
    pub(crate) merges: tokio::sync::Semaphore,
    /// Planned in this daemon's life and not yet taken up by an actor.
    pub(crate) young: dashmap::DashSet<WorkspaceId>,
    /// Creations that people wait for.
    pub(crate) traffic: Traffic,
    /// Fires when an ordered stop of the daemon begins.
    pub(crate) closing: tokio_util::sync::CancellationToken,
    /// The keeper has started before in this daemon's life.
    pub(crate) booted: std::sync::atomic::AtomicBool,
}

impl Shared {
    /// The driver of a kind of isolation.
    ///
    /// # Errors
    /// `isolation_unavailable`; never another kind instead.
    pub fn driver(&self, isolation: Isolation) -> Result<Arc<dyn Driver>, ToolError> {
        self.drivers.iter().find(|driver| driver.isolation() == isolation).cloned().ok_or_else(
            || {
                let message = format!("this host offers no `{}` isolation", isolation.as_str());
                ToolError::new(Layer::Machine, codes::ISOLATION_UNAVAILABLE, message)
                    .next("run `hivekeep check` on the host to see what is missing")
            },
        )
    }

    /// Whether a machine may be made or started.
    ///
    /// # Errors
    /// `daemon_stopping` once an ordered stop has begun: a machine that comes up behind it would
    /// outlive the daemon.
    pub(crate) fn may_start(&self) -> Result<(), ToolError> {
        if self.closing.is_cancelled() { Err(ToolError::daemon_stopping()) } else { Ok(()) }
    }

    /// Whether a workspace was just planned: true once. Any later incarnation of
    /// its actor finds a creation that was cut short.
    pub(crate) fn take_young(&self, id: WorkspaceId) -> bool {
        self.young.remove(&id).is_some()
    }

    /// True once in a daemon's life.
    pub(crate) fn first_boot(&self) -> bool {
        !self.booted.swap(true, std::sync::atomic::Ordering::SeqCst)
    }

    /// Tells the event bus; a full queue loses the event and says so later.
    pub(crate) fn tell(&self, kind: &str, subject: impl ToString, data: Value) {
        let event = NewEvent { kind: kind.to_owned(), subject: subject.to_string(), data };
        let _counted_when_lost = self.events.publish_later(event);
    }

    /// Reads a workspace back, in one reading. Blocks.
    ///
    /// # Errors
    /// When the stream cannot be read or does not begin with a plan.
    pub(crate) fn load(&self, stream: &StreamId) -> Result<Loaded, ToolError> {
        let mut loaded = load(&self.journal, stream)?;
        let kept_elsewhere =
            |handle: &MachineHandle| !handle.folders.disk_dir.starts_with(&self.folders.disks);
        if loaded.ledger.handle().is_some_and(kept_elsewhere) {
            // A backup that was restored beside the daemon it is of, whose machine that is.
            let reason = "its machine was one of another state folder".to_owned();
            loaded.ledger.machine = MachineFact::Crashed { reason };
        }
        Ok(loaded)
    }
}

/// Reads a workspace back from any journal. Blocks.
///
/// # Errors
/// When the stream cannot be read or does not begin with a plan.
pub(crate) fn load(journal: &Journal, stream: &StreamId) -> Result<Loaded, ToolError> {
    let unreadable = |what: String| {
        ToolError::new(
            Layer::Store,
            codes::STATE_UNREADABLE,
            format!("{}: {what}", stream.as_str()),
        )
        .next("restore the state directory from a backup; nothing was overwritten")
    };
    let replay = journal.replay(stream).map_err(store_error)?;
    let snapshot = match replay.snapshot {
        Some((upto, bytes)) => {
            Some((upto, serde_json::from_slice(&bytes).map_err(|e| unreadable(e.to_string()))?))
        }
        None => None,
    };
    let unfolded = replay.records.len();
    let mut records = Vec::with_capacity(unfolded);
    for (seq, bytes) in replay.records {
        let record = serde_json::from_slice(&bytes).map_err(|e| unreadable(e.to_string()))?;
        records.push((seq, record));
    }
    let (upto, ledger) = Ledger::replay(snapshot, records)
        .ok_or_else(|| unreadable("the first record is not a plan".to_owned()))?;
    Ok(Loaded { ledger, upto, unfolded })
}

/// A workspace's stream as one reading found it.
pub(crate) struct Loaded {
    /// What its records add up to.
    pub(crate) ledger: Ledger,
    /// The last record that is in it.
    pub(crate) upto: Seq,
    /// How many records no snapshot covers.
    pub(crate) unfolded: usize,
}

/// A journal's failure as a caller sees it.
pub(crate) fn store_error(error: hivekeep_store::Error) -> ToolError {
    ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
        .next("free disk space in the state directory; `hivekeep check` looks at it")
        .retryable()
}

/// Writes one workspace's records: durable first, then known to its actor.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) id: WorkspaceId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) actor: Address<workspace::Msg>,
    pub(crate) stream: StreamId,
    gate: Gate,
}

impl Desk {
    pub(crate) fn new(
        id: WorkspaceId,
        shared: Arc<Shared>,
        actor: Address<workspace::Msg>,
        stream: StreamId,
    ) -> Self {
        Self { id, shared, actor, stream, gate: Gate::default() }
    }

    /// Removes all records; nothing can be written after them.
    ///
    /// # Errors
    /// When they could not be removed; then they can be added to.
    pub(crate) async fn forget(&self) -> Result<(), ToolError> {
        self.gate.close().await;
        let forgotten = self.shared.journal.forget(&self.stream).await;
        if forgotten.is_err() {
            self.gate.open();
        }
        forgotten.map_err(store_error)
    }

    /// Appends records, with an event in the same commit, and waits until the
    /// actor has applied them.
    ///
    /// # Errors
    /// When they could not be made durable; then nothing was acknowledged.
    pub(crate) async fn commit(
        &self,
        records: Vec<Record>,
        event: Option<(&str, Value)>,
    ) -> Result<(), ToolError> {
        let _inside = self.gate.enter().ok_or_else(|| {
            ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, "the workspace has been removed")
        })?;
        let bytes = records
            .iter()
            .map(serde_json::to_vec)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ToolError::internal(error.to_string()))?;
        let events = event.map(|(kind, data)| NewEvent {
            kind: kind.to_owned(),
            subject: self.id.to_string(),
            data,
        });
        self.shared
            .journal
            .append_and_publish(&self.stream, bytes, events.into_iter().collect())
            .await
            .map_err(store_error)?;
        // An actor that is gone reads the records when it comes back.
        let patience = std::time::Duration::from_secs(10);
        let _applied =
            self.actor.ask(patience, |applied| workspace::Msg::Recorded { records, applied }).await;
        Ok(())
    }

    /// Appends one record without an event.
    pub(crate) async fn note(&self, record: Record) -> Result<(), ToolError> {
        self.commit(vec![record], None).await
    }

    /// Folds the stream into a snapshot once it is long.
    pub(crate) async fn fold(&self, records: usize) {
        if records < SNAPSHOT_EVERY {
            return;
        }
        let (desk, stream) = (self.clone(), self.stream.clone());
        let loaded = tokio::task::spawn_blocking(move || desk.shared.load(&stream)).await;
        let Ok(Ok(Loaded { ledger, upto, .. })) = loaded else { return };
        let Ok(bytes) = serde_json::to_vec(&ledger) else { return };
        let Some(_inside) = self.gate.enter() else { return };
        if let Err(error) = self.shared.journal.snapshot(&self.stream, upto, bytes).await {
            tracing::warn!(workspace = %self.id, %error, "no snapshot was made; the stream stays long");
        }
    }

    pub(crate) fn tell(&self, kind: &str, data: Value) {
        self.shared.tell(kind, self.id, data);
    }
}
