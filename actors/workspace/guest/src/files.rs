//! Files of the guest, as the host may name them, and its folders. Whatever may block runs off the daemon's
//! one thread.

pub mod content;
pub(crate) mod operation;

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hivekeep_file_engine::{FileError, FileErrorKind};
use hivekeep_protocol::{
    EntryKind, FileEntry, FileStat, GuestCode, GuestError, ListFolder, ListFolderReply, limits,
};

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

/// # Errors
/// `Invalid` for a path that is relative or holds a NUL, `TooLarge` for a long one.
fn absolute(path: &str) -> Result<PathBuf, GuestError> {
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
fn open_regular(path: &Path) -> Result<(File, std::fs::Metadata), GuestError> {
    let name = path.to_string_lossy();
    let failed = |error: io::Error| io_error(&error, &name);
    regular(&std::fs::metadata(path).map_err(failed)?, &name)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    regular(&meta, &name)?;
    Ok((file, meta))
}

fn regular(meta: &std::fs::Metadata, name: &str) -> Result<(), GuestError> {
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

/// Encoded size of a page stays below this; a frame holds 1 MiB.
const MAX_PAGE_BYTES: usize = 900 * 1024;
/// Encoded size of an entry without its name, rounded up.
const ENTRY_BYTES: usize = 64;

/// Answers [`ListFolder`]. A directory of any size costs the memory of one page.
///
/// # Errors
/// `NotADirectory`, `NotFound`, or as opendir(3).
pub async fn list(asked: ListFolder) -> Result<ListFolderReply, GuestError> {
    off_thread(move || page(&asked)).await
}

fn page(asked: &ListFolder) -> Result<ListFolderReply, GuestError> {
    let dir = absolute(&asked.path)?;
    let failed = |error: std::io::Error| io_error(&error, &asked.path);
    let limit = (asked.limit as usize).clamp(1, limits::MAX_LIST_ENTRIES);
    let after = asked.after.as_deref();
    let mut names = BTreeSet::new();
    let mut more = false;
    for entry in std::fs::read_dir(&dir).map_err(failed)? {
        let raw = entry.map_err(failed)?.file_name();
        let name = raw.to_string_lossy().into_owned();
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        names.insert((name, raw));
        if names.len() > limit {
            names.pop_last();
            more = true;
        }
    }
    let (mut entries, mut page_bytes) = (Vec::with_capacity(names.len()), 0);
    for (name, raw) in names {
        page_bytes += name.len() + ENTRY_BYTES;
        if page_bytes > MAX_PAGE_BYTES {
            more = true;
            break;
        }
        // An entry that is removed meanwhile is left out.
        if let Ok(meta) = std::fs::symlink_metadata(dir.join(raw)) {
            entries.push(entry_of(name, &meta));
        }
    }
    Ok(ListFolderReply { entries, more })
}

/// Answers [`FileStat`].
///
/// # Errors
/// As lstat(2).
pub async fn stat(asked: FileStat) -> Result<FileEntry, GuestError> {
    let path = absolute(&asked.path)?;
    off_thread(move || {
        let meta = std::fs::symlink_metadata(&path);
        let meta = meta.map_err(|error| io_error(&error, &path.to_string_lossy()))?;
        let name = path.file_name().unwrap_or(Path::new("/").as_os_str());
        Ok(entry_of(name.to_string_lossy().into_owned(), &meta))
    })
    .await
}

fn entry_of(name: String, meta: &Metadata) -> FileEntry {
    let kind = match meta.file_type() {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Dir,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    FileEntry {
        name,
        kind,
        size_bytes: meta.size(),
        mode: meta.mode() & 0o7777,
        modified_unix_secs: meta.mtime(),
    }
}
