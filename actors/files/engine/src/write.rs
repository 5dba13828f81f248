//! Atomic replacement of a file: written beside it without a name, synced, then moved over it.

use std::{
    io::{self, Write},
    os::fd::AsRawFd,
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, linkat, openat,
    renameat_with,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Metadata as FileTexts, PlacePath,
    edit::within,
    error::failed,
    folders::{make_all, sync},
    metadata,
    read::regular,
};

/// Links that one path may pass, as in the kernel.
const MOST_LINKS: usize = 40;

/// Replaces the whole content of a file, whatever state it is in. Missing folders are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteText {
    /// File.
    pub path: String,
    /// Content.
    pub content: String,
    /// Permission bits in place of the old ones.
    pub mode: Option<u32>,
}

/// State of a file, by which a change by others is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Outcome of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// True if there was a file before.
    pub existed: bool,
    /// Permission bits of the file now.
    pub mode: u32,
}

/// Refusal of a replacement.
pub(crate) enum WriteError {
    /// The file is not in the state that was expected; nothing was written.
    Changed,
    /// Anything else.
    Failed(FileError),
}

impl WriteError {
    /// Of a write without an expected state, which compares none.
    fn of_write(self, path: &PlacePath) -> FileError {
        match self {
            Self::Failed(error) => error,
            Self::Changed => FileError::new(FileErrorKind::Contended, format!("`{path}` changed")),
        }
    }
}

impl From<FileError> for WriteError {
    fn from(error: FileError) -> Self {
        Self::Failed(error)
    }
}

/// Follows links at the end of a path: what is written is the file that they lead to.
pub(crate) fn target(root: &FileRoot, path: &PlacePath) -> Result<PlacePath, FileError> {
    let mut path = root.settled(path)?;
    for _ in 0..MOST_LINKS {
        match root.dir().symlink_metadata(path.as_str()) {
            Ok(metadata) if metadata.is_symlink() => {
                let link = root.dir().read_link_contents(path.as_str());
                let target = link.map_err(|error| failed(&error, &path))?;
                let Some(target) = target.to_str() else {
                    let message = format!("`{path}` is a link to a name that is not UTF-8");
                    return Err(FileError::new(FileErrorKind::InvalidPath, message));
                };
                path = root.settled(&path.linked(target)?)?;
            }
            _ => return Ok(path),
        }
    }
    Err(failed(&Errno::LOOP.into(), path))
}

/// Replaces the content of a file, which keeps its mode and owner, or makes it with its folders. The old
/// content is there or the new, never a part. `expected` is the state that it must still be in.
///
/// `mode` is in place of the old one. What had other names (hard links) keeps the old content there.
///
/// # Errors
/// [`WriteError`]; the file is as it was.
pub(crate) fn replace(
    root: &FileRoot,
    path: &PlacePath,
    content: &[u8],
    mode: Option<u32>,
    expected: Option<FileVersion>,
) -> Result<Replaced, WriteError> {
    replace_at(root, &target(root, path)?, content, &Kept { mode, ..Kept::default() }, expected)
}

/// What a file gets beside its content.
#[derive(Default)]
struct Kept<'k> {
    /// Permission bits in place of the old ones.
    mode: Option<u32>,
    texts: Option<&'k FileTexts>,
}

/// As [`replace`], whatever state it is in, with metadata.
///
/// # Errors
/// `NoMetadata`, `InvalidMetadata`, and as [`replace`].
pub(crate) fn replace_with(
    root: &FileRoot,
    path: &PlacePath,
    content: &[u8],
    mode: Option<u32>,
    texts: &FileTexts,
) -> Result<Replaced, FileError> {
    let kept = Kept { mode, texts: Some(texts) };
    replace_at(root, &target(root, path)?, content, &kept, None)
        .map_err(|error| error.of_write(path))
}

/// As [`replace`]; a link at the end of the path is replaced itself.
fn replace_at(
    root: &FileRoot,
    path: &PlacePath,
    content: &[u8],
    kept: &Kept<'_>,
    expected: Option<FileVersion>,
) -> Result<Replaced, WriteError> {
    let io = |error: io::Error| failed(&error, path);
    let Some((parent, name)) = path.split() else {
        return Err(failed(&Errno::ISDIR.into(), path).into());
    };
    if expected.is_none() {
        make_all(root, parent).map_err(io)?;
    }
    let folder = root.dir().open_dir(parent).map_err(io)?;
    let before = look(&folder, name).map_err(io)?;
    // A link is here only for whoever replaces it itself.
    if let Some(before) = before.as_ref().filter(|before| !before.is_symlink()) {
        regular(before, path)?;
    }
    let mut draft = Draft::new(&folder).map_err(io)?;
    if let Some(texts) = kept.texts {
        metadata::set(&draft.file, texts, path)?;
    }
    let written = (|| {
        draft.file.write_all(content)?;
        match before.as_ref().filter(|before| before.is_file()) {
            Some(before) => keep(&draft.file, before)?,
            None => {
                root.give(&draft.file)?;
                fchmod(&draft.file, Mode::from_raw_mode(0o644))?;
            }
        }
        if let Some(mode) = kept.mode {
            fchmod(&draft.file, Mode::from_raw_mode(mode))?;
        }
        draft.file.sync_all()
    })();
    written.map_err(io)?;
    let _alone = root.replacing.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(expected) = expected {
        let now = look(&folder, name).map_err(io)?;
        if now.is_none_or(|now| FileVersion::of(&now) != expected) {
            return Err(WriteError::Changed);
        }
    }
    draft.publish(&folder, name).map_err(io)?;
    sync(&folder).map_err(io)?;
    let mode = draft.file.metadata().map_err(io)?.mode() & 0o7777;
    Ok(Replaced { existed: before.is_some(), mode })
}

/// # Errors
/// `TooLarge`, and as [`replace`].
pub(crate) fn write(root: &FileRoot, asked: &WriteText) -> Result<Replaced, FileError> {
    let path = root.path(&asked.path)?;
    within(&path, asked.content.len() as u64)?;
    let replaced = replace(root, &path, asked.content.as_bytes(), asked.mode, None);
    replaced.map_err(|error| error.of_write(&path))
}

/// Replaces the whole content of a file, or makes it with its folders. A link at the end of the path is
/// replaced, not followed.
///
/// # Errors
/// `NotAFile`, `IsADirectory`, `NoSpace`, and those of a path; the file is as it was.
pub fn write_bytes(
    root: &FileRoot,
    path: &PlacePath,
    content: &[u8],
) -> Result<Replaced, FileError> {
    replace_at(root, path, content, &Kept::default(), None).map_err(|error| error.of_write(path))
}

fn look(folder: &Dir, name: &str) -> io::Result<Option<Metadata>> {
    match folder.symlink_metadata(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Gives a new file the owner and mode of the old one, without the bits that lend its owner's rights: the
/// kernel takes them from a file that is written, too. A change of owner clears mode bits, so it is first. A user who
/// may not give the old one's group gives their own, as other programs that replace files do.
fn keep(file: &File, before: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        let (uid, gid) = (Uid::from_raw(before.uid()), Gid::from_raw(before.gid()));
        match fchown(file, Some(uid), Some(gid)) {
            Err(Errno::PERM) if now.uid() == before.uid() => {}
            given => given?,
        }
    }
    Ok(fchmod(file, Mode::from_raw_mode(before.mode() & 0o1777))?)
}

/// File that is written before it is put in its place. It has no name until it is complete, so a crash
/// leaves nothing; where the file system cannot make such files, it has one of its own.
pub(crate) struct Draft<'f> {
    file: File,
    folder: &'f Dir,
    /// Name that is to be removed again.
    name: Option<String>,
}

impl<'f> Draft<'f> {
    pub(crate) fn new(folder: &'f Dir) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(folder, ".", flags, Mode::from_raw_mode(0o600)) {
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

    /// Gives the complete file a name that nothing has; false if something has it.
    pub(crate) fn publish_as_new(&mut self, folder: &Dir, name: &str) -> io::Result<bool> {
        let published = match &self.name {
            None => linkat(CWD, self.of_process(), folder, name, AtFlags::SYMLINK_FOLLOW),
            Some(draft) => renameat_with(folder, draft, folder, name, RenameFlags::NOREPLACE),
        };
        match published {
            Err(Errno::EXIST) => return Ok(false),
            published => published?,
        }
        self.name = None;
        Ok(true)
    }

    /// The file without a name, as this process has it.
    fn of_process(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Moves the complete file over `name`.
    fn publish(&mut self, folder: &Dir, name: &str) -> io::Result<()> {
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

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Best effort: the error that led here is the one that is told.
            let _ = self.folder.remove_file(name);
        }
    }
}

/// What the names of drafts end with.
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
