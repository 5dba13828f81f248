//! Making folders, and having their entries on the disk.

use std::{io, os::fd::OwnedFd};

use cap_fs_ext::DirExt as _;
use cap_std::fs::{Dir, MetadataExt as _};
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
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

/// Like [`make_folder`], for the folder of a file.
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
            let (folder, name) = prefix.rsplit_once('/').unwrap_or((".", prefix));
            let folder = root.open_dir(folder)?;
            give(in_root, &folder, name)?;
            sync(&folder)?;
        }
    }
    if root.metadata(path)?.is_dir() { Ok(made) } else { Err(Errno::NOTDIR.into()) }
}

/// Gives a folder that was just made to the root's owner. Who may write to the folder around it may have put
/// another in its place by now: one with something in it, or that is not the process's, is nobody's to give.
fn give(root: &FileRoot, folder: &Dir, name: &str) -> io::Result<()> {
    let made = folder.open_dir_nofollow(name)?;
    let is_ours = made.dir_metadata()?.uid() == geteuid().as_raw();
    if is_ours && made.entries()?.next().is_none() {
        root.give(opened(&made)?)?;
    }
    Ok(())
}

/// Has the names in a folder written to the disk. A handle for resolving paths cannot do it itself.
pub(crate) fn sync(folder: &Dir) -> io::Result<()> {
    Ok(fsync(opened(folder)?)?)
}

fn opened(folder: &Dir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(folder, ".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uid of nobody on this host.
    const FOLK: u32 = 64_781;

    #[test]
    fn only_what_was_just_made_is_given_away() {
        if !geteuid().is_root() {
            return hivekeep_skip::skip("only root gives files away");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(folder.path(), Some(FOLK), Some(FOLK)).expect("given");
        let root = FileRoot::folder(folder.path()).expect("opened");
        let uid = |name: &str| root.dir().symlink_metadata(name).expect("there").uid();
        assert!(make_all(&root, "made/deep").expect("made"));
        assert_eq!((uid("made"), uid("made/deep")), (FOLK, FOLK));
        // Replaced meanwhile by a folder of another owner that has content, or by a link to it.
        std::fs::create_dir_all(folder.path().join("of-root/inner")).expect("made");
        std::os::unix::fs::symlink("of-root", folder.path().join("link")).expect("linked");
        give(&root, root.dir(), "of-root").expect("left alone");
        give(&root, root.dir(), "link").expect_err("a link is not followed");
        assert_eq!(uid("of-root"), 0);
    }
}
