//! File ports: places of sessions, where commands run whose call names no workspace, and operations on the
//! files of places and of workspaces, as seen by whoever offers file tools.
//!
//! Operations and their outcomes travel encoded, for only the file engine on both ends reads them. A
//! guest is not trusted: the size of an outcome is bounded here, what it says is checked by the caller.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;

use hivekeep_kernel::{CallCx, SessionId, ToolError, User, WorkspaceId};

/// Workspace that the commands of a place run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceWorkspace {
    /// Workspace, which has an answering guest.
    pub workspace: WorkspaceId,
    /// Name of the place, as results tell it.
    pub place: String,
    /// Absolute path of the place's root in the guest: the working directory of its commands, and
    /// what relative paths begin at.
    pub root: String,
    /// User of the guest that its commands run as; `None` is the image's.
    pub user: Option<String>,
}

/// Folder of the host that the operator opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceFolder {
    /// Absolute path.
    pub folder: PathBuf,
    /// True if sessions may only read.
    pub read_only: bool,
}

/// Folders of the host, by the names of their places.
pub trait PlaceFolders: Send + Sync {
    /// Finds one.
    ///
    /// # Errors
    /// `place_unknown`, with the names there are.
    fn folder(&self, name: &str) -> Result<PlaceFolder, ToolError>;

    /// Name of the place of calls that name none. It need not be a folder.
    fn default_place(&self) -> &str;
}

/// Places of sessions.
#[async_trait]
pub trait Places: Send + Sync {
    /// Workspace of a place; `None` is the session's default place. The session's own workspace is
    /// made, or started, when the first call needs it, within the call's deadline and with its
    /// progress.
    ///
    /// # Errors
    /// `place_unknown`; `user_unknown` for the home of a user whom there is not; those of making and
    /// starting a workspace.
    async fn workspace(
        &self,
        cx: &CallCx,
        place: Option<&str>,
    ) -> Result<PlaceWorkspace, ToolError>;

    /// Puts a program into a place's workspace, whole, readable and executable for everybody there.
    /// `path` is absolute in the guest; missing folders are made.
    ///
    /// # Errors
    /// As `fs.write` in that workspace.
    async fn put_program(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        path: &str,
        text: String,
    ) -> Result<(), ToolError>;
}

/// Place that a session may work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedPlace {
    /// Lasting name, by which the same place is found whenever: of a folder its name, of a workspace and of a
    /// volume (`volume:ID`) its id.
    pub id: String,
    /// Name, as results tell it.
    pub name: String,
    /// Folder of the host, where it is one: its changes can be watched.
    pub folder: Option<PathBuf>,
}

/// Files of all kinds of places. Operations and their outcomes travel encoded: only the file engine on both
/// ends reads them.
#[async_trait]
pub trait PlaceFiles: Send + Sync {
    /// Finds a place of the caller's session; `None` is its default place. The session's own workspace is made,
    /// or started, when it is not there.
    ///
    /// # Errors
    /// `place_unknown`; `not_owner`; `volume_not_found`; those of making a workspace.
    async fn locate(&self, cx: &CallCx, place: Option<&str>) -> Result<LocatedPlace, ToolError>;

    /// Runs an encoded operation in a place; returns the encoded outcome, which is one of that operation and
    /// within its limits. Whoever drops the future does not want a search any more.
    ///
    /// # Errors
    /// Those of [`Self::locate`], of the operation, and of a guest that is away.
    async fn run(&self, cx: &CallCx, place: &str, operation: Vec<u8>)
    -> Result<Vec<u8>, ToolError>;
}

/// Readiness of a workspace for file operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceReadiness {
    /// The guest can be asked, or says why it cannot.
    Ready,
    /// The workspace is on its way to another state.
    Changing,
    /// The workspace has no machine and can be started.
    Off,
}

/// Workspace as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWorkspace {
    /// Id, for its whole life.
    pub id: WorkspaceId,
    /// Unique name.
    pub name: String,
    /// Session that owns it; `None` when orphaned.
    pub owner: Option<SessionId>,
    /// Readiness for file operations.
    pub readiness: WorkspaceReadiness,
}

/// Encoded operation for a guest, and where and as whom it runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestOperation {
    /// Operation as the file engine encodes it.
    pub encoded: Vec<u8>,
    /// True if it walks a tree.
    pub walks: bool,
    /// Size of its encoded outcome, at most.
    pub max_bytes: u64,
    /// User of the guest whose rights count; `None` is whom commands run as.
    pub user: Option<String>,
    /// Absolute path of the folder that relative paths begin at; `None` is the guest's own.
    pub folder: Option<String>,
}

/// Folder of a guest to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// Absolute path.
    pub path: String,
    /// True if the folders below are watched too.
    pub recursive: bool,
    /// User of the guest whose rights count; `None` is whom commands run as.
    pub user: Option<String>,
}

/// Kind of change to a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// The name is new: made, or moved here.
    Create,
    /// The content was written.
    Write,
    /// The name is gone.
    Remove,
    /// The name was moved away.
    Rename,
    /// Mode, owner or times are others.
    Chmod,
}

/// Change below a watched folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileChange {
    /// Number, ascending.
    pub seq: u64,
    /// `create`, `write`, `remove`, `rename` (away) or `chmod`.
    pub kind: FileChangeKind,
    /// Path from the watched folder on; `.` is itself.
    pub path: String,
}

/// Changes behind a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// By ascending number.
    pub changes: Vec<FileChange>,
    /// Number behind which to go on.
    pub next: u64,
    /// True if some before `next` were dropped.
    pub lost: bool,
}

/// Files of workspaces.
#[async_trait]
pub trait WorkspaceFiles: Send + Sync {
    /// Finds a workspace by its id or name, without asking anybody. While the daemon takes up its
    /// workspaces, one that exists may not be found yet; its name is taken all the same.
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace>;

    /// Workspaces of a user, without asking anybody.
    fn of_user(&self, _: User) -> Vec<WorkspaceId> {
        Vec::new()
    }

    /// Whether a workspace has this label, without asking anybody.
    fn has_label(&self, _: WorkspaceId, _name: &str, _value: &str) -> bool {
        false
    }

    /// Home of a user of a guest: an absolute path. `None` is whom its commands run as.
    ///
    /// # Errors
    /// `user_unknown`, and those of [`Self::run`].
    async fn home(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _user: Option<&str>,
    ) -> Result<String, ToolError> {
        Err(no_guests())
    }

    /// Has the guest of a workspace of the caller's session run an encoded operation; returns the
    /// encoded outcome.
    ///
    /// # Errors
    /// `user_unknown`;
    /// `workspace_not_found`; `not_owner`; `workspace_state` when it does not run; `guest_unreachable`;
    /// `guest_unsupported` for a guest of an older daemon; those of the link.
    async fn run(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        operation: GuestOperation,
    ) -> Result<Vec<u8>, ToolError>;

    /// Begins to watch a folder of a guest; returns the id of the watch, which ends with the guest's
    /// daemon, or when nobody has read it for ten minutes.
    ///
    /// # Errors
    /// `guest_busy` with as many watches as there may be; `too_large` for too many folders; `not_found`,
    /// `not_a_directory`, `permission_denied`; those of [`Self::run`].
    async fn watch(&self, _: &CallCx, _: WorkspaceId, _: WatchRequest) -> Result<u64, ToolError> {
        Err(no_guests())
    }

    /// Reads the changes of a watch behind a number, after a wait of at most `wait` if there are none.
    ///
    /// # Errors
    /// `watch_unknown`; those of [`Self::run`].
    async fn changes(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _watch: u64,
        _after: u64,
        _wait: Duration,
    ) -> Result<FileChanges, ToolError> {
        Err(no_guests())
    }

    /// Ends a watch; false if there was none.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    async fn unwatch(&self, _: &CallCx, _: WorkspaceId, _watch: u64) -> Result<bool, ToolError> {
        Err(no_guests())
    }
}

/// The refusal of workspaces whose guests are not asked, as those that stand in for others in tests.
fn no_guests() -> ToolError {
    ToolError::internal("these workspaces have no guests to ask")
}
