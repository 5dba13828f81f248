//! Place as an interface: where operations on files run. A folder of the host, a workspace and a volume are
//! the implementations.

use std::path::Path;

use async_trait::async_trait;
use hivekeep_file_engine::{FileError, FileOperation, FileOutcome, Operation};
use hivekeep_kernel::{CallCx, ToolError, WorkspaceId};

use crate::refuse::refused;

/// Path that an operation was about.
#[derive(Debug)]
pub(crate) struct PlacedPath {
    /// Name of the place.
    pub(crate) place: String,
    /// Path as results tell it.
    pub(crate) path: String,
}

/// Workspace of the commands that work in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandHost {
    /// The place itself.
    Workspace {
        /// Workspace.
        id: WorkspaceId,
        /// Absolute path of the folder that the place begins at.
        root: String,
        /// User that commands run as; `None` is the image's.
        user: Option<String>,
    },
    /// A workspace beside the place, which mounts it.
    Beside {
        /// Source of the mount, as in `volumes[].volume` of `workspace_create`.
        source: String,
        /// True if the place is only read.
        read_only: bool,
    },
}

/// Place that has files.
#[async_trait]
pub(crate) trait FilePlace: Send + Sync {
    /// Name, as results tell it.
    fn name(&self) -> &str;

    /// Name by which the same place is found whenever.
    ///
    /// # Errors
    /// Those of what is not there.
    fn lasting(&self, cx: &CallCx) -> Result<String, ToolError>;

    /// Folder of the host that it is.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// A path as results tell it.
    ///
    /// # Errors
    /// For a path that makes no sense.
    fn shown(&self, path: &str) -> Result<String, FileError>;

    /// Workspace of the commands that work in the place.
    fn command_host(&self) -> CommandHost;

    /// Runs an operation. Whoever drops the future does not want a search any more; a change is made whole
    /// or not at all.
    ///
    /// # Errors
    /// Those of the operation, and of the place.
    async fn run(&self, cx: &CallCx, operation: FileOperation) -> Result<FileOutcome, ToolError>;
}

impl dyn FilePlace + '_ {
    /// Runs an operation, for its outcome and the path that it was about.
    ///
    /// # Errors
    /// As `run`.
    pub(crate) async fn ask<O: Operation>(
        &self,
        cx: &CallCx,
        operation: O,
    ) -> Result<(O::Outcome, PlacedPath), ToolError> {
        let path = self.shown(operation.path()).map_err(refused)?;
        let outcome = self.run(cx, operation.into()).await?;
        let outcome = O::outcome_of(outcome)
            .ok_or_else(|| ToolError::internal("an outcome of another operation"))?;
        Ok((outcome, PlacedPath { place: self.name().to_owned(), path }))
    }
}
