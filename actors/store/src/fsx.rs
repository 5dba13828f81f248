//! Durable file-system operations, with errors that say which one failed, and crash points between them: named
//! places where tests stop the program as a crash or a full disk would.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::error::IoContext;

/// Makes creations, renames and removals in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    hivekeep_fs::sync_folder(dir).doing("syncing a directory")
}

/// Creates a directory and its missing parents, durably.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    hivekeep_fs::make_folder(dir, 0o777).doing("creating a directory")
}

/// Writes a file atomically and durably.
pub(crate) fn write_atomic(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    hivekeep_fs::replace(&dir.join(name), 0o666, bytes).doing("writing a file")
}

/// Renames within one directory, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    hivekeep_fs::rename(from, to).doing("renaming")
}

/// Removes a file if it exists.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removing a file", &error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory tree if it exists.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removing a directory", &error))
        }
        _ => Ok(()),
    }
}

/// Copies a directory tree. Not synced: the copy is only ever read.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).doing("creating a directory")?;
    for entry in fs::read_dir(from).doing("listing a directory")? {
        let entry = entry.doing("listing a directory")?;
        let target = to.join(entry.file_name());
        if entry.file_type().doing("listing a directory")?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).doing("copying the database")?;
        }
    }
    Ok(())
}

/// Syncs every file and directory of a tree.
pub(crate) fn sync_tree(dir: &Path) -> Result<(), Error> {
    hivekeep_fs::sync_tree(dir).doing("syncing a directory")
}

/// Free space on the file system of `dir` for unprivileged users, in bytes.
pub(crate) fn free_bytes(dir: &Path) -> Result<u64, Error> {
    let found = rustix::fs::statvfs(dir).map_err(std::io::Error::from);
    found.map(|found| found.f_bavail * found.f_frsize).doing("asking for free space")
}

/// Total size of a tree's files in bytes. A file that vanishes meanwhile counts 0.
pub(crate) fn tree_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => tree_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Passes, unless a test has set a fail point of this name.
#[allow(unused_variables, reason = "the macro is empty without the feature")]
pub(crate) fn crash_point(name: &'static str) -> Result<(), Error> {
    fail::fail_point!(name, |_| Err(Error::Full { doing: name, cause: "injected".into() }));
    Ok(())
}
