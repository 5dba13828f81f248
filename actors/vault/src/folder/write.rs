//! Atomic, durable changes: write to a temporary file, sync, rename, sync the folder.
//!
//! ```text
//! .hivekeep/ ── Draft: write, fsync ── rename ──► place ── fsync of its folder
//! ```

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::PoisonError;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, File, Metadata, MetadataExt};
use hivekeep_file_engine::{Draft, FileVersion, sync_folder};
use hivekeep_kernel::fault_point;
use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Uid, chownat, fchmod, fstat, renameat_with};
use rustix::io::Errno;

use super::{STAGING, VaultFolder, look_at, path_error};
use crate::Error;
use crate::path::NotePath;

/// Precondition on the present file for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePrecondition {
    /// No condition.
    Any,
    /// The file is the one that was read.
    Same(FileVersion),
    /// No file exists.
    Nothing,
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
        let old_bytes = old.as_ref().map(Metadata::len);
        let taken = self.quota.take(self, old_bytes, content.len() as u64)?;
        let io = |source| path_error(path, source);
        let mut draft = Draft::new(self.staging()?, 0o666).map_err(io)?;
        inherit(&draft.file, old.as_ref(), &dir).map_err(io)?;
        draft.file.write_all(content).and_then(|()| draft.file.sync_all()).map_err(io)?;
        fault_point!("vault.before_rename");
        // Checked as late as possible: another program may write notes too.
        let expected = match (expect, look_at(&dir, name, path)?) {
            (WritePrecondition::Any, _) | (WritePrecondition::Nothing, None) => true,
            (WritePrecondition::Same(read), Some(now)) => read == FileVersion::of(&now),
            _ => false,
        };
        if !expected {
            return Err(Error::Contended { path: path.to_string() });
        }
        draft.publish(Some(&dir), name).map_err(|source| placing(path, source))?;
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
        self.quota.give_back(old.len());
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
        let same = |there: &Metadata| (there.dev(), there.ino()) == (moved.dev(), moved.ino());
        // On a case-insensitive file system the target can be this very name, but then there is
        // only one link.
        if moved.nlink() > 1 && there.as_ref().is_some_and(same) {
            // The system would report success and leave both.
            let found = "another name of the same file";
            return Err(Error::WrongKind { path: to.to_string(), found });
        }
        let rename = || old_dir.rename(old_name, &dir, name);
        let renamed = match overwrite {
            true => rename(),
            false => match renameat_with(&old_dir, old_name, &dir, name, RenameFlags::NOREPLACE) {
                // Not every file system supports this; the target was checked a moment ago.
                Err(Errno::INVAL | Errno::NOSYS) => rename(),
                renamed => renamed.map_err(io::Error::from),
            },
        };
        renamed.map_err(|source| placing(to, source))?;
        if let Some(replaced) = there {
            self.quota.give_back(replaced.len());
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
        let opened = match self.root.create_dir(STAGING) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.root.open_dir_nofollow(STAGING),
        };
        opened.map_err(Error::io(format!("open `{STAGING}`")))
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
                    dir.dir_metadata().and_then(|around| give(made, &around)).map_err(io)?;
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

/// Converts an error of bringing a file to its path.
fn placing(path: &NotePath, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::AlreadyExists => Error::Exists { path: path.to_string() },
        ErrorKind::CrossesDevices => {
            Error::io(format!("`{path}` is on another file system than the vault's root"))(source)
        }
        _ => path_error(path, source),
    }
}

fn sync(dir: &Dir, path: &NotePath) -> Result<(), Error> {
    sync_folder(dir).map_err(|source| path_error(path, source))
}

/// Gives a file the mode and owner of the one that it replaces, or the owner of its folder.
fn inherit(file: &File, old: Option<&Metadata>, dir: &Dir) -> io::Result<()> {
    let Some(old) = old else { return give(file, &dir.dir_metadata()?) };
    give(file, old)?;
    Ok(fchmod(file, Mode::from_raw_mode(old.mode() & 0o777))?)
}

/// Gives what a daemon running as root made in somebody's folder to the owner of that folder, or of the file there.
fn give(made: impl AsFd, like: &Metadata) -> io::Result<()> {
    let now = fstat(&made)?;
    if now.st_uid == like.uid() && (like.is_dir() || now.st_gid == like.gid()) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
    match chownat(made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        // Only root may give files away; files of any other user are their own, as with any editor.
        Err(Errno::PERM) => Ok(()),
        given => Ok(given?),
    }
}
