//! Folders of a tree, opened by the kernel with the tree as their root, and attributes that are put on what was
//! made there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use hivekeep_fs::remove_tree;
use hivekeep_image::FileOwner;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT,
    Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens, mkdirat, openat, openat2,
    readlinkat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::options::{DEPTH, TREE_PATH_BYTES};

/// Number of times that a lookup is repeated when the kernel asks for it.
const TRIES: u32 = 16;

/// Tree that nothing leads out of.
pub(super) struct Beneath {
    root: OwnedFd,
    /// Path of the root, as /proc shows it.
    place: Vec<u8>,
}

/// Open folder of the tree.
pub(super) struct TreeFolder {
    pub(super) handle: OwnedFd,
    /// Path from the root without links; empty for the root.
    pub(super) path: String,
}

impl TreeFolder {
    /// Path of a name in it.
    pub(super) fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    /// Type of what has this name in it; `None` if nothing has.
    pub(super) fn kind(&self, name: &str) -> io::Result<Option<FileType>> {
        match statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what has this name, a folder with all that is in it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let here = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
                remove_tree(&PathBuf::from(here).join(name))
            }
            removed => Ok(removed?),
        }
    }

    /// Names in it with their types.
    pub(super) fn names(&self) -> io::Result<Vec<(String, FileType)>> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.handle, ".", how, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_str().map_err(io::Error::other)?;
            if name != "." && name != ".." {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(names)
    }
}

impl Beneath {
    pub(super) fn open(tree: &Path) -> io::Result<Self> {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, tree, how, Mode::empty())?;
        let place = place_of(&root)?;
        Ok(Self { root, place })
    }

    /// Opens a folder; links on the way lead to where they lead in the tree.
    pub(super) fn folder(&self, path: &str) -> io::Result<TreeFolder> {
        let handle = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty())?;
        let place = place_of(&handle)?;
        let below = place.strip_prefix(self.place.as_slice()).ok_or(io::ErrorKind::NotFound)?;
        let path = std::str::from_utf8(below).map_err(io::Error::other)?.trim_start_matches('/');
        if path.len() > TREE_PATH_BYTES || path.split('/').count() > DEPTH {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        Ok(TreeFolder { handle, path: path.to_owned() })
    }

    /// Opens a folder, making what is missing of it. `made` gets the path of each folder that was made.
    pub(super) fn make_folder(
        &self,
        path: &str,
        made: &mut dyn FnMut(String),
    ) -> io::Result<TreeFolder> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_empty() => {}
            opened => return opened,
        }
        let (above, name) = split(path);
        let above = self.make_folder(above, made)?;
        mkdirat(&above.handle, name, Mode::RWXU)?;
        made(above.below(name));
        self.folder(path)
    }

    /// Opens the file or folder at a path without links, for changes of its attributes.
    pub(super) fn exact_folder(&self, path: &str) -> io::Result<File> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, how, ResolveFlags::NO_SYMLINKS).map(File::from)
    }

    fn resolve(&self, path: &str, how: OFlags, more: ResolveFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let resolve =
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | more;
        for _ in 0..TRIES {
            match openat2(&self.root, path, how | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                opened => return Ok(opened?),
            }
        }
        Err(Errno::AGAIN.into())
    }
}

/// Folder and name of a path that is not empty.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn place_of(handle: &OwnedFd) -> io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(readlinkat(CWD, link, Vec::new())?.into_bytes())
}

/// Attribute with the capabilities of a program.
const CAPABILITY: &str = "security.capability";
/// Prefix of the attributes that overlayfs gives a meaning.
const OVERLAY: &str = "user.overlay.";

/// Attributes of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntryMeta {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

impl EntryMeta {
    /// Owner and capability that the store keeps beside the file; `None` for what is plainly root's.
    pub(super) fn owner(&self) -> Option<FileOwner> {
        let capability = self.xattrs.iter().find(|(name, _)| name == CAPABILITY);
        let capability = capability
            .map(|(_, value)| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let owner = FileOwner { uid: self.uid, gid: self.gid, capability };
        (owner != FileOwner::default()).then_some(owner)
    }

    /// Puts the attributes on an open file or folder. Only root can give files away and set capabilities; for
    /// others they are kept in the list of owners.
    ///
    /// Returns how many attributes were left out.
    pub(super) fn put_on(&self, file: &File, is_root: bool) -> io::Result<u64> {
        if is_root {
            fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        // After chown(2), which takes the set-user-id bits away.
        fchmod(file, Mode::from_raw_mode(self.mode))?;
        let mut left_out = 0;
        for (name, value) in &self.xattrs {
            let capability = name == CAPABILITY;
            let users = name.starts_with("user.") && !name.starts_with(OVERLAY);
            if capability && !is_root {
                continue;
            }
            if !capability && !users {
                left_out += 1;
                continue;
            }
            match fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
                // The file system of the store has none.
                Err(Errno::NOTSUP) if users => left_out += 1,
                set => set?,
            }
        }
        futimens(file, &times(self.modified))?;
        Ok(left_out)
    }

    /// Puts the attributes on a link itself.
    pub(super) fn put_on_link(&self, at: &OwnedFd, name: &str, is_root: bool) -> io::Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if is_root {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            chownat(at.as_fd(), name, Some(uid), Some(gid), nofollow)?;
        }
        Ok(utimensat(at.as_fd(), name, &times(self.modified), nofollow)?)
    }
}

fn times((tv_sec, tv_nsec): (i64, i64)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    }
}
