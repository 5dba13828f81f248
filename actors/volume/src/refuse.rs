//! Errors of the file engine in a volume as tool errors.

use std::io;

use cap_std::fs::Dir;
use hivekeep_file_engine::{FileError, FileErrorKind};
use hivekeep_kernel::{ErrorCode, Layer, ToolError};

use crate::{codes, images::free_bytes};

/// Tool error of an operation that did not fail for want of room.
pub(crate) fn refused(error: FileError) -> ToolError {
    use FileErrorKind as Kind;
    let code: &ErrorCode = match error.kind {
        Kind::InvalidPath | Kind::Outside => {
            return ToolError::new(Layer::Actor, codes::INVALID_PATH, error.message)
                .next("name a path relative to the volume's root, with `/` between folders");
        }
        Kind::NotFound => codes::NOT_FOUND,
        Kind::PermissionDenied => codes::PERMISSION_DENIED,
        Kind::NotADirectory => codes::NOT_A_DIRECTORY,
        Kind::IsADirectory => codes::IS_A_DIRECTORY,
        Kind::NotAFile => codes::VOLUME_NOT_A_FILE,
        _ => codes::VOLUME_FAILED,
    };
    ToolError::new(Layer::Actor, code, error.message)
}

/// Like [`refused`]; lack of room is reported with the volume's sizes, as far as they can be read.
pub(crate) fn refused_in(error: FileError, root: &Dir) -> ToolError {
    if error.kind != FileErrorKind::NoSpace {
        return refused(error);
    }
    let told = ToolError::new(Layer::Quota, codes::VOLUME_FULL, error.message).next(
        "delete files, or use a larger volume; a file that is replaced needs room beside the old one",
    );
    match (free_bytes(root), total_bytes(root)) {
        (Ok(free), Ok(size)) => told.detail("free_bytes", free).detail("size_bytes", size),
        _ => told,
    }
}

fn total_bytes(root: &Dir) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(root)?;
    Ok(fs.f_blocks.saturating_mul(fs.f_frsize))
}
