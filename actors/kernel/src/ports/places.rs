//! Place port: where the commands of a session run when its call names no workspace.

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
    /// `place_unknown`; those of
    /// making and starting a workspace.
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
