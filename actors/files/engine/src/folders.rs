//! Folders and the names in them: made, listed a page at a time, renamed in one step, deleted; what was
//! changed is on the disk.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use cap_fs_ext::DirExt as _;
use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use rustix::{
    fs::{Mode, OFlags, RenameFlags, fsync, openat, renameat_with},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, PlacePath, error::failed, walk::MAX_SHOWN_BYTES};

/// Makes a folder and those that it is in; each that was made is on the disk. One that exists is left as
/// it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeFolder {
    /// Path of the folder, as [`PlacePath`] parses it; links are followed.
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
            sync_folder(&folder)?;
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
///
/// # Errors
/// As open(2) and fsync(2).
pub fn sync_folder(folder: &Dir) -> io::Result<()> {
    Ok(fsync(opened(folder)?)?)
}

fn opened(folder: &Dir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(folder, ".", flags, Mode::empty())?)
}

/// Lists the first names after one. Holds one page, however large the folder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNames {
    /// Path of the folder, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Name after which the page begins.
    pub after: Option<String>,
    /// Number of names on the page, at most.
    pub limit: usize,
}

/// Entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListEntry {
    /// File of a size in bytes.
    File(u64),
    /// Folder, whose size is not told.
    Folder,
    /// Link, whose own size is this.
    Link(u64),
    /// Device, pipe or socket.
    Other,
}

/// Page of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPage {
    /// Entries by name; bytes that are not UTF-8 are replaced.
    pub entries: BTreeMap<String, ListEntry>,
    /// Number of all entries of the folder.
    pub total: u64,
    /// True if there are more after the last.
    pub more: bool,
}

impl FolderPage {
    /// Last name of a page that is not the last one.
    pub fn next(&self) -> Option<&str> {
        self.entries.last_key_value().filter(|_| self.more).map(|(name, _)| name.as_str())
    }
}

/// Folder that was looked at: one page of it.
#[derive(Debug)]
pub struct ListedFolder {
    /// Entries by name; bytes that are not UTF-8 are replaced.
    pub entries: BTreeMap<String, Metadata>,
    /// Number of all names that were looked at.
    pub total: u64,
    /// True if there are more after the last.
    pub more: bool,
    /// True if there are more than are looked at.
    pub more_than_counted: bool,
}

/// # Errors
/// As [`failed`].
pub(crate) fn list(root: &FileRoot, asked: &ListNames) -> Result<FolderPage, FileError> {
    // A name and its entry count as 256 bytes of an answer; a page that would be larger is cut there.
    let limit = asked.limit.min(MAX_SHOWN_BYTES / 256);
    let after = asked.after.as_deref();
    let ListedFolder { entries, total, more, .. } =
        list_folder(root, &root.path(&asked.path)?, after, limit, u64::MAX)?;
    let entries = entries.into_iter().map(|(name, metadata)| (name, row(&metadata))).collect();
    Ok(FolderPage { entries, total, more })
}

fn row(metadata: &Metadata) -> ListEntry {
    match metadata.file_type() {
        kind if kind.is_file() => ListEntry::File(metadata.len()),
        kind if kind.is_dir() => ListEntry::Folder,
        kind if kind.is_symlink() => ListEntry::Link(metadata.len()),
        _ => ListEntry::Other,
    }
}

/// Lists a page of a folder, as [`ListNames`] does, with everything that is known of each entry. Looks at no
/// more names than `most_names`.
///
/// # Errors
/// Those of a path.
pub fn list_folder(
    root: &FileRoot,
    path: &PlacePath,
    after: Option<&str>,
    limit: usize,
    most_names: u64,
) -> Result<ListedFolder, FileError> {
    let io = |error| failed(&error, path);
    let folder = root.dir().open_dir(root.followed(path)?.as_str()).map_err(io)?;
    let (mut entries, mut total, mut more) = (BTreeMap::new(), 0, false);
    for entry in folder.entries().map_err(io)? {
        let entry = entry.map_err(io)?;
        if total == most_names {
            return Ok(ListedFolder { entries, total, more, more_than_counted: true });
        }
        total += 1;
        let name = entry.file_name().to_string_lossy().into_owned();
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        let last = entries.last_key_value().filter(|_| entries.len() >= limit);
        if last.is_some_and(|(last, _): (&String, &Metadata)| &name > last) {
            more = true;
            continue;
        }
        // An entry that was removed meanwhile is not listed.
        let Ok(metadata) = entry.metadata() else { continue };
        entries.insert(name, metadata);
        if entries.len() > limit {
            entries.pop_last();
            more = true;
        }
    }
    Ok(ListedFolder { entries, total, more, more_than_counted: false })
}

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
    sync_folder(&to).and_then(|()| sync_folder(&from)).map_err(|error| failed(&error, new))?;
    Ok(Renamed)
}

/// Deletes what a path names; a link itself, not what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePath {
    /// Path, as [`PlacePath`] parses it; the root itself is refused.
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
    sync_folder(&folder).map_err(io)?;
    Ok(PathRemoved)
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
