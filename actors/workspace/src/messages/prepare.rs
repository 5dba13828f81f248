//! Messages of `workspace_prepare` to its workspace.

use std::path::PathBuf;

use hivekeep_git::{GitUrl, Login};
use hivekeep_kernel::{CallCx, SessionId, SnapshotId, ToolError};
use tokio::sync::oneshot;

use crate::{
    phase::Phase,
    prepare::api::{Internet, PrepareStep},
    records::{Recipe, WorkspaceSpec},
    snapshots::Making,
};

/// Requests of a preparation to its workspace.
pub enum PrepareMsg {
    /// Make the workspace for the first time, and prepare it.
    Make(Box<PrepareRequest>),
    /// The setup is done: ask for the plan of the snapshot.
    Freeze(oneshot::Sender<Making>),
    /// The preparation failed: remove everything, then answer its call.
    Undo(ToolError, oneshot::Sender<Result<Golden, ToolError>>),
    /// Ask for the state that a preparation of the same name has to know.
    PreparedState(oneshot::Sender<PreparedState>),
}

/// A workspace to prepare.
pub struct PrepareRequest {
    pub(crate) cx: CallCx,
    pub(crate) setup: Setup,
    /// Answered when the golden snapshot is made, or the workspace is gone.
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

/// State of a workspace that a preparation of the same name has to know.
pub struct PreparedState {
    pub(crate) phase: Phase,
    pub(crate) owner: Option<SessionId>,
    pub(crate) spec: WorkspaceSpec,
    pub(crate) recipe: Option<Recipe>,
    /// The golden snapshot, unless it was deleted.
    pub(crate) golden: Option<SnapshotId>,
}

/// Work to be done in the guest.
pub struct Setup {
    /// Repository that is cloned first.
    pub(crate) git_url: Option<GitUrl>,
    /// Login to the repository's server.
    pub(crate) login: Option<Login>,
    /// File of the host with authorities that vouch for the server, beside those of the image.
    pub(crate) ca_file: Option<PathBuf>,
    /// Commands, run one after the other; the first that fails ends the setup.
    pub(crate) commands: Vec<String>,
    /// Limit for each command, and for the clone.
    pub(crate) timeout_secs: u64,
    /// Whether the guest has the internet meanwhile; `None`: where that can be had.
    pub(crate) allow_internet: Option<bool>,
}

impl Setup {
    /// Number of steps: the clone and the commands.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.git_url.is_some()) + self.commands.len()
    }
}
