//! Making folders, and having their entries on the disk.

use std::{io, os::fd::OwnedFd};

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{FileError, FileRoot, PlacePath, error::failed};

/// Makes a folder and those that it is in; each that was made is on the disk. One that exists is left as
/// it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeFolder {
    /// Folder.
    pub path: String,
}

/// The folder is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderMade;

/// # Errors
/// As [`failed`].
pub(crate) fn make(root: &FileRoot, asked: &MakeFolder) -> Result<FolderMade, FileError> {
    make_folder(root, &root.path(&asked.path)?).map(|_was_there| FolderMade)
}

/// Makes a folder and those that it is in, as [`MakeFolder`] does; false if it was there.
///
/// # Errors
/// Those of a path; `NotADirectory` where a file stands.
pub fn make_folder(root: &FileRoot, path: &PlacePath) -> Result<bool, FileError> {
    let settled = root.settled(path)?;
    // A link to a folder that is there.
    let settled = root.followed(&settled).unwrap_or(settled);
    make_all(root, settled.as_str()).map_err(|error| failed(&error, path))
}

/// As [`make_folder`], for the folder of a file.
pub(crate) fn make_all(in_root: &FileRoot, path: &str) -> io::Result<bool> {
    let root = in_root.dir();
    let mut made = false;
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for prefix in ends.map(|end| &path[..end]).filter(|prefix| !prefix.is_empty()) {
        made = match root.create_dir(prefix) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        };
        if made {
            in_root.give(&opened(&root.open_dir(prefix)?)?)?;
            sync(&parent(root, prefix)?)?;
        }
    }
    if root.metadata(path)?.is_dir() { Ok(made) } else { Err(Errno::NOTDIR.into()) }
}

fn parent(root: &Dir, prefix: &str) -> io::Result<Dir> {
    root.open_dir(prefix.rsplit_once('/').map_or(".", |(parent, _)| parent))
}

/// Has the names in a folder written to the disk. A handle for resolving paths cannot do it itself.
pub(crate) fn sync(folder: &Dir) -> io::Result<()> {
    Ok(fsync(opened(folder)?)?)
}

fn opened(folder: &Dir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(folder, ".", flags, Mode::empty())?)
}
