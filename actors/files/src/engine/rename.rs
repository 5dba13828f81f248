//! Renaming within a place, in one step.

use hivekeep_kernel::{Layer, ToolError};
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{
    failed,
    folders::{make_all, sync},
};
use crate::{codes, place_path::PlacePath, places::Place};

/// Renames what a path names, a link itself. A file that is there is replaced only with `overwrite`.
///
/// # Errors
/// `file_exists`, `invalid_path` for a path without a name of its own, and as [`failed`].
pub(crate) fn rename(
    place: &Place,
    old: &PlacePath,
    new: &PlacePath,
    overwrite: bool,
) -> Result<(), ToolError> {
    let root = place.writable()?;
    let nameless = |path: &PlacePath| {
        let message = format!("`{path}` has no name of its own that could be changed");
        ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
    };
    let (old_parent, old_name) = old.split().ok_or_else(|| nameless(old))?;
    let (new_parent, new_name) = new.split().ok_or_else(|| nameless(new))?;
    let itself = || {
        let message = format!("`{old}` cannot be moved into itself");
        ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
    };
    // Before a folder is made for it; links are the kernel's to judge.
    if new.as_str().strip_prefix(old.as_str()).is_some_and(|rest| rest.starts_with('/')) {
        return Err(itself());
    }
    let from = root.open_dir(old_parent).map_err(|error| failed(&error, old))?;
    from.symlink_metadata(old_name).map_err(|error| failed(&error, old))?;
    make_all(root, new_parent).map_err(|error| failed(&error, new))?;
    let to = root.open_dir(new_parent).map_err(|error| failed(&error, new))?;
    let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match renameat_with(&from, old_name, &to, new_name, flags) {
        Err(Errno::EXIST) => {
            let message = format!("`{new}` exists");
            return Err(ToolError::new(Layer::Actor, codes::FILE_EXISTS, message)
                .next("set `overwrite` to replace it, or choose another path"));
        }
        Err(Errno::INVAL) => return Err(itself()),
        renamed => renamed.map_err(|errno| failed(&errno.into(), new))?,
    }
    sync(&to).and_then(|()| sync(&from)).map_err(|error| failed(&error, new))
}
