//! Errors of the file engine as tool errors with codes and next steps.

use hivekeep_file_engine::{FileError, FileErrorKind};
use hivekeep_kernel::{ErrorCode, Layer, ToolError};

use crate::codes;

/// Characters of a message that are told: a guest may have made it up.
const MAX_MESSAGE_CHARS: usize = 5_000;

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
