//! Atomic, durable changes: write to a temporary file, sync, rename, sync the folder.
//!
//! ```text
//! .hivekeep/RANDOM ── write, fsync ── rename ──► place ── fsync of its folder
//! ```

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use hivekeep_kernel::fault_point;
use rustix::fs::{
    Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fstat, openat, renameat_with,
};
use rustix::io::Errno;

use super::{FileStamp, STAGING, VaultFolder, look_at, path_error};
use crate::Error;
use crate::path::NotePath;

/// Precondition on the present file for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePrecondition {
    /// No condition.
    Any,
    /// The file is the one that was read.
    Same(FileStamp),
    /// No file exists.
    Nothing,
}

/// Temporary file, removed when dropped unless it was moved into place.
struct Temporary<'d> {
    dir: &'d Dir,
    name: String,
    placed: bool,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _swept_at_the_next_start = self.dir.remove_file(&self.name);
        }
    }
}

impl VaultFolder {
    /// Writes a file. Returns whether it is new.
    ///
    /// # Errors
    /// [`Error::Contended`] if the precondition does not hold.
    pub(crate) fn save(
        &self,
        path: &NotePath,
        content: &[u8],
        expect: WritePrecondition,
    ) -> Result<bool, Error> {
        if content.len() as u64 > self.max_note_bytes {
            let (bytes, most) = (content.len() as u64, self.max_note_bytes);
            return Err(Error::TooLarge { path: path.to_string(), bytes, most });
        }
        if let Some((room, place)) = &self.room {
            room.admit(place).map_err(|refused| Error::NoRoom(Box::new(refused)))?;
        }
        let (dir, name) = self.make_parent_of(path)?;
        let old = look_at(&dir, name, path)?;
        let taken = self.quota.take(self, old.as_ref().map(size), content.len() as u64)?;
        let staging = self.staging()?;
        let io = |errno: Errno| path_error(path, errno.into());
        let mut temporary = Temporary { dir: &staging, name: random()?, placed: false };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut file = File::from(openat(&staging, &temporary.name, flags, mode).map_err(io)?);
        inherit(&file, old.as_ref(), &dir).map_err(io)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(|e| path_error(path, e))?;
        fault_point!("vault.before_rename");
        // Checked as late as possible: another program may write notes too.
        let expected = match (expect, look_at(&dir, name, path)?) {
            (WritePrecondition::Any, _) | (WritePrecondition::Nothing, None) => true,
            (WritePrecondition::Same(read), Some(now)) => read == FileStamp::of(&now),
            _ => false,
        };
        if !expected {
            return Err(Error::Contended { path: path.to_string() });
        }
        rename(&staging, &temporary.name, &dir, name, path)?;
        temporary.placed = true;
        taken.keep();
        self.publish(path, old.is_none());
        fault_point!("vault.after_rename");
        sync(&dir, path)?;
        Ok(old.is_none())
    }

    /// Removes a file. Returns whether there was one.
    pub(crate) fn remove(&self, path: &NotePath) -> Result<bool, Error> {
        let (dir, name) = match self.parent_of(path) {
            Err(Error::NotFound { .. }) => return Ok(false),
            parent => parent?,
        };
        let Some(old) = look_at(&dir, name, path)? else { return Ok(false) };
        dir.remove_file(name).map_err(|source| path_error(path, source))?;
        self.quota.give_back(size(&old));
        self.publish(path, true);
        sync(&dir, path)?;
        Ok(true)
    }

    /// Moves a file, making missing folders.
    ///
    /// # Errors
    /// [`Error::Exists`] if the target exists and may not be replaced; [`Error::WrongKind`] if it
    /// is the same file by a hard link.
    pub(crate) fn move_file(
        &self,
        from: &NotePath,
        to: &NotePath,
        overwrite: bool,
    ) -> Result<(), Error> {
        let (old_dir, old_name) = self.parent_of(from)?;
        let Some(moved) = look_at(&old_dir, old_name, from)? else {
            return Err(Error::NotFound { path: from.to_string() });
        };
        let (dir, name) = self.make_parent_of(to)?;
        let there = look_at(&dir, name, to)?;
        if there.is_some() && !overwrite {
            return Err(Error::Exists { path: to.to_string() });
        }
        let same = |there: Stat| (there.st_dev, there.st_ino) == (moved.st_dev, moved.st_ino);
        // On a case-insensitive file system the target can be this very name, but then there is
        // only one link.
        if moved.st_nlink > 1 && there.is_some_and(same) {
            // The system would report success and leave both.
            let found = "another name of the same file";
            return Err(Error::WrongKind { path: to.to_string(), found });
        }
        if overwrite {
            rename(&old_dir, old_name, &dir, name, to)?;
        } else {
            match renameat_with(&old_dir, old_name, &dir, name, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(Error::Exists { path: to.to_string() }),
                // Not every file system supports this; the target was checked a moment ago.
                Err(Errno::INVAL | Errno::NOSYS) => rename(&old_dir, old_name, &dir, name, to)?,
                Err(errno) => return Err(placing(to, errno)),
            }
        }
        if let Some(replaced) = there {
            self.quota.give_back(size(&replaced));
        }
        self.publish(from, true);
        self.publish(to, true);
        // New name first: a power cut in between leaves two names, never none.
        sync(&dir, to)?;
        sync(&old_dir, from)
    }

    /// Removes leftovers of writes that a crash cut short and that were never acknowledged.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        match self.root.remove_dir_all(STAGING) {
            Ok(()) => sync(&self.dir(&NotePath::default())?, &NotePath::default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(format!("remove `{STAGING}`"))(error)),
        }
    }

    fn staging(&self) -> Result<Dir, Error> {
        let failed = || Error::io(format!("open `{STAGING}`"));
        match self.root.open_dir_nofollow(STAGING) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened.map_err(failed()),
        }
        match self.root.create_dir(STAGING) {
            // A concurrent writer made it first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed())?,
        }
        self.root.open_dir_nofollow(STAGING).map_err(failed())
    }

    /// Opens the parent folder of a note as [`VaultFolder::parent_of`] does, making missing folders,
    /// durably.
    fn make_parent_of<'p>(&self, path: &'p NotePath) -> Result<(Dir, &'p str), Error> {
        let there = {
            let _made = self.making.read().unwrap_or_else(PoisonError::into_inner);
            self.parent_of(path)
        };
        match there {
            Err(Error::NotFound { .. }) => {}
            parent => return parent,
        }
        let _making = self.making.write().unwrap_or_else(PoisonError::into_inner);
        let (folder, name) = path.split().expect("the root is there and is not a note");
        let io = |source| path_error(path, source);
        let mut dir = self.root.try_clone().map_err(io)?;
        for one in folder.names() {
            match dir.create_dir(one) {
                Ok(()) => {
                    let made = dir.open_dir_nofollow(one).map_err(io)?;
                    let made_io = |errno: Errno| path_error(path, errno.into());
                    readable(&made).and_then(|made| inherit_owner(made, &dir)).map_err(made_io)?;
                    sync(&dir, path)?;
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
            dir = match dir.open_dir_nofollow(one) {
                Ok(dir) => dir,
                // Reports what is in the way.
                Err(_) => return self.dir(&folder).map(|dir| (dir, name)),
            };
        }
        Ok((dir, name))
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn rename(from: &Dir, old: &str, to: &Dir, name: &str, path: &NotePath) -> Result<(), Error> {
    rustix::fs::renameat(from, old, to, name).map_err(|errno| placing(path, errno))
}

fn placing(path: &NotePath, errno: Errno) -> Error {
    match errno {
        Errno::XDEV => {
            Error::io(format!("`{path}` is on another file system than the vault's root"))(errno)
        }
        errno => path_error(path, errno.into()),
    }
}

/// Syncs a folder, which makes renames and removals in it durable.
fn sync(dir: &Dir, path: &NotePath) -> Result<(), Error> {
    let synced = readable(dir).and_then(rustix::fs::fsync);
    synced.map_err(|errno| path_error(path, errno.into()))
}

/// Reopens a folder for reading: a path-only handle (`O_PATH`) cannot be synced.
fn readable(dir: &Dir) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, ".", flags, Mode::empty())
}

/// Keeps the mode and owner of a note that is rewritten.
fn inherit(file: &File, old: Option<&Stat>, dir: &Dir) -> Result<(), Errno> {
    let Some(old) = old else { return inherit_owner(file, dir) };
    fchmod(file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    let now = file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match (now.uid(), now.gid()) == (old.st_uid, old.st_gid) {
        true => Ok(()),
        false => own(file, old.st_uid, old.st_gid),
    }
}

/// Gives what a daemon running as root makes in somebody's folder to that folder's owner.
fn inherit_owner(made: impl AsFd, dir: &Dir) -> Result<(), Errno> {
    let folder = fstat(dir)?;
    let now = fstat(&made)?;
    match now.st_uid == folder.st_uid {
        true => Ok(()),
        false => own(made, folder.st_uid, folder.st_gid),
    }
}

fn own(file: impl AsFd, uid: u32, gid: u32) -> Result<(), Errno> {
    match fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        // Only root may give files away; files of any other user are their own, as with any editor.
        Err(Errno::PERM) => Ok(()),
        done => done,
    }
}

fn random() -> Result<String, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::io("draw a random name")(std::io::Error::other(error.to_string()))
    })?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
