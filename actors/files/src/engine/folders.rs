//! Making folders, and having their entries on the disk.

use std::io;

use cap_std::fs::Dir;
use hivekeep_kernel::ToolError;
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;

use super::failed;
use crate::place_path::PlacePath;

/// Makes a folder and those that it is in; each that was made is on the disk. One that exists is left as
/// it is.
///
/// # Errors
/// As [`failed`].
pub(crate) fn make(root: &Dir, path: &PlacePath) -> Result<(), ToolError> {
    make_all(root, path.as_str()).map_err(|error| failed(&error, path))
}

/// As [`make`], for the folder of a file.
pub(crate) fn make_all(root: &Dir, path: &str) -> io::Result<()> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for prefix in ends.map(|end| &path[..end]).filter(|prefix| !prefix.is_empty()) {
        match root.create_dir(prefix) {
            Ok(()) => sync(&parent(root, prefix)?)?,
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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fsync(openat(folder, ".", flags, Mode::empty())?)?)
}
