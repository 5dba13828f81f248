//! Capability-style folder access: the vault's folder is only ever reached through a handle on it.
//!
//! Every name is opened relative to the handle of its folder, and no symbolic link is followed
//! (`O_NOFOLLOW` at each step): whatever is renamed or linked meanwhile, nothing outside is
//! reached.

mod quota;
mod walk;
mod write;

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata};
use hivekeep_file_engine::{FileVersion, open_file};
use hivekeep_kernel::Room;
use hivekeep_runtime::documents::Changed;
use tokio::sync::broadcast;

use crate::path::{NotePath, PathRules, note_uri};
use crate::{Error, Options};

pub(crate) use walk::{WalkEntry, WalkEntryKind, WalkParams};
pub(crate) use write::WritePrecondition;

/// Staging folder in the root, where notes are written before they are moved into place. Made by
/// the first write; the next start removes it with what a crash left in it.
pub(crate) const STAGING: &str = ".hivekeep";

/// Folder of the vault.
pub(crate) struct VaultFolder {
    root: Dir,
    pub(crate) rules: PathRules,
    pub(crate) max_note_bytes: u64,
    quota: quota::Quota,
    /// Write-locked while a folder is made: nobody uses a folder whose name is not durable yet.
    making: RwLock<()>,
    /// Free-space check at the folder, once the actor uses it.
    pub(crate) room: Option<(Room, PathBuf)>,
    /// Publishes every change of a note made here.
    pub(crate) changes: broadcast::Sender<Changed>,
}

impl VaultFolder {
    /// Opens the folder; the default one in the state directory is made.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn open(
        options: &Options,
        path: &Path,
        changes: broadcast::Sender<Changed>,
    ) -> Result<Self, Error> {
        let unavailable = |source| Error::Unavailable { path: path.display().to_string(), source };
        if options.path.is_none() {
            // Notes in the folder are only as durable as its own name.
            hivekeep_fs::make_folder(path, 0o777).map_err(unavailable)?;
        }
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(unavailable)?;
        // Checks now, and not at the first call, that the folder can be searched.
        root.entries().map_err(unavailable)?;
        let (rules, quota) =
            (PathRules::of(options), quota::Quota::new(options.max_total_mb << 20));
        let max_note_bytes = options.max_note_bytes();
        let making = RwLock::default();
        Ok(Self { root, rules, max_note_bytes, quota, making, room: None, changes })
    }

    /// Adds a check that refuses writes while there is too little room at `place`.
    pub(crate) fn with_room(self, room: Room, place: &Path) -> Self {
        Self { room: Some((room, place.to_owned())), ..self }
    }

    /// Publishes that a file changed, and whether it was added or removed.
    fn publish(&self, path: &NotePath, listed: bool) {
        if self.rules.admit_note(path).is_ok() {
            // An error means that nobody listens.
            let _ = self.changes.send(Changed { uri: note_uri(path.as_str()), listed });
        }
    }

    /// Opens a folder below the root.
    pub(crate) fn dir(&self, path: &NotePath) -> Result<Dir, Error> {
        let io = |source| path_error(path, source);
        let mut dir = self.root.try_clone().map_err(io)?;
        for name in path.names() {
            dir =
                dir.open_dir_nofollow(name).map_err(|source| match dir.symlink_metadata(name) {
                    Ok(found) if !found.is_dir() => wrong_kind(path, &found),
                    _ => path_error(path, source),
                })?;
        }
        Ok(dir)
    }

    /// Opens the parent folder of a note, and returns it with the note's name.
    pub(crate) fn parent_of<'p>(&self, path: &'p NotePath) -> Result<(Dir, &'p str), Error> {
        let (folder, name) = path.split().ok_or_else(|| Error::WrongKind {
            path: path.to_string(),
            found: "the vault itself",
        })?;
        match self.dir(&folder) {
            Ok(dir) => Ok((dir, name)),
            Err(Error::NotFound { .. }) => Err(Error::NotFound { path: path.to_string() }),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole file, and tells its version.
    pub(crate) fn read(&self, path: &NotePath) -> Result<(Vec<u8>, FileVersion), Error> {
        let (dir, name) = self.parent_of(path)?;
        let mut bytes = Vec::new();
        let version = read_at(&dir, name, path, self.max_note_bytes, &mut bytes)?;
        Ok((bytes, version))
    }

    /// Metadata of the file at a path, if there is one.
    pub(crate) fn look(&self, path: &NotePath) -> Result<Option<Metadata>, Error> {
        match self.parent_of(path) {
            Ok((dir, name)) => look_at(&dir, name, path),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file in a folder into `bytes`, which is cleared first.
pub(crate) fn read_at(
    dir: &Dir,
    name: &str,
    path: &NotePath,
    most: u64,
    bytes: &mut Vec<u8>,
) -> Result<FileVersion, Error> {
    bytes.clear();
    let (file, metadata) = match open_file(dir, name) {
        Ok(Some(opened)) => opened,
        refused => {
            look_at(dir, name, path)?;
            let gone = || ErrorKind::NotFound.into();
            return Err(path_error(path, refused.err().unwrap_or_else(gone)));
        }
    };
    let too_large = |bytes| Error::TooLarge { path: path.to_string(), bytes, most };
    let size = metadata.len();
    if size > most {
        return Err(too_large(size));
    }
    // Room for one byte more than expected shows the end without another system call.
    bytes.reserve(usize::try_from(size).unwrap_or(0) + 1);
    file.take(most + 1).read_to_end(bytes).map_err(|source| path_error(path, source))?;
    match bytes.len() as u64 {
        grown if grown > most => Err(too_large(grown)),
        _ => Ok(FileVersion::of(&metadata)),
    }
}

/// Metadata of a file, if there is one. Anything but a regular file is refused.
fn look_at(dir: &Dir, name: &str, path: &NotePath) -> Result<Option<Metadata>, Error> {
    match dir.symlink_metadata(name) {
        Ok(found) if found.is_file() => Ok(Some(found)),
        Ok(found) => Err(wrong_kind(path, &found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(path_error(path, error)),
    }
}

fn wrong_kind(path: &NotePath, found: &Metadata) -> Error {
    let found = match found.file_type() {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "neither a note nor a folder",
    };
    Error::WrongKind { path: path.to_string(), found }
}

/// Converts a system error at a path.
fn path_error(path: &NotePath, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::NotFound => Error::NotFound { path: path.to_string() },
        _ => Error::Io { action: format!("`{path}`"), source },
    }
}

/// Describes for people whether the folder can be used. Makes nothing.
pub(crate) fn look(options: &Options, path: &Path) -> Result<String, Error> {
    if !options.enabled {
        return Err(Error::Disabled);
    }
    let shown = path.display();
    if options.path.is_none() && !path.exists() {
        return Ok(format!("{shown} will be made"));
    }
    let unavailable = |source| Error::Unavailable { path: shown.to_string(), source };
    let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(unavailable)?;
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(path, access).map_err(|errno| unavailable(errno.into()))?;
    dir.entries().map_err(unavailable)?;
    Ok(shown.to_string())
}
