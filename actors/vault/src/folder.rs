//! Capability-style folder access: the vault's folder is only ever reached through a handle on it.
//!
//! Every name is opened relative to the handle of its folder, and no symbolic link is followed
//! (`O_NOFOLLOW` at each step): whatever is renamed or linked meanwhile, nothing outside is
//! reached.

mod quota;
mod walk;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::SystemTime;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use hivekeep_kernel::Room;
use hivekeep_runtime::documents::Changed;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
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

/// Version stamp that tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    size: i64,
    changed: (i64, u64),
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Self { inode: stat.st_ino, size: stat.st_size, changed }
    }

    /// Numbers that make up the stamp.
    pub(crate) fn numbers(self) -> [i64; 4] {
        let (secs, nanos) = self.changed;
        [self.inode as i64, self.size, secs, nanos as i64]
    }
}

/// Contents of a file with its stamp.
pub(crate) struct FileContents {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: FileStamp,
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
            dir = dir.open_dir_nofollow(name).map_err(|source| {
                let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
                match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                    Ok(FileType::Directory) | Err(_) => path_error(path, source),
                    Ok(kind) => Error::WrongKind { path: path.to_string(), found: word(kind) },
                }
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

    /// Reads a whole file.
    pub(crate) fn read(&self, path: &NotePath) -> Result<FileContents, Error> {
        let (dir, name) = self.parent_of(path)?;
        let mut bytes = Vec::new();
        let stamp = read_at(&dir, name, path, self.max_note_bytes, &mut bytes)?;
        Ok(FileContents { bytes, stamp })
    }

    /// Metadata of the file at a path, if there is one.
    pub(crate) fn look(&self, path: &NotePath) -> Result<Option<Stat>, Error> {
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
) -> Result<FileStamp, Error> {
    bytes.clear();
    // Non-blocking: a file named like a note may be a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags | OFlags::NOCTTY, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => {
            return Err(Error::WrongKind { path: path.to_string(), found: "a symbolic link" });
        }
        Err(errno) => return Err(path_error(path, errno.into())),
    };
    let stat = fstat(&file).map_err(|errno| path_error(path, errno.into()))?;
    regular(&stat, path)?;
    let too_large = |bytes| Error::TooLarge { path: path.to_string(), bytes, most };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > most {
        return Err(too_large(size));
    }
    // Room for one byte more than expected shows the end without another system call.
    bytes.reserve(usize::try_from(size).unwrap_or(0) + 1);
    file.take(most + 1).read_to_end(bytes).map_err(|source| path_error(path, source))?;
    match bytes.len() as u64 {
        grown if grown > most => Err(too_large(grown)),
        _ => Ok(FileStamp::of(&stat)),
    }
}

/// Metadata of a file, if there is one. Anything but a regular file is refused.
fn look_at(dir: &Dir, name: &str, path: &NotePath) -> Result<Option<Stat>, Error> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => regular(&stat, path).map(|()| Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(path_error(path, errno.into())),
    }
}

fn regular(stat: &Stat, path: &NotePath) -> Result<(), Error> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        kind => Err(Error::WrongKind { path: path.to_string(), found: word(kind) }),
    }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        _ => "neither a note nor a folder",
    }
}

/// Converts a system error at a path.
fn path_error(path: &NotePath, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: path.to_string() },
        _ => Error::Io { action: format!("`{path}`"), source },
    }
}

/// Time of the last change of a file's contents.
pub(crate) fn modified(stat: &Stat) -> SystemTime {
    let secs = u64::try_from(stat.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + std::time::Duration::new(secs, stat.st_mtime_nsec as u32)
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
