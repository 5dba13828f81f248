//! Tree of watched folders: the kernel's notices as changes of paths.
//!
//! A folder that is made is watched from then on, and what was made in it before is looked for and reported.
//! A draft of an atomic write is not reported; its move over the file is, as a file that is new, has its
//! rights and is written.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::FileType;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hivekeep_file_engine::is_draft;
use hivekeep_protocol::{ChangeKind, GuestCode, GuestError, limits};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::files::io_error;

/// Bytes of notices that are read at once.
const NOTICES_BYTES: usize = 32 * 1024;
/// Maximum number of moves of drafts whose other half has not come.
const MAX_DRAFTS: usize = 1024;

/// Report of a tree.
#[derive(Debug, PartialEq)]
pub(super) enum TreeNews {
    /// A change of this path from the root on.
    Change(ChangeKind, String),
    /// Some changes are not known.
    Gap,
}

type Tell<'t> = &'t mut dyn FnMut(TreeNews);

/// Watched folders.
#[derive(Debug)]
pub(super) struct Tree {
    notices: OwnedFd,
    root: PathBuf,
    recursive: bool,
    /// Paths from the root on.
    folders: HashMap<i32, PathBuf>,
    /// Names in a folder that were found and reported before their notices came.
    found: HashMap<i32, HashSet<OsString>>,
    /// Moves of drafts, by the numbers that tie their halves together.
    drafts: HashSet<u32>,
}

struct Notice {
    watch: i32,
    events: ReadFlags,
    cookie: u32,
    name: OsString,
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

impl Tree {
    /// Watches a folder.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`; `TooLarge` for too many folders; `Busy` where the
    /// kernel has no more watches.
    pub(super) fn begin(root: PathBuf, recursive: bool) -> Result<Self, GuestError> {
        let shown = root.display().to_string();
        let failed = |error: Errno| match error {
            Errno::MFILE | Errno::NOSPC => {
                let message = format!("the kernel has no more watches for {shown}");
                GuestError::new(GuestCode::Busy, message)
            }
            error => io_error(&error.into(), &shown),
        };
        let notices = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let notices = notices.map_err(failed)?;
        let (folders, found, drafts) = (HashMap::new(), HashMap::new(), HashSet::new());
        let mut tree = Self { notices, root, recursive, folders, found, drafts };
        if !tree.watch(PathBuf::new(), None).map_err(failed)? {
            let most = limits::MAX_WATCH_FOLDERS;
            let message = format!("{shown} has more than {most} folders; watch a part of it");
            return Err(GuestError::new(GuestCode::TooLarge, message));
        }
        Ok(tree)
    }

    /// Watches a folder and, where asked, those below; reports what is in them if `tell` is given. False if
    /// they are too many. A folder that is gone or may not be read is left out.
    fn watch(&mut self, folder: PathBuf, mut tell: Option<Tell<'_>>) -> Result<bool, Errno> {
        let is_root = folder.as_os_str().is_empty();
        let mut left = vec![folder];
        while let Some(folder) = left.pop() {
            if self.folders.len() >= limits::MAX_WATCH_FOLDERS {
                return Ok(false);
            }
            let watch = match self.add(&folder) {
                Ok(watch) => watch,
                Err(Errno::NOSPC) => return Err(Errno::NOSPC),
                Err(error) if is_root && folder.as_os_str().is_empty() => return Err(error),
                Err(_) => continue,
            };
            self.folders.insert(watch, folder.clone());
            if !self.recursive {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(self.root.join(&folder)) else { continue };
            for entry in entries.flatten() {
                let (name, kind) = (entry.file_name(), entry.file_type());
                if is_draft(&name) {
                    continue;
                }
                let path = folder.join(&name);
                if kind.as_ref().is_ok_and(FileType::is_dir) {
                    left.push(path.clone());
                }
                let Some(tell) = &mut tell else { continue };
                tell(TreeNews::Change(ChangeKind::Create, text(&path)));
                if entry.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
                    tell(TreeNews::Change(ChangeKind::Write, text(&path)));
                }
                self.found.entry(watch).or_default().insert(name);
            }
        }
        Ok(true)
    }

    fn add(&self, folder: &Path) -> Result<i32, Errno> {
        let mut what = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        if !folder.as_os_str().is_empty() {
            what |= WatchFlags::DONT_FOLLOW;
        }
        inotify::add_watch(&self.notices, self.root.join(folder), what)
    }

    /// Takes the notices that are there and reports what they mean.
    pub(super) fn take(&mut self, tell: Tell<'_>) {
        for notice in self.read() {
            self.judge(notice, tell);
        }
    }

    fn read(&self) -> Vec<Notice> {
        let mut buffer = [MaybeUninit::uninit(); NOTICES_BYTES];
        let (mut reader, mut read) = (Reader::new(&self.notices, &mut buffer), Vec::new());
        loop {
            match reader.next() {
                Ok(notice) => {
                    let name = notice.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    read.push(Notice {
                        watch: notice.wd(),
                        events: notice.events(),
                        cookie: notice.cookie(),
                        name: name.unwrap_or_default().to_owned(),
                    });
                }
                Err(Errno::INTR) => {}
                Err(_) => return read,
            }
            if reader.is_buffer_empty() {
                return read;
            }
        }
    }

    fn judge(&mut self, notice: Notice, tell: Tell<'_>) {
        let Notice { watch, events, cookie, name } = notice;
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            tell(TreeNews::Gap);
            // Watches the folders whose making was not reported.
            let _gone_or_full = self.watch(PathBuf::new(), None);
            return;
        }
        if events.contains(ReadFlags::IGNORED) {
            self.folders.remove(&watch);
            self.found.remove(&watch);
            return;
        }
        let Some(folder) = self.folders.get(&watch) else { return };
        if name.is_empty() {
            let is_root = folder.as_os_str().is_empty();
            return if is_root {
                of_root(events, tell)
            };
        }
        let path = folder.join(&name);
        if is_draft(&name) {
            if events.contains(ReadFlags::MOVED_FROM) && self.drafts.len() < MAX_DRAFTS {
                self.drafts.insert(cookie);
            }
            return;
        }
        let of_content = events.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB);
        if of_content && is_nameless(&name) && self.root.join(&path).symlink_metadata().is_err() {
            return;
        }
        let told = self.found.get_mut(&watch).is_some_and(|names| {
            let ends = ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::DELETE;
            events.intersects(ends | ReadFlags::MOVED_FROM) && names.remove(&name)
        });
        let is_folder = events.contains(ReadFlags::ISDIR);
        let mut change = |kind| tell(TreeNews::Change(kind, text(&path)));
        if events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            let is_written = events.contains(ReadFlags::MOVED_TO) && self.drafts.remove(&cookie);
            if !told {
                change(ChangeKind::Create);
            }
            if is_written {
                // A draft got its rights and its content before it was moved here.
                change(ChangeKind::Chmod);
                change(ChangeKind::Write);
            }
            if is_folder && self.recursive && !told && self.watch(path, Some(tell)) != Ok(true) {
                tell(TreeNews::Gap);
            }
        } else if events.contains(ReadFlags::MOVED_FROM) {
            change(ChangeKind::Rename);
            if is_folder {
                self.forget(&path);
            }
        } else if events.contains(ReadFlags::DELETE) {
            change(ChangeKind::Remove);
        } else if events.contains(ReadFlags::MODIFY) {
            change(ChangeKind::Write);
        } else if events.contains(ReadFlags::ATTRIB) {
            change(ChangeKind::Chmod);
        }
    }

    /// Ends the watches of a folder that was moved away.
    fn forget(&mut self, path: &Path) {
        let below = |(watch, folder): (&i32, &PathBuf)| folder.starts_with(path).then_some(*watch);
        let gone: Vec<_> = self.folders.iter().filter_map(below).collect();
        for watch in gone {
            self.folders.remove(&watch);
            self.found.remove(&watch);
            // The folder may be gone, and its watch with it.
            let _ = inotify::remove_watch(&self.notices, watch);
        }
    }
}

fn of_root(events: ReadFlags, tell: Tell<'_>) {
    let kind = if events.contains(ReadFlags::DELETE_SELF) {
        ChangeKind::Remove
    } else if events.contains(ReadFlags::MOVE_SELF) {
        ChangeKind::Rename
    } else if events.contains(ReadFlags::ATTRIB) {
        ChangeKind::Chmod
    } else {
        return;
    };
    tell(TreeNews::Change(kind, ".".to_owned()));
}

/// Whether the kernel may have made the name up, for a file that has none yet.
fn is_nameless(name: &OsStr) -> bool {
    let number = name.as_bytes().strip_prefix(b"#");
    number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
