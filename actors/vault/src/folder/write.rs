//! Changes: each is there whole or not at all, and on the disk when it is answered.
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

use super::{Folder, STAGING, Stamp, look_at, told};
use crate::Error;
use crate::path::NotePath;

/// What has to be at a note's place for it to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Anything or nothing.
    Any,
    /// What was read.
    Same(Stamp),
    /// What was not there when it was looked for.
    Nothing,
}

/// A file that is removed again, unless it is moved to its place.
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

impl Folder {
    /// Puts a file at a place. Answers whether it is new there.
    ///
    /// # Errors
    /// [`Error::Contended`] if something else is there than was expected.
    pub(crate) fn save(
        &self,
        path: &NotePath,
        content: &[u8],
        expect: Expect,
    ) -> Result<bool, Error> {
        if content.len() as u64 > self.max_note_bytes {
            let (bytes, most) = (content.len() as u64, self.max_note_bytes);
            return Err(Error::TooLarge { path: path.to_string(), bytes, most });
        }
        if let Some((room, place)) = &self.room {
            room.admit(place).map_err(|refused| Error::NoRoom(Box::new(refused)))?;
        }
        let (dir, name) = self.seat_made(path)?;
        let old = look_at(&dir, name, path)?;
        let taken = self.quota.take(self, old.as_ref().map(size), content.len() as u64)?;
        let staging = self.staging()?;
        let io = |errno: Errno| told(path, errno.into());
        let mut temporary = Temporary { dir: &staging, name: random()?, placed: false };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut file = File::from(openat(&staging, &temporary.name, flags, mode).map_err(io)?);
        inherit(&file, old.as_ref(), &dir).map_err(io)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(|e| told(path, e))?;
        fault_point!("vault.before_rename");
        // As late as can be: another program may write notes too.
        let expected = match (expect, look_at(&dir, name, path)?) {
            (Expect::Any, _) | (Expect::Nothing, None) => true,
            (Expect::Same(read), Some(now)) => read == Stamp::of(&now),
            _ => false,
        };
        if !expected {
            return Err(Error::Contended { path: path.to_string() });
        }
        rename(&staging, &temporary.name, &dir, name, path)?;
        temporary.placed = true;
        taken.keep();
        self.tell(path, old.is_none());
        fault_point!("vault.after_rename");
        sync(&dir, path)?;
        Ok(old.is_none())
    }

    /// Removes a file. Answers whether there was one.
    pub(crate) fn remove(&self, path: &NotePath) -> Result<bool, Error> {
        let (dir, name) = match self.seat(path) {
            Err(Error::NotFound { .. }) => return Ok(false),
            seat => seat?,
        };
        let Some(old) = look_at(&dir, name, path)? else { return Ok(false) };
        dir.remove_file(name).map_err(|source| told(path, source))?;
        self.quota.give_back(size(&old));
        self.tell(path, true);
        sync(&dir, path)?;
        Ok(true)
    }

    /// Moves a file. Folders on the way are made.
    ///
    /// # Errors
    /// [`Error::Exists`] if something is there and may not be replaced; [`Error::WrongKind`] if it
    /// is the same file by a hard link.
    pub(crate) fn move_file(
        &self,
        from: &NotePath,
        to: &NotePath,
        overwrite: bool,
    ) -> Result<(), Error> {
        let (old_dir, old_name) = self.seat(from)?;
        let Some(moved) = look_at(&old_dir, old_name, from)? else {
            return Err(Error::NotFound { path: from.to_string() });
        };
        let (dir, name) = self.seat_made(to)?;
        let there = look_at(&dir, name, to)?;
        if there.is_some() && !overwrite {
            return Err(Error::Exists { path: to.to_string() });
        }
        let same = |there: Stat| (there.st_dev, there.st_ino) == (moved.st_dev, moved.st_ino);
        // Where case does not count it can be this very name, too: then there is one link alone.
        if moved.st_nlink > 1 && there.is_some_and(same) {
            // The system would answer that it was moved, and leave both.
            let found = "another name of the same file";
            return Err(Error::WrongKind { path: to.to_string(), found });
        }
        if overwrite {
            rename(&old_dir, old_name, &dir, name, to)?;
        } else {
            match renameat_with(&old_dir, old_name, &dir, name, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(Error::Exists { path: to.to_string() }),
                // Not every file system can; it was looked a moment ago.
                Err(Errno::INVAL | Errno::NOSYS) => rename(&old_dir, old_name, &dir, name, to)?,
                Err(errno) => return Err(placing(to, errno)),
            }
        }
        if let Some(replaced) = there {
            self.quota.give_back(size(&replaced));
        }
        self.tell(from, true);
        self.tell(to, true);
        // The new name first: a power cut in between leaves two, never none.
        sync(&dir, to)?;
        sync(&old_dir, from)
    }

    /// Removes what a crash left of writes that were never acknowledged.
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
            // Another writer was quicker.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed())?,
        }
        self.root.open_dir_nofollow(STAGING).map_err(failed())
    }

    /// As [`Folder::seat`], with the folders on the way made, durably.
    fn seat_made<'p>(&self, path: &'p NotePath) -> Result<(Dir, &'p str), Error> {
        let there = {
            let _made = self.making.read().unwrap_or_else(PoisonError::into_inner);
            self.seat(path)
        };
        match there {
            Err(Error::NotFound { .. }) => {}
            seat => return seat,
        }
        let _making = self.making.write().unwrap_or_else(PoisonError::into_inner);
        let (folder, name) = path.split().expect("the root is there and was no seat");
        let io = |source| told(path, source);
        let mut dir = self.root.try_clone().map_err(io)?;
        for one in folder.names() {
            match dir.create_dir(one) {
                Ok(()) => {
                    let made = dir.open_dir_nofollow(one).map_err(io)?;
                    let made_io = |errno: Errno| told(path, errno.into());
                    readable(&made).and_then(|made| inherit_owner(made, &dir)).map_err(made_io)?;
                    sync(&dir, path)?;
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
            dir = match dir.open_dir_nofollow(one) {
                Ok(dir) => dir,
                // Says what is in the way.
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
        errno => told(path, errno.into()),
    }
}

/// What is renamed or removed in a folder lasts when the folder is on the disk.
fn sync(dir: &Dir, path: &NotePath) -> Result<(), Error> {
    let synced = readable(dir).and_then(rustix::fs::fsync);
    synced.map_err(|errno| told(path, errno.into()))
}

/// The same folder, opened to be read: a handle for names alone (`O_PATH`) cannot be synced.
fn readable(dir: &Dir) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, ".", flags, Mode::empty())
}

/// A note keeps its mode and owner when it is written anew.
fn inherit(file: &File, old: Option<&Stat>, dir: &Dir) -> Result<(), Errno> {
    let Some(old) = old else { return inherit_owner(file, dir) };
    fchmod(file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    let now = file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match (now.uid(), now.gid()) == (old.st_uid, old.st_gid) {
        true => Ok(()),
        false => own(file, old.st_uid, old.st_gid),
    }
}

/// What a daemon that is root makes in somebody's folder is theirs.
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
        // Only root gives files away; anybody else's are its own, as with any editor.
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
