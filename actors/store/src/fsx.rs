//! File-system steps that are durable when they return.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::Error;
use crate::error::Doing;

/// Makes creations, renames and removals in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).doing("syncing a directory")
}

/// Makes a directory that is missing, and those on the way to it, durably.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    make_dir(above)?;
    match fs::create_dir(dir) {
        // Another one was quicker.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.doing("creating a directory")?,
    }
    sync_dir(above)
}

/// Writes a file whole or not at all, durably.
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

/// Removes a file if it is there.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removing a file", &error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory tree if it is there.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removing a directory", &error))
        }
        _ => Ok(()),
    }
}

/// Copies a directory tree. Not synced: the copy is only ever looked at.
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

/// What is free on the file system of `dir` for everybody, in bytes.
pub(crate) fn free_bytes(dir: &Path) -> Result<u64, Error> {
    let found = rustix::fs::statvfs(dir).map_err(std::io::Error::from);
    found.map(|found| found.f_bavail * found.f_frsize).doing("asking for free space")
}

/// The bytes a tree's files hold. A file that vanishes meanwhile counts 0.
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
