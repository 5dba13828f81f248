//! Files and folders of the host: durable changes, and removal of trees that a guest made.
//!
//! Each durable change is on the disk when it returns, names included. All of them block. Errors say nothing of
//! the path: who calls knows it.

mod trees;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub use trees::remove_tree;

/// Makes a file's content durable.
///
/// # Errors
/// As opening and syncing it.
pub fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes creations, renames and removals in a folder durable.
///
/// # Errors
/// As opening and syncing it.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    sync_file(folder)
}

/// Makes the name of a file or folder durable.
///
/// # Errors
/// As opening and syncing the folder that it is in.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    sync_folder(parent(path))
}

/// Makes every file and folder of a tree durable, without following a link.
///
/// # Errors
/// As listing and syncing them.
pub fn sync_tree(root: &Path) -> io::Result<()> {
    let mut todo = vec![root.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                sync_file(&entry.path())?;
            }
        }
        sync_folder(&folder)?;
    }
    Ok(())
}

/// Makes a folder and its missing parents, all of this mode. One that is there keeps its own.
///
/// # Errors
/// As making and syncing them.
pub fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    make_folder(parent(folder), mode)?;
    match DirBuilder::new().mode(mode).create(folder) {
        // A concurrent call made it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    sync_parent(folder)
}

/// Renames what is durable itself, within a folder.
///
/// # Errors
/// As renaming and syncing.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Renames what is durable itself, within a folder, to a name that is free.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when it is taken; as renaming and syncing.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?;
    sync_parent(to)
}

/// Replaces a file, or makes it: with these bytes or, after an error or a crash, as it was.
///
/// # Errors
/// As writing, renaming and syncing it.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |part| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(part)?;
        file.write_all(bytes)
    })
}

/// Replaces a file, or makes it, by one that `make` makes beside it ([`part_of`]). What an earlier
/// call left there is removed first, so one at a time replaces a file.
///
/// # Errors
/// As `make`; as renaming and syncing it.
pub fn replace_by<T>(path: &Path, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let part = part_of(path);
    unlink(&part)?;
    let made = make(&part).and_then(|made| {
        sync_file(&part)?;
        fs::rename(&part, path)?;
        Ok(made)
    });
    if made.is_err() {
        // The next call removes it, too.
        let _ = unlink(&part);
    }
    let made = made?;
    sync_parent(path)?;
    Ok(made)
}

/// Where a file is made before it has its name. A crash may leave it.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Removes a file. One that is gone is no error.
///
/// # Errors
/// As removing and syncing.
pub fn remove_file(path: &Path) -> io::Result<()> {
    unlink(path)?;
    sync_parent(path)
}

fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

#[cfg(test)]
mod tests;
