//! File that is written before it is put in its place.

use std::{
    io::{self, Write as _},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, fchmod, linkat, openat, renameat_with};
use rustix::io::Errno;

use crate::{FileRoot, folders::sync};

/// File that is written before it is put in its place. It has no name until it is complete, so a crash
/// leaves nothing; where the file system cannot make such files, it has one of its own.
pub(crate) struct Draft {
    pub(crate) file: File,
    pub(crate) folder: Dir,
    /// Name that is to be removed again.
    name: Option<String>,
}

impl Draft {
    pub(crate) fn new(folder: Dir) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&folder, ".", flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => {
                let file = File::from_std(std::fs::File::from(file));
                Ok(Self { file, folder, name: None })
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = draft_name();
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = folder.open_with(&name, &options)?;
                Ok(Self { file, folder, name: Some(name) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes the content of a file that is new, and syncs it.
    pub(crate) fn fill(&mut self, root: &FileRoot, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)?;
        root.give(&self.file)?;
        fchmod(&self.file, Mode::from_raw_mode(0o644))?;
        self.file.sync_all()
    }

    /// Gives the complete file a name that nothing has, on the disk; false if something has it.
    pub(crate) fn publish_as_new(&mut self, name: &str) -> io::Result<bool> {
        let folder = &self.folder;
        let published = match &self.name {
            None => linkat(CWD, self.of_process(), folder, name, AtFlags::SYMLINK_FOLLOW),
            Some(draft) => renameat_with(folder, draft, folder, name, RenameFlags::NOREPLACE),
        };
        match published {
            Err(Errno::EXIST) => return Ok(false),
            published => published?,
        }
        self.name = None;
        sync(&self.folder).map(|()| true)
    }

    /// The file without a name, as this process has it.
    fn of_process(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Moves the complete file over `name`.
    pub(crate) fn publish(&mut self, name: &str) -> io::Result<()> {
        let folder = &self.folder;
        if self.name.is_none() {
            let draft = draft_name();
            linkat(CWD, self.of_process(), folder, &draft, AtFlags::SYMLINK_FOLLOW)?;
            self.name = Some(draft);
        }
        if let Some(draft) = &self.name {
            folder.rename(draft, folder, name)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Best effort: the error that led here is the one that is reported.
            let _ = self.folder.remove_file(name);
        }
    }
}

/// Suffix of the names of drafts.
const DRAFT: &str = ".hivekeep-draft";

/// Whether a name is a draft's: of a file that is being written, before it is put in its place.
pub fn is_draft(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().ends_with(DRAFT.as_bytes())
}

/// A name that is nobody else's: of this moment, this process and this call.
fn draft_name() -> String {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let (process, count) = (std::process::id(), DRAFTS.fetch_add(1, Relaxed));
    format!(".{now:x}-{process:x}-{count:x}{DRAFT}")
}
