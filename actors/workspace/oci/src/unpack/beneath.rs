//! Folders of a tree, opened by the kernel with the tree as their root.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use hivekeep_fs::remove_tree;
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2,
        readlinkat, statat, unlinkat,
    },
    io::Errno,
};

use crate::limits::{DEPTH, TREE_PATH_BYTES};

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
