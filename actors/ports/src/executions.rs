//! Ports of executions: the workspaces that they work in, and links to the files in these.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, SessionId, ToolError, User, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Name of the place that is a session's own workspace.
pub const SESSION_PLACE: &str = "session";

/// Folder at which a sandbox beside a folder of the host or a volume has that.
pub const MOUNTED_PLACE: &str = "/work";

/// Name of a session's own workspace, and the beginning of those beside it.
pub fn own_workspace_name(session: SessionId) -> String {
    format!("session-{}", session.uuid().simple())
}

/// Own workspace of a session, where whoever opened the session decides on it.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnWorkspace {
    /// Fields of `workspace_create`, in place of those that are configured.
    pub request: Map<String, Value>,
    /// True if the session works in no other place.
    pub only: bool,
}

/// Own workspaces of sessions that were opened for work of others. One is also its session's default place.
pub trait OwnWorkspaces: Send + Sync {
    /// Decision on a session's own workspace; `None` where the configuration holds.
    fn of(&self, session: SessionId) -> Option<OwnWorkspace>;
}

/// Snapshot of a workspace, and whose the workspace is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedSnapshot {
    /// Workspace that it is of.
    pub workspace: WorkspaceId,
    /// Session that owns the workspace.
    pub owner: SessionId,
    /// Name of the snapshot.
    pub snapshot: String,
}

/// Forks of workspaces for sessions that do not own the source, where the daemon decided that they may.
#[async_trait]
pub trait WorkspaceForks: Send + Sync {
    /// Makes a workspace of this name for the call's session, which begins as the snapshot. With the memory, where
    /// the snapshot has one. Tasks that run in that go on where `keeps_tasks` says so, under their ids, and are ended
    /// otherwise. It is destroyed after `secs`, if that says so, whatever becomes of the daemon.
    ///
    /// # Errors
    /// Those of `workspace_fork`.
    async fn fork(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        name: &str,
        keeps_tasks: bool,
        secs: Option<u64>,
    ) -> Result<WorkspaceId, ToolError>;

    /// Makes one for the call's session to look at: the snapshot's disk alone, without a network, and destroyed after
    /// so many seconds, whatever becomes of the daemon.
    ///
    /// # Errors
    /// Those of `workspace_fork`.
    async fn fork_to_read(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        secs: u64,
    ) -> Result<WorkspaceId, ToolError>;
}

/// Standstill of workspaces that nobody needs for now. Whatever is wanted of one next has it go on, as one that is
/// parked. A link by virtio-serial is given up when its pings are missed, and with it what is held. A connection to a
/// forward does not end a pause.
#[async_trait]
pub trait WorkspaceStandstill: Send + Sync {
    /// Has the machine of a session's own workspace stand still with its memory, or with it on the disk where `saved`
    /// says so and it can be. Succeeds where none runs, also where it has crashed.
    ///
    /// # Errors
    /// Those of `workspace_pause`: above all where a machine cannot be paused; it runs on then.
    async fn halt(&self, owner: SessionId, id: WorkspaceId, saved: bool) -> Result<(), ToolError>;

    /// Lets it go on, if it stands still by this.
    ///
    /// # Errors
    /// Those of `workspace_resume`.
    async fn go_on(&self, owner: SessionId, id: WorkspaceId) -> Result<(), ToolError>;
}

/// Part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Bytes of the part.
    pub bytes: Vec<u8>,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// First byte of the next part; `None` at the end.
    pub next: Option<u64>,
}

/// Files in the workspaces of executions, for whoever serves links to them.
#[async_trait]
pub trait ExecutionFiles: Send + Sync {
    /// User whose the execution is; `None` for one that is not there.
    fn user(&self, execution: &str) -> Option<User>;

    /// Reads a file from a byte on, on behalf of whoever was given a link. `path` is relative to `/workspace`.
    ///
    /// # Errors
    /// `execution_files_gone`; those of `fs.get`.
    async fn read(&self, execution: &str, path: &str, from: u64) -> Result<FilePart, ToolError>;
}

/// Links to files of executions. Offered only while they are served.
pub trait ExecutionFileLinks: Send + Sync {
    /// URL that opens one file of an execution, and nothing else, until a time.
    fn link(&self, user: User, execution: &str, path: &str, until: DateTime<Utc>) -> String;

    /// True if a token is that of a link to this very file which has not expired.
    fn opens(&self, user: User, execution: &str, path: &str, token: &str) -> bool;
}
