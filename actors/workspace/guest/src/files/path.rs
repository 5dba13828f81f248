//! Paths as the host may name them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hivekeep_protocol::{GuestCode, GuestError, limits};

use super::io_error;

/// # Errors
/// `Invalid` for a path that is relative or holds a NUL, `TooLarge` for a long one.
pub(super) fn absolute(path: &str) -> Result<PathBuf, GuestError> {
    if path.len() > limits::MAX_PATH_BYTES {
        let message = format!("a path of {} bytes", path.len());
        return Err(GuestError::new(GuestCode::TooLarge, message));
    }
    if !path.starts_with('/') || path.contains('\0') {
        let message = format!("{path:?} is not an absolute path");
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    Ok(PathBuf::from(path))
}

/// Opens a regular file for reading; nothing else is opened, since opening a
/// device can act on it and opening a pipe can wait for ever.
///
/// # Errors
/// `IsADirectory`; `Invalid` for devices, pipes and sockets; else as open(2).
pub(super) fn open_regular(path: &Path) -> Result<(File, std::fs::Metadata), GuestError> {
    let name = path.to_string_lossy();
    let failed = |error: io::Error| io_error(&error, &name);
    regular(&std::fs::metadata(path).map_err(failed)?, &name)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    regular(&meta, &name)?;
    Ok((file, meta))
}

pub(super) fn regular(meta: &std::fs::Metadata, name: &str) -> Result<(), GuestError> {
    let kind = meta.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(GuestError::new(GuestCode::IsADirectory, format!("{name}: is a directory")));
    }
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(GuestError::new(GuestCode::Invalid, format!("{name}: is {what}, not a file")))
}
