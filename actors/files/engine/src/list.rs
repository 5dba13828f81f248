//! Listing a folder, a page at a time.

use std::collections::BTreeMap;

use cap_std::fs::Metadata;
use serde::{Deserialize, Serialize};

use crate::{FileError, FileRoot, PlacePath, error::failed, walk::MAX_SHOWN_BYTES};

/// Lists the first names after one. Holds one page, however large the folder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNames {
    /// Folder.
    pub path: String,
    /// Name after which the page begins.
    pub after: Option<String>,
    /// Number of names on the page, at most.
    pub limit: usize,
}

/// Entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListEntry {
    /// File of a size in bytes.
    File(u64),
    /// Folder.
    Folder,
    /// Link, whose own size is this.
    Link(u64),
    /// Device, pipe or socket.
    Other,
}

/// Page of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPage {
    /// Entries by name; bytes that are not UTF-8 are replaced.
    pub entries: BTreeMap<String, ListEntry>,
    /// Number of all entries of the folder.
    pub total: u64,
    /// True if there are more after the last.
    pub more: bool,
}

impl FolderPage {
    /// Last name of a page that is not the last one.
    pub fn next(&self) -> Option<&str> {
        self.entries.last_key_value().filter(|_| self.more).map(|(name, _)| name.as_str())
    }
}

/// Folder that was looked at: one page of it.
#[derive(Debug)]
pub struct ListedFolder {
    /// Entries by name; bytes that are not UTF-8 are replaced.
    pub entries: BTreeMap<String, Metadata>,
    /// Number of all names that were looked at.
    pub total: u64,
    /// True if there are more after the last.
    pub more: bool,
    /// True if there are more than are looked at.
    pub more_than_counted: bool,
}

/// # Errors
/// As [`failed`].
pub(crate) fn list(root: &FileRoot, asked: &ListNames) -> Result<FolderPage, FileError> {
    // A name and its entry count as 256 bytes of an answer; a page that would be larger is cut there.
    let limit = asked.limit.min(MAX_SHOWN_BYTES / 256);
    let after = asked.after.as_deref();
    let ListedFolder { entries, total, more, .. } =
        list_folder(root, &root.path(&asked.path)?, after, limit, u64::MAX)?;
    let entries = entries.into_iter().map(|(name, metadata)| (name, row(&metadata))).collect();
    Ok(FolderPage { entries, total, more })
}

fn row(metadata: &Metadata) -> ListEntry {
    match metadata.file_type() {
        kind if kind.is_file() => ListEntry::File(metadata.len()),
        kind if kind.is_dir() => ListEntry::Folder,
        kind if kind.is_symlink() => ListEntry::Link(metadata.len()),
        _ => ListEntry::Other,
    }
}

/// Lists a page of a folder, as [`ListNames`] does, with everything that is known of each entry. Looks at no
/// more names than `most_names`.
///
/// # Errors
/// Those of a path.
pub fn list_folder(
    root: &FileRoot,
    path: &PlacePath,
    after: Option<&str>,
    limit: usize,
    most_names: u64,
) -> Result<ListedFolder, FileError> {
    let io = |error| failed(&error, path);
    let folder = root.dir().open_dir(root.followed(path)?.as_str()).map_err(io)?;
    let (mut entries, mut total, mut more) = (BTreeMap::new(), 0, false);
    for entry in folder.entries().map_err(io)? {
        let entry = entry.map_err(io)?;
        if total == most_names {
            return Ok(ListedFolder { entries, total, more, more_than_counted: true });
        }
        total += 1;
        let name = entry.file_name().to_string_lossy().into_owned();
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        let last = entries.last_key_value().filter(|_| entries.len() >= limit);
        if last.is_some_and(|(last, _): (&String, &Metadata)| &name > last) {
            more = true;
            continue;
        }
        // An entry that was removed meanwhile is not listed.
        let Ok(metadata) = entry.metadata() else { continue };
        entries.insert(name, metadata);
        if entries.len() > limit {
            entries.pop_last();
            more = true;
        }
    }
    Ok(ListedFolder { entries, total, more, more_than_counted: false })
}
