//! Directories.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hivekeep_protocol::{
    EntryKind, FileEntry, FileStat, GuestError, ListFolder, ListFolderReply, limits,
};

use super::{io_error, off_thread, path};

/// Encoded size of a page stays below this; a frame holds 1 MiB.
const MAX_PAGE_BYTES: usize = 900 * 1024;
/// Encoded size of an entry without its name, rounded up.
const ENTRY_BYTES: usize = 64;

/// Answers [`ListFolder`]. A directory of any size costs the memory of one page.
///
/// # Errors
/// `NotADirectory`, `NotFound`, or as opendir(3).
pub async fn run(asked: ListFolder) -> Result<ListFolderReply, GuestError> {
    off_thread(move || list(&asked)).await
}

fn list(asked: &ListFolder) -> Result<ListFolderReply, GuestError> {
    let dir = path::absolute(&asked.path)?;
    let failed = |error: std::io::Error| io_error(&error, &asked.path);
    let limit = (asked.limit as usize).clamp(1, limits::MAX_LIST_ENTRIES);
    let after = asked.after.as_deref();
    let mut names = BTreeSet::new();
    let mut more = false;
    for entry in std::fs::read_dir(&dir).map_err(failed)? {
        let raw = entry.map_err(failed)?.file_name();
        let name = raw.to_string_lossy().into_owned();
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        names.insert((name, raw));
        if names.len() > limit {
            names.pop_last();
            more = true;
        }
    }
    let (mut entries, mut page_bytes) = (Vec::with_capacity(names.len()), 0);
    for (name, raw) in names {
        page_bytes += name.len() + ENTRY_BYTES;
        if page_bytes > MAX_PAGE_BYTES {
            more = true;
            break;
        }
        // An entry that is removed meanwhile is left out.
        if let Ok(meta) = std::fs::symlink_metadata(dir.join(raw)) {
            entries.push(entry_of(name, &meta));
        }
    }
    Ok(ListFolderReply { entries, more })
}

/// Answers [`FileStat`].
///
/// # Errors
/// As lstat(2).
pub async fn stat(asked: FileStat) -> Result<FileEntry, GuestError> {
    let path = path::absolute(&asked.path)?;
    off_thread(move || {
        let meta = std::fs::symlink_metadata(&path);
        let meta = meta.map_err(|error| io_error(&error, &path.to_string_lossy()))?;
        let name = path.file_name().unwrap_or(Path::new("/").as_os_str());
        Ok(entry_of(name.to_string_lossy().into_owned(), &meta))
    })
    .await
}

fn entry_of(name: String, meta: &Metadata) -> FileEntry {
    let kind = match meta.file_type() {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Dir,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    FileEntry {
        name,
        kind,
        size_bytes: meta.size(),
        mode: meta.mode() & 0o7777,
        modified_unix_secs: meta.mtime(),
    }
}
