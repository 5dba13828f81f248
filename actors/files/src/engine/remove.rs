//! Deleting a file, a link, or a folder, with everything in it if asked.

use std::{os::fd::AsRawFd, path::Path};

use hivekeep_kernel::{Layer, ToolError};

use super::{failed, folders::sync};
use crate::{codes, place_path::PlacePath, places::Place};

/// Deletes what the path names; a link itself, not what it leads to.
///
/// # Errors
/// `folder_not_empty` without `recursive`, and as [`failed`]. After an error of a recursive one, what could
/// be deleted is gone.
pub(crate) fn remove(place: &Place, path: &PlacePath, recursive: bool) -> Result<(), ToolError> {
    let io = |error| failed(&error, path);
    let root = place.changeable()?;
    let Some((parent, name)) = path.split() else {
        let message = format!("`{path}` has no name of its own that could be deleted");
        return Err(ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
            .next("name the folder by its own name; the root stays"));
    };
    let folder = root.open_dir(parent).map_err(io)?;
    let metadata = folder.symlink_metadata(name).map_err(io)?;
    if !metadata.is_dir() {
        folder.remove_file(name).map_err(io)?;
    } else if recursive {
        // The handle's own name leads to the folder, wherever it has been moved.
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        hivekeep_trees::remove_tree(&Path::new(&handle).join(name)).map_err(io)?;
    } else {
        folder.remove_dir(name).map_err(io)?;
    }
    sync(&folder).map_err(io)
}
