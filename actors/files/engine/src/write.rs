//! Atomic replacement of a file: written beside it without a name, synced, then moved over it.

use std::{
    io::{self, Write},
    sync::PoisonError,
};

use cap_std::fs::{Dir, File, Metadata, MetadataExt};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Metadata as FileTexts, PlacePath,
    draft::{DRAFT_MODE, Draft},
    edit::within,
    error::failed,
    folders::{make_all, sync_folder},
    metadata,
    read::regular,
};

/// Replaces the whole content of a file, whatever state it is in. Missing folders are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteText {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Content, at most 16 MiB.
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
    /// State of a file that has these attributes.
    pub fn of(metadata: &Metadata) -> Self {
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
    /// Error of a write that expects no state.
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
    replace_at(root, &root.target(path)?, content, &Kept { mode, ..Kept::default() }, expected)
}

/// Mode and metadata of a file that is written.
#[derive(Default)]
struct Kept<'k> {
    /// Permission bits in place of the old ones.
    mode: Option<u32>,
    texts: Option<&'k FileTexts>,
}

/// Like [`replace`], with metadata, whatever state the file is in.
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
    replace_at(root, &root.target(path)?, content, &kept, None)
        .map_err(|error| error.of_write(path))
}

/// Like [`replace`]; a link at the end of the path is replaced itself.
fn replace_at(
    root: &FileRoot,
    path: &PlacePath,
    content: &[u8],
    kept: &Kept<'_>,
    expected: Option<FileVersion>,
) -> Result<Replaced, WriteError> {
    let mut replacement = Replacement::at(root, path, expected.is_none())?;
    if let Some(texts) = kept.texts {
        metadata::set(&replacement.draft.file, texts, path)?;
    }
    let written = replacement.draft.file.write_all(content);
    written.map_err(|error| failed(&error, path))?;
    replacement.put(root, kept.mode, expected)
}

/// File on its way into the place of another, which keeps its content until [`Self::commit`]. Dropped before
/// that, it leaves nothing.
pub struct Replacement {
    draft: Draft,
    path: PlacePath,
    name: String,
    before: Option<Metadata>,
}

impl Replacement {
    /// Begins to replace a file, or to make it with its folders; links at the end of the path are followed.
    ///
    /// # Errors
    /// `NotAFile`, `IsADirectory`, and those of a path.
    pub fn begin(root: &FileRoot, path: &str) -> Result<Self, FileError> {
        Self::at(root, &root.target(&root.path(path)?)?, true)
    }

    fn at(root: &FileRoot, path: &PlacePath, makes_folders: bool) -> Result<Self, FileError> {
        let io = |error: io::Error| failed(&error, path);
        let (parent, name) = path.split().ok_or_else(|| io(Errno::ISDIR.into()))?;
        if makes_folders {
            make_all(root, parent).map_err(io)?;
        }
        let folder = root.dir().open_dir(parent).map_err(io)?;
        let before = look(&folder, name).map_err(io)?;
        // A link is here only for whoever replaces it itself.
        if let Some(before) = before.as_ref().filter(|before| !before.is_symlink()) {
            regular(before, path)?;
        }
        let draft = Draft::new(folder, DRAFT_MODE).map_err(io)?;
        Ok(Self { draft, path: path.clone(), name: name.to_owned(), before })
    }

    /// The file to write the new content to.
    ///
    /// # Errors
    /// As dup(2).
    pub fn file(&self) -> io::Result<std::fs::File> {
        self.draft.file.try_clone().map(File::into_std)
    }

    /// Has what was written on the disk in the file's place, with the owner and mode of the old one unless
    /// `mode` says otherwise.
    ///
    /// # Errors
    /// `NoSpace`, `Failed`; the old file is as it was.
    pub fn commit(self, root: &FileRoot, mode: Option<u32>) -> Result<Replaced, FileError> {
        let path = self.path.clone();
        self.put(root, mode, None).map_err(|error| error.of_write(&path))
    }

    fn put(
        mut self,
        root: &FileRoot,
        mode: Option<u32>,
        expected: Option<FileVersion>,
    ) -> Result<Replaced, WriteError> {
        let (file, path) = (&self.draft.file, &self.path);
        let io = |error: io::Error| failed(&error, path);
        let written = (|| {
            match self.before.as_ref().filter(|before| before.is_file()) {
                Some(before) => keep(file, before)?,
                None => {
                    root.give(file)?;
                    fchmod(file, Mode::from_raw_mode(0o644))?;
                }
            }
            if let Some(mode) = mode {
                fchmod(file, Mode::from_raw_mode(mode & 0o7777))?;
            }
            file.sync_all()?;
            Ok(file.metadata()?.mode() & 0o7777)
        })();
        let mode = written.map_err(io)?;
        let _alone = root.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(expected) = expected {
            let now = look(&self.draft.folder, &self.name).map_err(io)?;
            if now.is_none_or(|now| FileVersion::of(&now) != expected) {
                return Err(WriteError::Changed);
            }
        }
        let published = self.draft.publish(None, &self.name);
        published.and_then(|()| sync_folder(&self.draft.folder)).map_err(io)?;
        Ok(Replaced { existed: self.before.is_some(), mode })
    }
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
