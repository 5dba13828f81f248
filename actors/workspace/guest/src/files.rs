//! Files of the guest. Whatever may block runs off the daemon's one thread.

mod append;
pub mod list;
pub(crate) mod operation;
mod path;
pub mod read;
pub mod write;

use std::fs::File;
use std::io;
use std::path::Path;

use hivekeep_file_engine::{FileError, FileErrorKind};
use hivekeep_protocol::{GuestCode, GuestError};

/// Error for the host from an I/O error; `what` is mostly the path.
pub(crate) fn io_error(error: &io::Error, what: &str) -> GuestError {
    GuestError::new(code_of(error), format!("{what}: {error}"))
}

pub(crate) fn code_of(error: &io::Error) -> GuestCode {
    match error.kind() {
        io::ErrorKind::NotFound => GuestCode::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            GuestCode::PermissionDenied
        }
        io::ErrorKind::NotADirectory => GuestCode::NotADirectory,
        io::ErrorKind::IsADirectory => GuestCode::IsADirectory,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => GuestCode::NoSpace,
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidFilename => GuestCode::TooLarge,
        io::ErrorKind::InvalidInput => GuestCode::Invalid,
        _ if error.raw_os_error() == Some(libc::ELOOP) => GuestCode::Invalid,
        _ => GuestCode::Io,
    }
}

/// Error for the host from a refusal of the file engine.
pub(crate) fn engine_error(error: FileError) -> GuestError {
    let code = match error.kind {
        FileErrorKind::NotFound => GuestCode::NotFound,
        FileErrorKind::PermissionDenied => GuestCode::PermissionDenied,
        FileErrorKind::NotADirectory => GuestCode::NotADirectory,
        FileErrorKind::IsADirectory => GuestCode::IsADirectory,
        FileErrorKind::NoSpace => GuestCode::NoSpace,
        FileErrorKind::TooLarge => GuestCode::TooLarge,
        FileErrorKind::InvalidPath | FileErrorKind::Outside | FileErrorKind::NotAFile => {
            GuestCode::Invalid
        }
        _ => GuestCode::Io,
    };
    GuestError::new(code, error.message)
}

/// Makes a directory entry durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    File::open(parent)?.sync_all()
}

/// Runs blocking work elsewhere. A panic there is this call's panic.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_cancelled) => std::future::pending().await,
        },
    }
}
