//! Deleting a file, a link, or a folder, with everything in it if asked.

use std::{os::fd::AsRawFd, path::Path};

use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, error::failed, folders::sync};

/// Deletes what a path names; a link itself, not what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePath {
    /// Path.
    pub path: String,
    /// A folder with everything in it; without it only an empty one.
    pub recursive: bool,
}

/// Outcome of [`RemovePath`]: the path is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRemoved;

/// # Errors
/// `NotEmpty` without `recursive`, and as [`failed`]. After an error of a recursive one, what could be
/// deleted is gone.
pub(crate) fn remove(root: &FileRoot, asked: &RemovePath) -> Result<PathRemoved, FileError> {
    let path = root.path(&asked.path)?;
    let io = |error| failed(&error, &path);
    let settled = root.settled(&path)?;
    let Some((parent, name)) = settled.split() else {
        let message = format!("`{path}` has no name of its own that could be deleted");
        return Err(FileError::new(FileErrorKind::InvalidPath, message));
    };
    let folder = root.dir().open_dir(parent).map_err(io)?;
    let metadata = folder.symlink_metadata(name).map_err(io)?;
    if !metadata.is_dir() {
        folder.remove_file(name).map_err(io)?;
    } else if asked.recursive {
        // The handle's own name leads to the folder, wherever it has been moved.
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        hivekeep_fs::remove_tree(&Path::new(&handle).join(name)).map_err(io)?;
    } else {
        folder.remove_dir(name).map_err(io)?;
    }
    sync(&folder).map_err(io)?;
    Ok(PathRemoved)
}
