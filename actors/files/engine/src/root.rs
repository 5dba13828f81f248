//! Root of operations: the handle of a folder, and where paths beneath it lead.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, MetadataExt as _},
};
use rustix::{
    fs::{Gid, Uid, fchown},
    io::Errno,
    process::{getegid, geteuid},
};
use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, PlacePath, error::failed};

/// Links that one path may pass, as in the kernel.
const MOST_LINKS: usize = 40;

/// Folder that operations work beneath.
#[derive(Debug)]
pub struct FileRoot {
    dir: Dir,
    /// Folder that relative paths begin at, where the root is the whole system of a guest.
    home: Option<PlacePath>,
    /// User and group that what is made here belongs to, where that is not the process's own.
    owner: Option<(Uid, Gid)>,
    /// Held while a file is compared with what was read of it and replaced; never across an await.
    pub(crate) replacing: Arc<Mutex<()>>,
}

impl FileRoot {
    /// Opens a folder that no path and no link leaves. What is made in it belongs to its owner, as far as
    /// the process may give it away.
    ///
    /// # Errors
    /// As open(2).
    pub fn folder(folder: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(folder, ambient_authority())?;
        let folder = dir.dir_metadata()?;
        let (uid, gid) = (Uid::from_raw(folder.uid()), Gid::from_raw(folder.gid()));
        let another = geteuid().is_root() && (uid, gid) != (geteuid(), getegid());
        Ok(Self { owner: another.then_some((uid, gid)), ..Self::opened(dir) })
    }

    /// Takes a folder that is open already. What is made in it belongs to the process's user.
    pub fn opened(dir: Dir) -> Self {
        Self { dir, home: None, owner: None, replacing: Arc::default() }
    }

    /// Opens `/` of a guest, where there is nothing to leave: relative paths begin at the absolute path
    /// `home`, and absolute links are followed.
    ///
    /// # Errors
    /// As open(2).
    pub fn system(home: &str) -> Result<Self, FileError> {
        let slash = Path::new("/");
        let dir = Dir::open_ambient_dir(slash, ambient_authority());
        let dir = dir.map_err(|error| failed(&error, slash.display()))?;
        let home = PlacePath::in_system("/", home)?;
        Ok(Self { dir, home: Some(home), owner: None, replacing: Arc::default() })
    }

    /// The same `/` of a guest, where relative paths begin at another absolute path.
    ///
    /// # Errors
    /// `InvalidPath`, `Failed`.
    pub fn at(&self, home: &str) -> Result<Self, FileError> {
        let home = PlacePath::in_system("/", home)?;
        let dir = self.dir.try_clone().map_err(|error| failed(&error, &home))?;
        Ok(Self { dir, home: Some(home), owner: None, replacing: self.replacing.clone() })
    }

    /// Parses a path of an operation.
    ///
    /// # Errors
    /// As [`PlacePath::parse`].
    pub(crate) fn path(&self, text: &str) -> Result<PlacePath, FileError> {
        match &self.home {
            Some(home) => PlacePath::in_system(&home.to_string(), text),
            None => PlacePath::parse(text),
        }
    }

    /// Whether the root is the `/` of a guest.
    pub(crate) fn is_system(&self) -> bool {
        self.home.is_some()
    }

    /// Gives what was just made to the root's owner.
    ///
    /// # Errors
    /// As fchown(2).
    pub(crate) fn give(&self, made: impl AsFd) -> io::Result<()> {
        match self.owner {
            Some((uid, gid)) => Ok(fchown(made, Some(uid), Some(gid))?),
            None => Ok(()),
        }
    }

    /// Handle of the folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The path with every link on its way resolved that the handle's own resolver refuses: in a guest
    /// those are absolute ones. A link exchanged meanwhile leads no further than the handle.
    ///
    /// # Errors
    /// `NotFound`, and as realpath(3).
    pub(crate) fn followed(&self, path: &PlacePath) -> Result<PlacePath, FileError> {
        if self.home.is_none() {
            return Ok(path.clone());
        }
        let real = path.in_root().canonicalize().map_err(|error| failed(&error, path))?;
        of_system(&real, path)
    }

    /// Like [`Self::followed`] for the folder that a path is in, as far as that exists; the last component
    /// is not resolved.
    ///
    /// # Errors
    /// As realpath(3).
    pub(crate) fn settled(&self, path: &PlacePath) -> Result<PlacePath, FileError> {
        let (Some(_), Some((parent, name))) = (&self.home, path.split()) else {
            return Ok(path.clone());
        };
        let mut known = Path::new("/").join(parent);
        let mut rest = vec![name.into()];
        let mut real = loop {
            match known.canonicalize() {
                Ok(real) => break real,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let Some(name) = known.file_name() else { return Err(failed(&error, path)) };
                    rest.push(name.to_owned());
                    known.pop();
                }
                Err(error) => return Err(failed(&error, path)),
            }
        };
        real.extend(rest.iter().rev());
        of_system(&real, path)
    }

    /// Follows links at the end of a path: what is written is the file that they lead to.
    pub(crate) fn target(&self, path: &PlacePath) -> Result<PlacePath, FileError> {
        let mut path = self.settled(path)?;
        for _ in 0..MOST_LINKS {
            match self.dir().symlink_metadata(path.as_str()) {
                Ok(metadata) if metadata.is_symlink() => {
                    let link = self.dir().read_link_contents(path.as_str());
                    let target = link.map_err(|error| failed(&error, &path))?;
                    let Some(target) = target.to_str() else {
                        let message = format!("`{path}` is a link to a name that is not UTF-8");
                        return Err(FileError::new(FileErrorKind::InvalidPath, message));
                    };
                    path = self.settled(&path.linked(target)?)?;
                }
                _ => return Ok(path),
            }
        }
        Err(failed(&Errno::LOOP.into(), path))
    }
}

fn of_system(real: &Path, path: &PlacePath) -> Result<PlacePath, FileError> {
    PlacePath::in_system("/", text_of(real, path)?)
}

fn text_of<'r>(real: &'r Path, path: &PlacePath) -> Result<&'r str, FileError> {
    real.to_str().ok_or_else(|| {
        let message = format!("`{path}` passes a link to a name that is not UTF-8");
        FileError::new(FileErrorKind::InvalidPath, message)
    })
}

/// Resolves the links of a path, as far as it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvePath {
    /// Path, as [`PlacePath`] parses it; its end may be missing.
    pub path: String,
}

/// Path without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedPath {
    /// From the root.
    pub path: String,
}

/// # Errors
/// `Outside`, and as [`failed`].
pub(crate) fn resolve(root: &FileRoot, asked: &ResolvePath) -> Result<ResolvedPath, FileError> {
    let path = root.path(&asked.path)?;
    let file = root.target(&path)?;
    let (Some((parent, name)), false) = (file.split(), root.is_system()) else {
        return Ok(ResolvedPath { path: file.to_string() });
    };
    let real = beneath(root.dir(), parent, name).map_err(|error| failed(&error, &path))?;
    Ok(ResolvedPath { path: PlacePath::parse(text_of(&real, &path)?)?.to_string() })
}

/// Real path of a name in a folder of the root, whose missing end is kept as it is.
fn beneath(root: &Dir, parent: &str, name: &str) -> io::Result<PathBuf> {
    let mut rest = vec![OsString::from(name)];
    let mut known = Path::new(parent);
    let folder = loop {
        match root.open_dir(if known == Path::new("") { Path::new(".") } else { known }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(above), Some(name)) = (known.parent(), known.file_name()) else {
                    return Err(error);
                };
                rest.push(name.to_owned());
                known = above;
            }
            opened => break opened?,
        }
    };
    // The kernel tells where a handle is.
    let at = |folder: &Dir| std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let (top, at) = (at(root)?, at(&folder)?);
    let mut real = at.strip_prefix(top).map_err(io::Error::other)?.to_owned();
    real.extend(rest.iter().rev());
    Ok(real)
}
