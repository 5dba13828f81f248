//! Listing a folder, a page at a time.

use std::collections::BTreeMap;

use cap_std::fs::Dir;
use hivekeep_kernel::ToolError;

use super::failed;
use crate::place_path::PlacePath;

/// Entry of a folder.
pub(crate) struct Entry {
    /// `file`, `directory`, `symlink` or `other`.
    pub(crate) kind: &'static str,
    pub(crate) size_bytes: u64,
}

/// Page of a folder.
pub(crate) struct FolderPage {
    /// By name; bytes that are not UTF-8 are replaced.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Number of all entries of the folder.
    pub(crate) total: u64,
    /// True if there are more after the last.
    more: bool,
}

impl FolderPage {
    /// Last name of a page that is not the last one.
    pub(crate) fn next(&self) -> Option<&str> {
        self.entries.last_key_value().filter(|_| self.more).map(|(name, _)| name.as_str())
    }
}

/// Lists the first `limit` names after `after`. Holds one page, however large the folder is.
///
/// # Errors
/// As [`failed`].
pub(crate) fn list(
    root: &Dir,
    path: &PlacePath,
    after: Option<&str>,
    limit: usize,
) -> Result<FolderPage, ToolError> {
    let io = |error| failed(&error, path);
    let folder = root.open_dir(path.as_str()).map_err(io)?;
    let (mut entries, mut total, mut more) = (BTreeMap::new(), 0, false);
    for entry in folder.entries().map_err(io)? {
        let entry = entry.map_err(io)?;
        total += 1;
        let name = entry.file_name().to_string_lossy().into_owned();
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        let last = entries.last_key_value().filter(|_| entries.len() >= limit);
        if last.is_some_and(|(last, _): (&String, &Entry)| &name > last) {
            more = true;
            continue;
        }
        // One that was removed meanwhile is not listed.
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = match metadata.file_type() {
            kind if kind.is_file() => "file",
            kind if kind.is_dir() => "directory",
            kind if kind.is_symlink() => "symlink",
            _ => "other",
        };
        entries.insert(name, Entry { kind, size_bytes: metadata.len() });
        if entries.len() > limit {
            entries.pop_last();
            more = true;
        }
    }
    Ok(FolderPage { entries, total, more })
}
