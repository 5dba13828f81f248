//! Making folders, and having their entries on the disk.

use std::{io, os::fd::OwnedFd};

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{FileError, FileRoot, error::failed};

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
    let path = root.path(&asked.path)?;
    let settled = root.settled(&path)?;
    // A link to a folder that is there.
    let settled = root.followed(&settled).unwrap_or(settled);
    make_all(root, settled.as_str()).map_err(|error| failed(&error, &path))?;
    Ok(FolderMade)
}

/// As [`make`], for the folder of a file.
pub(crate) fn make_all(in_root: &FileRoot, path: &str) -> io::Result<()> {
    let root = in_root.dir();
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for prefix in ends.map(|end| &path[..end]).filter(|prefix| !prefix.is_empty()) {
        match root.create_dir(prefix) {
            Ok(()) => {
                in_root.give(&opened(&root.open_dir(prefix)?)?)?;
                sync(&parent(root, prefix)?)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    if root.metadata(path)?.is_dir() { Ok(()) } else { Err(Errno::NOTDIR.into()) }
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
