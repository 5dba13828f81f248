//! Attributes of a path and of the entries below it, without opening any file. Owners have the names that
//! the root itself has for them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io::Read,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use cap_fs_ext::DirExt as _;
use cap_std::fs::{Dir, Metadata as FileMetadata, MetadataExt as _};
use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, Metadata, Stop, error::failed, metadata, read,
    walk::MAX_SHOWN_BYTES,
};

/// Most entries of one answer.
pub const MAX_STAT_ENTRIES: usize = 10_000;

/// Looks at a path, or at what is below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatPath {
    /// Path, as [`crate::PlacePath`] parses it.
    pub path: String,
    /// Levels below the path that are looked at, without the path itself; 0 is the path alone.
    pub depth: u32,
    /// True if a link at the end of the path stands for what it leads to. The folder of a listing is
    /// followed in any case.
    pub follow: bool,
    /// Number of entries, at most [`MAX_STAT_ENTRIES`].
    pub limit: usize,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatKind {
    /// Regular file.
    File,
    /// Folder, which a listing of more levels enters.
    Folder,
    /// Symbolic link.
    Link,
    /// Device, pipe or socket.
    Other,
}

/// Attributes of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatEntry {
    /// Path from the root; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Kind; of a link that is followed, that of its target.
    pub kind: StatKind,
    /// Size in bytes as stat(2) has it; of a link, that of its target's path.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Name of the user, or the number.
    pub owner: String,
    /// Name of the group, or the number.
    pub group: String,
    /// Time of the last change of the content: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Target of a link.
    pub target: Option<String>,
    /// Texts that were given with the content.
    pub metadata: Metadata,
}

/// Entries, each folder before what is in it, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatEntries {
    /// Entries, at most as many as were asked for, and 1 MiB together.
    pub entries: Vec<StatEntry>,
    /// True if there are more.
    pub truncated: bool,
}

/// Walk of one question.
struct Looking<'r> {
    owners: Owners<'r>,
    found: StatEntries,
    limit: usize,
    room_bytes: usize,
    stop: Stop<'r>,
}

/// # Errors
/// `NotADirectory` for a listing of what is none, and those of a path.
pub(crate) fn stat(
    root: &FileRoot,
    asked: &StatPath,
    stop: Stop<'_>,
) -> Result<StatEntries, FileError> {
    let path = root.path(&asked.path)?;
    let io = |error| failed(&error, &path);
    let mut looking = Looking {
        owners: Owners::of(root),
        found: StatEntries::default(),
        limit: asked.limit.min(MAX_STAT_ENTRIES),
        room_bytes: MAX_SHOWN_BYTES,
        stop,
    };
    if asked.depth > 0 {
        let folder = root.dir().open_dir(root.followed(&path)?.as_str()).map_err(io)?;
        looking.folder(&folder, &path.shown(), asked.depth).map_err(io)?;
        return Ok(looking.found);
    }
    let real = if asked.follow { root.followed(&path)? } else { root.settled(&path)? };
    let (folder, name) = real.split().unwrap_or((real.as_str(), "."));
    let folder = root.dir().open_dir(folder).map_err(io)?;
    let found = match asked.follow {
        true => root.dir().metadata(real.as_str()),
        false => folder.symlink_metadata(name),
    };
    looking.entry(&folder, name, Path::new(&path.to_string()), &found.map_err(io)?);
    match looking.found.entries.is_empty() {
        true => Err(FileError::new(FileErrorKind::TooLarge, format!("`{path}` is too long"))),
        false => Ok(looking.found),
    }
}

impl Looking<'_> {
    /// Looks at what a folder holds, by name, and below.
    fn folder(&mut self, folder: &Dir, shown: &Path, depth: u32) -> std::io::Result<()> {
        let left = self.limit.saturating_sub(self.found.entries.len());
        let mut names = BTreeMap::new();
        for entry in folder.entries()? {
            if (self.stop)() {
                return Ok(());
            }
            names.insert(entry?.file_name(), ());
            if names.len() > left {
                names.pop_last();
                self.found.truncated = true;
            }
        }
        for name in names.into_keys() {
            if (self.stop)() || self.found.entries.len() >= self.limit {
                self.found.truncated = true;
                break;
            }
            // An entry that was removed meanwhile is left out.
            let Ok(metadata) = folder.symlink_metadata(&name) else { continue };
            let shown = shown.join(&name);
            if !self.entry(folder, &name, &shown, &metadata) {
                self.found.truncated = true;
                break;
            }
            if metadata.is_dir() && depth > 1 {
                // A folder that may not be read is shown without its content.
                if let Ok(inner) = folder.open_dir_nofollow(&name) {
                    let _unreadable = self.folder(&inner, &shown, depth - 1);
                }
            }
        }
        Ok(())
    }

    /// Adds an entry; false where there is no room.
    fn entry(
        &mut self,
        folder: &Dir,
        name: impl AsRef<Path>,
        shown: &Path,
        metadata: &FileMetadata,
    ) -> bool {
        let name = name.as_ref();
        let kind = match metadata.file_type() {
            kind if kind.is_file() => StatKind::File,
            kind if kind.is_dir() => StatKind::Folder,
            kind if kind.is_symlink() => StatKind::Link,
            _ => StatKind::Other,
        };
        let target = (kind == StatKind::Link).then(|| folder.read_link_contents(name).ok());
        let handle = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        let is_kept = matches!(kind, StatKind::File | StatKind::Folder);
        let entry = StatEntry {
            path: shown.to_string_lossy().into_owned(),
            kind,
            size_bytes: metadata.len(),
            mode: metadata.mode() & 0o7777,
            owner: self.owners.user(metadata.uid()),
            group: self.owners.group(metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec().try_into().unwrap_or(0)),
            target: target.flatten().map(|target| target.to_string_lossy().into_owned()),
            metadata: if is_kept { metadata::of(&handle) } else { Metadata::new() },
        };
        let Some(left) = self.room_bytes.checked_sub(entry.bytes()) else { return false };
        self.room_bytes = left;
        self.found.entries.push(entry);
        true
    }
}

impl StatEntry {
    /// Size in an answer.
    fn bytes(&self) -> usize {
        let texts = self.metadata.iter().map(|(name, value)| name.len() + value.len() + 8);
        let target = self.target.as_ref().map_or(0, String::len);
        64 + self.path.len() + self.owner.len() + self.group.len() + target + texts.sum::<usize>()
    }

    /// Whether a guest may report this entry.
    pub(crate) fn is_sound(&self) -> bool {
        self.modified.1 < 1_000_000_000 && self.metadata.len() <= metadata::MAX_METADATA
    }
}

/// Looks at a path. Links are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookAt {
    /// Path, as [`crate::PlacePath`] parses it; nothing needs to be there.
    pub path: String,
}

/// Kind of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookedAt {
    /// Nothing, also where a folder on the way is missing or a file.
    Nothing,
    /// A file, or something else that is no folder.
    File,
    /// A folder.
    Folder,
}

/// # Errors
/// As [`failed`], for a path that cannot be looked at.
pub(crate) fn look(root: &FileRoot, asked: &LookAt) -> Result<LookedAt, FileError> {
    let path = root.path(&asked.path)?;
    let found = root
        .followed(&path)
        .and_then(|real| root.dir().metadata(real.as_str()).map_err(|error| failed(&error, &path)));
    match found {
        Ok(metadata) if metadata.is_dir() => Ok(LookedAt::Folder),
        Ok(_) => Ok(LookedAt::File),
        Err(error)
            if matches!(error.kind, FileErrorKind::NotFound | FileErrorKind::NotADirectory) =>
        {
            Ok(LookedAt::Nothing)
        }
        Err(error) => Err(error),
    }
}

/// Size of a table of users or groups that is read.
const TABLE_BYTES: u64 = 1024 * 1024;

/// Names of users and groups of a guest; of a folder of the host there are numbers alone.
struct Owners<'r> {
    root: &'r FileRoot,
    users: RefCell<Option<HashMap<u32, String>>>,
    groups: RefCell<Option<HashMap<u32, String>>>,
}

impl<'r> Owners<'r> {
    fn of(root: &'r FileRoot) -> Self {
        Self { root, users: RefCell::default(), groups: RefCell::default() }
    }

    /// Name of a user, or the number.
    fn user(&self, uid: u32) -> String {
        self.name(&self.users, "etc/passwd", uid)
    }

    /// Name of a group, or the number.
    fn group(&self, gid: u32) -> String {
        self.name(&self.groups, "etc/group", gid)
    }

    fn name(&self, table: &RefCell<Option<HashMap<u32, String>>>, path: &str, id: u32) -> String {
        let mut table = table.borrow_mut();
        let names = table.get_or_insert_with(|| self.read(path).unwrap_or_default());
        names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Both tables have the name first and the number third; the first row of a number counts.
    fn read(&self, path: &str) -> Option<HashMap<u32, String>> {
        let path = self.root.is_system().then(|| self.root.path(&format!("/{path}")).ok())??;
        let (file, _) = read::open(self.root, &path).ok()?;
        let mut text = Vec::new();
        file.take(TABLE_BYTES).read_to_end(&mut text).ok()?;
        let mut names = HashMap::new();
        for row in String::from_utf8_lossy(&text).lines() {
            let mut fields = row.split(':');
            if let (Some(name), Some(id)) = (fields.next(), fields.nth(1))
                && let Ok(id) = id.parse()
            {
                names.entry(id).or_insert_with(|| name.chars().take(80).collect());
            }
        }
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;
    use crate::{FileOperation, FileOutcome, run};

    fn look(
        root: &FileRoot,
        path: &str,
        depth: u32,
        follow: bool,
    ) -> Result<StatEntries, FileError> {
        let asked = StatPath { path: path.to_owned(), depth, follow, limit: 5 };
        let operation = FileOperation::from(asked);
        let outcome = run(root, &operation, &|| false)?;
        assert!(operation.accepts(&outcome));
        match outcome {
            FileOutcome::StatPath(found) => Ok(found),
            _ => panic!("another outcome"),
        }
    }

    fn paths(found: &StatEntries) -> Vec<&str> {
        found.entries.iter().map(|entry| &*entry.path).collect()
    }

    #[test]
    fn a_path_and_levels_below_it_are_told_in_order() {
        let home = TempDir::new().expect("a folder");
        fs::create_dir_all(home.path().join("place/d/e/f")).expect("made");
        fs::create_dir(home.path().join("outside")).expect("made");
        fs::write(home.path().join("place/d/b"), "12345").expect("written");
        fs::write(home.path().join("place/d/e/c"), "").expect("written");
        symlink("b", home.path().join("place/d/link")).expect("linked");
        symlink("../../outside", home.path().join("place/d/out")).expect("linked");
        let root = FileRoot::folder(&home.path().join("place")).expect("opened");
        let one = look(&root, "d/b", 0, false).expect("told").entries.remove(0);
        assert_eq!((&*one.path, one.kind, one.size_bytes), ("d/b", StatKind::File, 5));
        assert!(one.modified.0 > 1_600_000_000 && one.owner.parse::<u32>().is_ok());
        let link = look(&root, "d/link", 0, false).expect("told").entries.remove(0);
        assert_eq!((link.kind, link.target.as_deref()), (StatKind::Link, Some("b")));
        let led = look(&root, "d/link", 0, true).expect("told").entries.remove(0);
        assert_eq!((led.kind, led.size_bytes, &*led.path), (StatKind::File, 5, "d/link"));
        for (path, own) in [("d", "d"), ("/", "."), ("d/e/..", "d/e/.."), ("d/", "d/")] {
            let found = look(&root, path, 0, false).expect(path);
            assert_eq!((found.entries[0].kind, paths(&found)), (StatKind::Folder, vec![own]));
        }
        let level = look(&root, "d", 1, false).expect("told");
        assert_eq!(paths(&level), ["d/b", "d/e", "d/link", "d/out"]);
        let all = look(&root, "d", 2, false).expect("told");
        assert_eq!(paths(&all), ["d/b", "d/e", "d/e/c", "d/e/f", "d/link"]);
        assert!(all.truncated && !level.truncated, "five are shown of six");
        for (path, depth, follow, kind) in [
            ("d/b", 1, false, FileErrorKind::NotADirectory),
            ("d/none", 0, false, FileErrorKind::NotFound),
            ("../outside", 0, false, FileErrorKind::Outside),
            ("d/out", 0, true, FileErrorKind::Outside),
            ("d/out", 1, false, FileErrorKind::Outside),
            ("d/out/x", 0, false, FileErrorKind::Outside),
        ] {
            assert_eq!(look(&root, path, depth, follow).expect_err(path).kind, kind, "{path}");
        }
    }

    #[test]
    fn in_a_guest_owners_have_names_and_paths_begin_at_the_root_of_all() {
        let home = TempDir::new().expect("a folder");
        fs::write(home.path().join("f"), "").expect("written");
        let shown = home.path().to_str().expect("UTF-8");
        let root = FileRoot::system(shown).expect("opened");
        let found = look(&root, ".", 1, false).expect("told");
        assert_eq!(paths(&found), [format!("{shown}/f")]);
        let slash = look(&root, "/", 0, false).expect("told").entries.remove(0);
        assert_eq!((&*slash.path, &*slash.owner, &*slash.group), ("/", "root", "root"));
        symlink("/etc", home.path().join("etc")).expect("linked");
        let passwd = look(&root, "etc/passwd", 0, false).expect("told").entries.remove(0);
        assert_eq!((passwd.kind, &*passwd.owner), (StatKind::File, "root"));
    }

    #[test]
    fn a_guest_tells_of_no_more_than_was_asked() {
        let root = FileRoot::folder(Path::new("/")).expect("opened");
        let two = look(&root, "/", 1, false).expect("told");
        assert!(two.entries.len() > 1);
        let asked = StatPath { path: "/".into(), depth: 0, follow: false, limit: 5 };
        assert!(!FileOperation::from(asked.clone()).accepts(&FileOutcome::StatPath(two.clone())));
        let asked = FileOperation::from(StatPath { depth: 1, limit: 1, ..asked });
        assert!(!asked.accepts(&FileOutcome::StatPath(two)));
    }
}
