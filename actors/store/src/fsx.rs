//! Durable file-system operations: each is on the disk when it returns.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::Error;
use crate::error::IoContext;

/// Makes creations, renames and removals in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).doing("syncing a directory")
}

/// Creates a directory and its missing parents, durably.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    make_dir(above)?;
    match fs::create_dir(dir) {
        // A concurrent call created it first.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.doing("creating a directory")?,
    }
    sync_dir(above)
}

/// Writes a file atomically and durably.
pub(crate) fn write_atomic(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let temp = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temp).doing("creating a file")?;
    file.write_all(bytes).and_then(|()| file.sync_all()).doing("writing a file")?;
    rename(&temp, &dir.join(name))
}

/// Renames within one directory, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).doing("renaming")?;
    to.parent().map_or(Ok(()), sync_dir)
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
    for entry in fs::read_dir(dir).doing("listing a directory")? {
        let entry = entry.doing("listing a directory")?;
        if entry.file_type().doing("listing a directory")?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            File::open(entry.path()).and_then(|file| file.sync_all()).doing("syncing a file")?;
        }
    }
    sync_dir(dir)
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
