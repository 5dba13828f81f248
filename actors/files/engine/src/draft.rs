//! File that is written before it is put in its place, and files put under names that nothing has yet.

use std::{
    io::{self, Write as _},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, fchmod, linkat, openat, renameat_with},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    FileError, FileErrorKind, FileRoot,
    error::failed,
    folders::{make_all, sync_folder},
};

/// File that is written before it is put in its place. It has no name until it is complete, so a crash
/// leaves nothing; where the file system cannot make such files, it has one of its own.
pub struct Draft {
    /// The file, to be written and synced.
    pub file: File,
    pub(crate) folder: Dir,
    /// Name that is to be removed again.
    name: Option<String>,
}

impl Draft {
    /// Makes a file in a folder, with a mode that the umask reduces.
    ///
    /// # Errors
    /// As open(2).
    pub fn new(folder: Dir, mode: u32) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&folder, ".", flags, Mode::from_raw_mode(mode)) {
            Ok(file) => {
                let file = File::from_std(std::fs::File::from(file));
                Ok(Self { file, folder, name: None })
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = draft_name();
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(mode);
                let file = folder.open_with(&name, &options)?;
                Ok(Self { file, folder, name: Some(name) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes the content of a file that is new, and syncs it.
    fn fill(&mut self, root: &FileRoot, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)?;
        root.give(&self.file)?;
        fchmod(&self.file, Mode::from_raw_mode(0o644))?;
        self.file.sync_all()
    }

    /// Gives the complete file a name that nothing has, on the disk; false if something has it.
    fn publish_as_new(&mut self, name: &str) -> io::Result<bool> {
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
        sync_folder(&self.folder).map(|()| true)
    }

    /// The file without a name, as this process has it.
    fn of_process(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Moves the complete file over `name`, in the draft's own folder or in another of its file system, which
    /// is to be synced then.
    ///
    /// # Errors
    /// As link(2) and rename(2); what had the name has it still.
    pub fn publish(&mut self, into: Option<&Dir>, name: &str) -> io::Result<()> {
        let folder = &self.folder;
        if self.name.is_none() {
            let draft = draft_name();
            linkat(CWD, self.of_process(), folder, &draft, AtFlags::SYMLINK_FOLLOW)?;
            self.name = Some(draft);
        }
        if let Some(draft) = &self.name {
            folder.rename(draft, into.unwrap_or(folder), name)?;
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

/// Permission bits of a draft that gets its own when it is complete.
pub(crate) const DRAFT_MODE: u32 = 0o600;
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

/// Largest content, in bytes: with its encoding it is carried in one piece.
pub const MAX_CONTENT_BYTES: u64 = 32 * 1024 * 1024;
/// Names that are tried: `a.txt`, `a-1.txt`, …
const MOST_NAMES: u32 = 1_000;

/// Makes a file with its folders, and replaces nothing: where the name is taken it gets a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutFile {
    /// Path that it gets if nothing has it.
    pub path: String,
    /// Content, of at most [`MAX_CONTENT_BYTES`].
    pub content: ByteBuf,
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePut {
    /// Name in its folder.
    pub name: String,
}

impl FilePut {
    /// Whether it is an outcome of that put: the name that was asked for, or one with a number.
    pub(crate) fn is_of(&self, asked: &PutFile) -> bool {
        let name = asked.path.rsplit('/').next().unwrap_or_default();
        self.name == name || (1..MOST_NAMES).any(|number| self.name == numbered(name, number))
    }
}

/// # Errors
/// `TooLarge`, `Exists` where a thousand names are taken, and those of a path.
pub(crate) fn put(root: &FileRoot, asked: &PutFile) -> Result<FilePut, FileError> {
    let path = &root.path(&asked.path)?;
    if asked.content.len() as u64 > MAX_CONTENT_BYTES {
        let message = format!("`{path}` would have more than {MAX_CONTENT_BYTES} bytes");
        return Err(FileError::new(FileErrorKind::TooLarge, message));
    }
    let settled = root.settled(path)?;
    let io = |error| failed(&error, path);
    let Some((parent, name)) = settled.split() else {
        return Err(failed(&Errno::ISDIR.into(), path));
    };
    make_all(root, parent).map_err(io)?;
    let folder = root.dir().open_dir(parent).map_err(io)?;
    let mut draft = Draft::new(folder, DRAFT_MODE).map_err(io)?;
    draft.fill(root, &asked.content).map_err(io)?;
    for number in 0..MOST_NAMES {
        let name = numbered(name, number);
        if draft.publish_as_new(&name).map_err(io)? {
            return Ok(FilePut { name });
        }
    }
    let message = format!("`{path}` and {MOST_NAMES} names like it exist");
    Err(FileError::new(FileErrorKind::Exists, message))
}

/// A name with a number before its extension.
fn numbered(name: &str, number: u32) -> String {
    match (number, name.rsplit_once('.')) {
        (0, _) => name.to_owned(),
        (_, Some((stem, extension))) if !stem.is_empty() => format!("{stem}-{number}.{extension}"),
        _ => format!("{name}-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;

    fn root(home: &TempDir) -> FileRoot {
        fs::create_dir(home.path().join("place")).expect("made");
        FileRoot::folder(&home.path().join("place")).expect("opened")
    }

    fn place(root: &FileRoot, path: &str, content: &[u8]) -> Result<String, FileError> {
        let content = ByteBuf::from(content);
        put(root, &PutFile { path: path.to_owned(), content }).map(|put| put.name)
    }

    #[test]
    fn a_file_that_is_put_replaces_none() {
        let home = TempDir::new().expect("a folder");
        let root = root(&home);
        let binary = [0, 159, 146, 150];
        for name in ["a.tar.gz", "a.tar-1.gz", "a.tar-2.gz"] {
            assert_eq!(place(&root, "new/folder/a.tar.gz", &binary).expect("put"), name);
        }
        assert_eq!(place(&root, "plain", b"1").expect("put"), "plain");
        assert_eq!(place(&root, "plain", b"2").expect("put"), "plain-1");
        let read = |path: &str| fs::read(home.path().join("place").join(path)).expect("there");
        assert_eq!(read("new/folder/a.tar-2.gz"), binary);
        assert_eq!(read("plain"), b"1");
        let left = fs::read_dir(home.path().join("place/new/folder")).expect("there").count();
        assert_eq!(left, 3, "no draft");
    }

    #[test]
    fn links_lead_no_file_out() {
        let home = TempDir::new().expect("a folder");
        let root = root(&home);
        let (place_path, outside) = (home.path().join("place"), home.path().join("outside"));
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("secret"), "secret").expect("written");
        symlink(&outside, place_path.join("downloads")).expect("made");
        symlink(outside.join("new"), place_path.join("file")).expect("made");
        assert!(place(&root, "downloads/x", b"x").is_err());
        assert_eq!(place(&root, "file", b"x").expect("put"), "file-1", "a link is a name, too");
        assert!(place(&root, "../x", b"x").is_err());
        assert_eq!(fs::read_dir(&outside).expect("there").count(), 1);
    }

    #[test]
    fn a_guest_names_no_other_file() {
        let asked = PutFile { path: "d/a.txt".to_owned(), content: ByteBuf::new() };
        let of = |name: &str| FilePut { name: name.to_owned() }.is_of(&asked);
        assert!(of("a.txt") && of("a-1.txt") && of("a-999.txt"));
        assert!(!of("b.txt") && !of("../a.txt") && !of("a-1000.txt") && !of(""));
    }
}
