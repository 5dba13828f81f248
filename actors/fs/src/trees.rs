//! Depth-first removal of an untrusted tree, over a bounded stack.
//!
//! A guest decides how deep its tree is, how many names a folder has and what their modes are. So
//! nothing here recurses and no names are collected: the folders on the way down are a stack of
//! handles, and names are read as a stream. A folder below the last of the stack is moved up to the
//! top of the tree, where the walk meets it again; one level or a million cost the same. Every
//! folder is opened beneath the handle of its parent, without following a link and without entering
//! another mount.

use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fchmod, fstat, openat, openat2,
    renameat, unlinkat,
};
use rustix::io::Errno;

/// Maximum number of folders open at a time. Few trees are deeper, so few are rearranged.
const WINDOW: usize = 32;
/// Maximum number of times that one folder is read again because it is not empty yet, besides once
/// for each that was moved up: a file system that shows new names for ever is left alone.
const PASSES: u64 = 64;
/// Maximum number of names that cannot be removed; beyond it the rest is left unchanged.
const MAX_STUCK: u32 = 1000;

/// Removes a file, a link, or a tree of any depth and size; success if it does not exist. Blocks.
///
/// Folders that deny their owner to list or change them are opened up, which takes no rights but
/// those of their owner. Processes running in the tree must have ended.
///
/// # Errors
/// Fails with the first name that could not be removed; everything that could be removed is gone
/// all the same.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = CString::new(name.as_bytes())?;
    let holder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let holder = match openat(CWD, holder.unwrap_or(Path::new(".")), how, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut walk = Walk { holder, levels: Vec::new(), moved_up: 0, stuck: 0, first: None };
    walk.take(&name, FileType::Unknown);
    while let Some(level) = walk.levels.last_mut() {
        match level.dir.read() {
            Some(Ok(entry)) if [c".", c".."].contains(&entry.file_name()) => {}
            Some(Ok(entry)) => walk.take(entry.file_name(), entry.file_type()),
            Some(Err(errno)) => {
                let name = level.name.clone();
                walk.keep(&name, errno);
            }
            None => walk.leave(),
        }
        if walk.stuck >= MAX_STUCK {
            break;
        }
    }
    walk.first.map_or(Ok(()), Err)
}

struct Walk {
    /// Parent folder of the tree.
    holder: OwnedFd,
    /// Path of open folders, from the top of the tree.
    levels: Vec<Level>,
    moved_up: u64,
    stuck: u32,
    first: Option<io::Error>,
}

/// Open folder.
struct Level {
    dir: Dir,
    name: CString,
    /// True if a name was added or removed since it was last read from its beginning.
    changed: bool,
    /// True if something in it cannot be removed.
    keeps: bool,
    passes: u64,
}

impl Walk {
    /// Folder whose names are being read.
    fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.levels.last().map_or(Ok(self.holder.as_fd()), |level| level.dir.fd())
    }

    fn take(&mut self, name: &CStr, kind: FileType) {
        match self.try_take(name, kind) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => self.keep(name, errno),
        }
    }

    /// Removes anything but a folder, and enters a folder.
    fn try_take(&mut self, name: &CStr, kind: FileType) -> Result<(), Errno> {
        if kind != FileType::Directory {
            match unlinkat(self.here()?, name, AtFlags::empty()) {
                // The file system does not report types.
                Err(Errno::ISDIR) => {}
                removed => {
                    removed?;
                    self.changed();
                    return Ok(());
                }
            }
        }
        if self.levels.len() == WINDOW {
            return self.move_up(name);
        }
        let dir = Dir::new(open(self.here()?, name)?)?;
        let name = name.to_owned();
        self.levels.push(Level { dir, name, changed: false, keeps: false, passes: 0 });
        Ok(())
    }

    /// Moves a folder to the top of the tree.
    fn move_up(&mut self, name: &CStr) -> Result<(), Errno> {
        let mut opened = false;
        loop {
            let up = format!(".moved-up-{}", self.moved_up);
            let top = self.levels[0].dir.fd()?;
            match renameat(self.here()?, name, top, up.as_str()) {
                // The name is taken, by the guest or by a removal that was cut short.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => self.moved_up += 1,
                // Moving a folder changes its `..`.
                Err(Errno::ACCESS) if !opened => {
                    drop(open(self.here()?, name)?);
                    opened = true;
                }
                moved => {
                    moved?;
                    self.moved_up += 1;
                    self.levels[0].changed = true;
                    self.changed();
                    return Ok(());
                }
            }
        }
    }

    /// Leaves a folder at its end: removes it, reads it once more, or gives it up.
    fn leave(&mut self) {
        let Some(mut level) = self.levels.pop() else { return };
        let removed = match level.keeps {
            true => Err(Errno::NOTEMPTY),
            false => self.here().and_then(|at| unlinkat(at, &*level.name, AtFlags::REMOVEDIR)),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {
                #[cfg(feature = "fault-points")]
                hivekeep_kernel::fault_point!("removal.after_folder");
                self.changed();
            }
            // Names moved up into it, or left out by its file system while others were removed.
            Err(Errno::NOTEMPTY | Errno::EXIST)
                if level.changed && level.passes < PASSES + self.moved_up =>
            {
                level.dir.rewind();
                (level.changed, level.keeps) = (false, false);
                level.passes += 1;
                self.levels.push(level);
            }
            Err(_) if level.keeps => self.keeps(),
            Err(errno) => self.keep(&level.name, errno),
        }
    }

    fn changed(&mut self) {
        self.levels.last_mut().into_iter().for_each(|level| level.changed = true);
    }

    fn keeps(&mut self) {
        self.levels.last_mut().into_iter().for_each(|level| level.keeps = true);
    }

    /// Records a name that cannot be removed.
    fn keep(&mut self, name: &CStr, errno: Errno) {
        self.keeps();
        self.stuck += 1;
        let error = || {
            let why: &dyn Display =
                if errno == Errno::XDEV { &"something is mounted there" } else { &errno };
            // Escaped, because a guest has chosen the name.
            io::Error::new(io::Error::from(errno).kind(), format!("{name:?}: {why}"))
        };
        self.first.get_or_insert_with(error);
    }
}

/// Opens a folder to be emptied.
fn open(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let open = |how| {
        let how = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(at, name, how, Mode::empty(), resolve)
    };
    let dir = match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            let closed = open(OFlags::PATH)?;
            // fchmod(2) does not accept such a handle. This path is the handle: it leads nowhere
            // else.
            chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), Mode::RWXU)?;
            open(OFlags::RDONLY)?
        }
        opened => opened?,
    };
    if !Mode::from_raw_mode(fstat(&dir)?.st_mode).contains(Mode::RWXU) {
        fchmod(&dir, Mode::RWXU)?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests;
