//! Messages of `workspace_prepare` to its workspace.

use std::path::PathBuf;

use hivekeep_git::{GitUrl, Login};
use hivekeep_kernel::{CallCx, SessionId, SnapshotId, ToolError};
use tokio::sync::oneshot;

use crate::{
    api::prepare::{Internet, PrepareStep},
    phase::Phase,
    records::{Recipe, WorkspaceSpec},
    workspace::snapshot::Making,
};

/// What a preparation asks of its workspace.
pub enum PrepareMsg {
    /// Make it, for the first time.
    Make(Box<PrepareRequest>),
    /// The setup is done: what is the snapshot made of?
    Freeze(oneshot::Sender<Making>),
    /// The preparation failed: remove everything, then answer its call.
    Undo(ToolError, oneshot::Sender<Result<Golden, ToolError>>),
    /// What are you?
    PreparedState(oneshot::Sender<PreparedState>),
}

/// A workspace that shall be prepared.
pub struct PrepareRequest {
    pub(crate) cx: CallCx,
    pub(crate) setup: Setup,
    /// Answered when it is golden, or gone.
    pub(crate) reply: oneshot::Sender<Result<Golden, ToolError>>,
}

/// A workspace that was prepared.
pub struct Golden {
    pub(crate) snapshot: SnapshotId,
    pub(crate) boot_time_ms: u64,
    pub(crate) steps: Vec<PrepareStep>,
    pub(crate) internet: Internet,
    pub(crate) internet_reason: Option<String>,
}

/// What a preparation of the same name has to know.
pub struct PreparedState {
    pub(crate) phase: Phase,
    pub(crate) owner: Option<SessionId>,
    pub(crate) spec: WorkspaceSpec,
    pub(crate) recipe: Option<Recipe>,
    /// Its snapshot, unless that was deleted.
    pub(crate) golden: Option<SnapshotId>,
}

/// What shall be done in the guest.
pub struct Setup {
    /// Cloned first.
    pub(crate) git_url: Option<GitUrl>,
    /// Who one is for its server.
    pub(crate) login: Option<Login>,
    /// Of the host: authorities that vouch for its server beside those of the image.
    pub(crate) ca_file: Option<PathBuf>,
    /// Run one after the other; the first that fails ends it.
    pub(crate) commands: Vec<String>,
    /// For each of them, and for the clone.
    pub(crate) timeout_secs: u64,
    /// Whether it has the internet meanwhile; `None`: where that can be had.
    pub(crate) allow_internet: Option<bool>,
}

impl Setup {
    /// How many steps it has.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.git_url.is_some()) + self.commands.len()
    }
}
