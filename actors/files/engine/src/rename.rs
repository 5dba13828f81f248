//! Renaming below a root, in one step.

use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, PlacePath,
    error::failed,
    folders::{make_all, sync},
};

/// Renames what a path names, a link itself; missing folders are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenamePath {
    /// Path now.
    pub path: String,
    /// Path that it is to have.
    pub new_path: String,
    /// Replace a file that is there.
    pub overwrite: bool,
}

/// Outcome of [`RenamePath`]: the path has its new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed;

/// # Errors
/// `Exists`, `InvalidPath` for a path without a name of its own, and as [`failed`].
pub(crate) fn rename(root: &FileRoot, asked: &RenamePath) -> Result<Renamed, FileError> {
    let nameless = |path: &PlacePath| {
        let message = format!("`{path}` has no name of its own that could be changed");
        FileError::new(FileErrorKind::InvalidPath, message)
    };
    let (old, new) = (&root.path(&asked.path)?, &root.path(&asked.new_path)?);
    let (old_at, new_at) = (root.settled(old)?, root.settled(new)?);
    let (old_parent, old_name) = old_at.split().ok_or_else(|| nameless(old))?;
    let (new_parent, new_name) = new_at.split().ok_or_else(|| nameless(new))?;
    let itself = || {
        let message = format!("`{old}` cannot be moved into itself");
        FileError::new(FileErrorKind::InvalidPath, message)
    };
    // Checked before a folder is made for the new path; links are checked by the kernel.
    if new_at.as_str().strip_prefix(old_at.as_str()).is_some_and(|rest| rest.starts_with('/')) {
        return Err(itself());
    }
    let from = root.dir().open_dir(old_parent).map_err(|error| failed(&error, old))?;
    from.symlink_metadata(old_name).map_err(|error| failed(&error, old))?;
    make_all(root, new_parent).map_err(|error| failed(&error, new))?;
    let to = root.dir().open_dir(new_parent).map_err(|error| failed(&error, new))?;
    let flags = if asked.overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match renameat_with(&from, old_name, &to, new_name, flags) {
        Err(Errno::EXIST) => {
            return Err(FileError::new(FileErrorKind::Exists, format!("`{new}` exists")));
        }
        Err(Errno::INVAL) => return Err(itself()),
        renamed => renamed.map_err(|errno| failed(&errno.into(), new))?,
    }
    sync(&to).and_then(|()| sync(&from)).map_err(|error| failed(&error, new))?;
    Ok(Renamed)
}
