//! Errors of the operating system as tool errors with the path that they are about.

use std::{fmt, io};

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use rustix::io::Errno;

use crate::{codes, place_path};

/// Tool error for a failed operation on `path`.
pub(crate) fn failed(error: &io::Error, path: impl fmt::Display) -> ToolError {
    let errno = Errno::from_io_error(error);
    // The resolver's own refusal of a path that leaves the handle carries no number.
    if errno.is_none() && error.kind() == io::ErrorKind::PermissionDenied {
        return place_path::outside(&path.to_string());
    }
    let (code, what): (&ErrorCode, &str) = match errno {
        Some(Errno::NOENT) => (codes::NOT_FOUND, "does not exist"),
        Some(Errno::XDEV) => return place_path::outside(&path.to_string()),
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (codes::PERMISSION_DENIED, "may not be used this way by the daemon's user")
        }
        Some(Errno::NOTDIR) => (codes::NOT_A_DIRECTORY, "is not a folder, or a part of it is not"),
        Some(Errno::ISDIR) => (codes::IS_A_DIRECTORY, "is a folder"),
        Some(Errno::NOTEMPTY) => (codes::FOLDER_NOT_EMPTY, "is not empty"),
        Some(Errno::NAMETOOLONG) => (codes::INVALID_PATH, "has a name that is too long"),
        Some(Errno::LOOP) => (codes::INVALID_PATH, "is a link to itself, or passes too many"),
        Some(Errno::NOSPC | Errno::DQUOT) => (codes::HOST_DISK_FULL, "finds no room on the disk"),
        _ => {
            let message = format!("`{path}`: {error}");
            return ToolError::new(Layer::Actor, codes::FILE_FAILED, message);
        }
    };
    let error = ToolError::new(Layer::Actor, code, format!("`{path}` {what}"));
    match errno {
        Some(Errno::NOENT) => error.next("fs.list shows what a folder holds"),
        Some(Errno::NOTEMPTY) => error.next("set `recursive` to delete it with everything in it"),
        _ => error,
    }
}
