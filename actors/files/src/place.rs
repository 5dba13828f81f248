//! Places as an interface: where operations on files run, and with which errors. A folder of the host, a
//! workspace and a volume are the implementations.

use std::path::Path;

use async_trait::async_trait;
use hivekeep_file_engine::{FileError, FileErrorKind, FileOperation, FileOutcome, Operation};
use hivekeep_kernel::{CallCx, ErrorCode, Layer, ToolError, WorkspaceId};

use crate::codes;

/// Folder of a guest that relative paths begin at.
pub(crate) const WORKSPACE_ROOT: &str = "/workspace";
/// Prefix of the names of volume places.
pub(crate) const VOLUME_PREFIX: &str = "volume:";
/// Characters of a message that are told: a guest may have made it up.
const MAX_MESSAGE_CHARS: usize = 5_000;

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
        /// Id of the workspace.
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

/// Tool error of an operation in a folder of the host.
pub(crate) fn refused(error: FileError) -> ToolError {
    of(error, Layer::Actor)
}

/// Tool error of an operation in a guest.
pub(crate) fn refused_by_guest(error: FileError) -> ToolError {
    of(error, Layer::Guest)
}

/// Refuses what only workspaces have, in a place that is none.
pub(crate) fn no_workspace(place: &str, what: &str) -> ToolError {
    let message = format!("the place `{place}` is not a workspace; {what}");
    ToolError::new(Layer::Resolve, codes::PLACE_NO_WORKSPACE, message)
        .next("name a workspace, or leave out what only workspaces have")
}

fn of(error: FileError, layer: Layer) -> ToolError {
    use FileErrorKind as Kind;
    let (code, next): (&ErrorCode, &str) = match error.kind {
        Kind::InvalidPath => (
            codes::INVALID_PATH,
            "name a file or folder by a path from the place's root, with `/` between folders",
        ),
        Kind::Outside => (codes::OUTSIDE_PLACE, "name a path below the place's root"),
        Kind::NotFound => (codes::NOT_FOUND, "fs.list shows what a folder holds"),
        Kind::PermissionDenied if layer == Layer::Guest => {
            (codes::PERMISSION_DENIED, "name a user who may, as the place `root@WORKSPACE` does")
        }
        Kind::PermissionDenied => (codes::PERMISSION_DENIED, ""),
        Kind::NotADirectory => (codes::NOT_A_DIRECTORY, ""),
        Kind::IsADirectory => (codes::IS_A_DIRECTORY, "fs.list shows what it holds"),
        Kind::NotAFile => (codes::NOT_A_FILE, ""),
        Kind::NotEmpty => {
            (codes::FOLDER_NOT_EMPTY, "set `recursive` to delete it with everything in it")
        }
        Kind::Exists => {
            (codes::FILE_EXISTS, "set `overwrite` to replace it, or choose another path")
        }
        Kind::NoSpace if layer == Layer::Guest => (codes::GUEST_DISK_FULL, "free space in it"),
        Kind::NoSpace => (codes::HOST_DISK_FULL, "ask the operator to free space"),
        Kind::TooLarge => (codes::TOO_LARGE, "read it in ranges; change it by a command"),
        Kind::NotText => (codes::NOT_UTF8, "fs.get has the bytes of any file"),
        Kind::NoMatch => {
            (codes::NO_MATCH, "read the file and give the text exactly as it stands there")
        }
        Kind::ManyMatches => {
            (codes::MANY_MATCHES, "give more of the text around the place that is meant")
        }
        Kind::InvalidPattern => (codes::INVALID_PATTERN, ""),
        Kind::Contended => (codes::FILE_CONTENDED, "repeat the call"),
        Kind::PastEnd => (codes::PAST_END, "begin where there is something"),
        Kind::Failed => (codes::FILE_FAILED, ""),
        Kind::NoMetadata => (codes::METADATA_UNSUPPORTED, "put it without `metadata`"),
        Kind::InvalidMetadata => (codes::INVALID_INPUT, "give fewer or shorter texts"),
    };
    let message: String = error.message.chars().take(MAX_MESSAGE_CHARS).collect();
    let mut told = ToolError::new(layer, code, message);
    if !next.is_empty() {
        told = told.next(next);
    }
    if error.kind == Kind::Contended {
        told = told.retryable();
    }
    let facts = [
        ("edit", error.edit),
        ("occurrences", error.occurrences),
        ("size_bytes", error.size_bytes),
    ];
    facts.into_iter().fold(told, |told, (key, fact)| match fact {
        Some(fact) => told.detail(key, fact),
        None => told,
    })
}
