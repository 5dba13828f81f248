//! Place ports: where the commands of a session run when its call names no workspace, and its files.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::{CallCx, ToolError, WorkspaceId};

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
