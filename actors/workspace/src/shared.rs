//! State that all workspaces of a daemon share, and that outlives their actors.

use std::sync::Arc;

use hivekeep_image::ImageStore;
use hivekeep_kernel::{CallCx, Door, Layer, Tier, ToolError, WorkspaceId};
use hivekeep_machine::{Driver, Isolation, sweep::Sweeper};
use hivekeep_oci::ImagePuller;
use hivekeep_ports::{Network, Volumes};
use hivekeep_runtime::Daemon;
use hivekeep_store::NewEvent;
use serde_json::Value;

use crate::{
    Options, codes,
    directory::{DirectoryEntry, WorkspaceDirectory},
    folders::WorkspaceFolders,
    lifetime::AtEnd,
    logs::WorkspaceLogSet,
    phase::{cannot_park, no_snapshots},
    snapshots::RefCounts,
    traffic::Traffic,
    transfer_quota::TransferQuota,
};

/// State and services that workspaces share.
pub struct Shared {
    /// Services of the daemon that do not belong to this family.
    pub(crate) daemon: Daemon,
    /// Quota of the transfer directory.
    pub(crate) transfers: TransferQuota,
    /// Options of the workspaces, from the configuration.
    pub options: Options,
    /// Credentials and certificates of the git tools.
    pub git: crate::GitOptions,
    /// Folders on the host.
    pub folders: WorkspaceFolders,
    /// Records of the workspaces.
    pub(crate) logs: WorkspaceLogSet,
    /// Network of the workspaces: addresses, policies and forwards.
    pub network: Arc<dyn Network>,
    /// Volumes of users.
    pub volumes: Arc<dyn Volumes>,
    /// Store of the images that workspaces are made from.
    pub images: ImageStore,
    /// Puller of images that are not in the store.
    pub puller: ImagePuller,
    /// Drivers, one for each kind of isolation that this host has.
    pub drivers: Vec<Arc<dyn Driver>>,
    /// Sweeper of what a crash left behind.
    pub(crate) sweeper: Sweeper,
    /// Directory of all workspaces.
    pub directory: WorkspaceDirectory,
    /// Reference counts of the files of disks and snapshots.
    pub(crate) ref_counts: RefCounts,
    /// Permits for merging layers.
    pub(crate) merges: tokio::sync::Semaphore,
    /// Permits for waking workspaces.
    pub(crate) wakes: tokio::sync::Semaphore,
    /// Workspaces planned in this daemon's life and not yet taken up by an actor.
    pub(crate) fresh: dashmap::DashSet<WorkspaceId>,
    /// Creations that people wait for.
    pub(crate) traffic: Traffic,
    /// The manager has started before in this daemon's life.
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

    /// Whether a machine of this kind supports this action at the end of a lifetime.
    ///
    /// # Errors
    /// `snapshot_unsupported`, `park_unsupported`, `isolation_unavailable`.
    pub(crate) fn may_end(
        &self,
        isolation: Isolation,
        at_end: Option<AtEnd>,
    ) -> Result<(), ToolError> {
        let refusal = match at_end {
            Some(AtEnd::Pause) => no_snapshots(),
            Some(AtEnd::Park) => cannot_park(),
            Some(AtEnd::Destroy | AtEnd::Stop) | None => return Ok(()),
        };
        self.driver(isolation)?.snapshots().map(drop).ok_or(refusal)
    }

    /// Whether the caller sees a workspace, and may take it over: the workspace belongs to the caller's own
    /// user, or the caller is an operator. The daemon's own calls see all: for a team, a member that another
    /// user took over is not gone.
    pub(crate) fn is_shown(&self, cx: &CallCx, card: &DirectoryEntry) -> bool {
        let of_user = || self.daemon.sessions.is_of_user(cx.session, card.user, card.owner);
        cx.door == Door::Internal || cx.view.reaches(Tier::Operator) || of_user()
    }

    /// Name of this daemon among those that share an image directory.
    pub(crate) fn image_user(&self) -> String {
        let disks = self.folders.disks.as_os_str().as_encoded_bytes();
        blake3::hash(disks).to_hex()[..16].to_owned()
    }

    /// Whether a machine may be made or started.
    ///
    /// # Errors
    /// `daemon_stopping` once an ordered stop has begun: a machine that comes up behind it would
    /// outlive the daemon.
    pub(crate) fn may_start(&self) -> Result<(), ToolError> {
        if self.daemon.closing.is_cancelled() { Err(ToolError::daemon_stopping()) } else { Ok(()) }
    }

    /// Whether a workspace was just planned: true once. Any later incarnation of its actor finds an
    /// interrupted creation.
    pub(crate) fn take_fresh(&self, id: WorkspaceId) -> bool {
        self.fresh.remove(&id).is_some()
    }

    /// Whether the manager boots for the first time in this daemon's life: true once.
    pub(crate) fn first_boot(&self) -> bool {
        !self.booted.swap(true, std::sync::atomic::Ordering::SeqCst)
    }

    /// Publishes an event; a full queue loses the event and says so later.
    pub(crate) fn publish(&self, kind: &str, subject: impl ToString, data: Value) {
        let event = NewEvent { kind: kind.to_owned(), subject: subject.to_string(), data };
        let _counted_when_lost = self.daemon.journal.events().publish_later(event);
    }
}
