//! The folder, only ever reached through a handle on it.
//!
//! Every name is opened in the handle of the folder it is in, and no symbolic link is followed
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

use crate::path::{NotePath, Rules};
use crate::uri::uri;
use crate::{Error, Options};

pub(crate) use walk::{Item, Kind, Walk};
pub(crate) use write::Expect;

/// The folder in the root where notes are written before they are moved to their places. Made by
/// the first write, removed with what a crash left in it by the next start.
pub(crate) const STAGING: &str = ".hivekeep";

/// The vault's folder.
pub(crate) struct Folder {
    root: Dir,
    pub(crate) rules: Rules,
    pub(crate) max_note_bytes: u64,
    quota: quota::Quota,
    /// Held to be written while a folder is made: nobody uses one whose name is not durable yet.
    making: RwLock<()>,
    /// Free space where it is, once it is the keeper's.
    pub(crate) room: Option<(Room, PathBuf)>,
    /// Hears of every note that is changed here.
    pub(crate) changes: broadcast::Sender<Changed>,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: i64,
    changed: (i64, u64),
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Self { inode: stat.st_ino, size: stat.st_size, changed }
    }

    /// All that tells it from another.
    pub(crate) fn numbers(self) -> [i64; 4] {
        let (secs, nanos) = self.changed;
        [self.inode as i64, self.size, secs, nanos as i64]
    }
}

/// A file as it was read.
pub(crate) struct Contents {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Stamp,
}

impl Folder {
    /// Opens the folder; the one in the state directory is made.
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
            std::fs::create_dir_all(path).map_err(unavailable)?;
            // The notes in it are as durable as its own name.
            let above = path.parent().map_or(Ok(()), |above| File::open(above)?.sync_all());
            above.map_err(unavailable)?;
        }
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(unavailable)?;
        // That it can be searched is seen now and not at the first call.
        root.entries().map_err(unavailable)?;
        let (rules, quota) = (Rules::of(options), quota::Quota::new(options.max_total_mb << 20));
        let max_note_bytes = options.max_note_bytes();
        let making = RwLock::default();
        Ok(Self { root, rules, max_note_bytes, quota, making, room: None, changes })
    }

    /// The same, that writes nothing while there is too little room at `place`.
    pub(crate) fn with_room(self, room: Room, place: &Path) -> Self {
        Self { room: Some((room, place.to_owned())), ..self }
    }

    /// Says that a file is another one, and whether it came or went.
    fn tell(&self, path: &NotePath, listed: bool) {
        if self.rules.admit_note(path).is_ok() {
            // Nobody may be listening.
            let _ = self.changes.send(Changed { uri: uri(path.as_str()), listed });
        }
    }

    /// A folder in it.
    pub(crate) fn dir(&self, path: &NotePath) -> Result<Dir, Error> {
        let io = |source| told(path, source);
        let mut dir = self.root.try_clone().map_err(io)?;
        for name in path.names() {
            dir = dir.open_dir_nofollow(name).map_err(|source| {
                let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
                match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                    Ok(FileType::Directory) | Err(_) => told(path, source),
                    Ok(kind) => Error::WrongKind { path: path.to_string(), found: word(kind) },
                }
            })?;
        }
        Ok(dir)
    }

    /// The folder that a note is in, and its name there.
    pub(crate) fn seat<'p>(&self, path: &'p NotePath) -> Result<(Dir, &'p str), Error> {
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

    /// Reads a file whole.
    pub(crate) fn read(&self, path: &NotePath) -> Result<Contents, Error> {
        let (dir, name) = self.seat(path)?;
        let mut bytes = Vec::new();
        let stamp = read_at(&dir, name, path, self.max_note_bytes, &mut bytes)?;
        Ok(Contents { bytes, stamp })
    }

    /// The file at a path, if there is one.
    pub(crate) fn look(&self, path: &NotePath) -> Result<Option<Stat>, Error> {
        match self.seat(path) {
            Ok((dir, name)) => look_at(&dir, name, path),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file in a folder, appending to nothing: `bytes` is cleared first.
pub(crate) fn read_at(
    dir: &Dir,
    name: &str,
    path: &NotePath,
    most: u64,
    bytes: &mut Vec<u8>,
) -> Result<Stamp, Error> {
    bytes.clear();
    // Not blocking: what is named like a note may be a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags | OFlags::NOCTTY, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => {
            return Err(Error::WrongKind { path: path.to_string(), found: "a symbolic link" });
        }
        Err(errno) => return Err(told(path, errno.into())),
    };
    let stat = fstat(&file).map_err(|errno| told(path, errno.into()))?;
    regular(&stat, path)?;
    let too_large = |bytes| Error::TooLarge { path: path.to_string(), bytes, most };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > most {
        return Err(too_large(size));
    }
    // One byte more than there should be shows the end without another look.
    bytes.reserve(usize::try_from(size).unwrap_or(0) + 1);
    file.take(most + 1).read_to_end(bytes).map_err(|source| told(path, source))?;
    match bytes.len() as u64 {
        grown if grown > most => Err(too_large(grown)),
        _ => Ok(Stamp::of(&stat)),
    }
}

/// The file of a name, if there is one. Anything but a file is refused.
fn look_at(dir: &Dir, name: &str, path: &NotePath) -> Result<Option<Stat>, Error> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => regular(&stat, path).map(|()| Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(told(path, errno.into())),
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

/// What the system says of a path.
fn told(path: &NotePath, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: path.to_string() },
        _ => Error::Io { action: format!("`{path}`"), source },
    }
}

/// When a file's contents were last changed.
pub(crate) fn modified(stat: &Stat) -> SystemTime {
    let secs = u64::try_from(stat.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + std::time::Duration::new(secs, stat.st_mtime_nsec as u32)
}

/// For people: whether the folder can be used. Makes nothing.
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
