//! Note operations behind the tool's actions, each a blocking function over the folder. Operations
//! that change a note run one at a time for each note; see [`crate::actor`].

mod change;
mod replace;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::answer::{EntryRow, RecentRow};
use crate::folder::{VaultFolder, WalkEntry, WalkEntryKind, WalkParams, WritePrecondition};
use crate::front::{self, MalformedFrontMatter};
use crate::path::{NotePath, Scope};
use crate::{Error, tags};

pub(crate) use change::WritePosition;
pub(crate) use replace::TextReplacement;

/// Maximum number of attempts at a change when another program changes the note in between.
const ATTEMPTS: usize = 3;
/// Maximum number of rows of one listing.
pub(crate) const MOST_ROWS: usize = 10_000;

/// Vault as one caller sees it.
#[derive(Clone)]
pub(crate) struct VaultView {
    pub(crate) folder: Arc<VaultFolder>,
    pub(crate) scope: Scope,
}

/// Text of a note, with the condition for saving it.
pub(crate) struct NoteText {
    pub(crate) text: String,
    expect: WritePrecondition,
}

/// Tags of a note.
pub(crate) struct NoteTags {
    pub(crate) all: Vec<String>,
    pub(crate) inline: Vec<String>,
    /// True if there may be more of either.
    pub(crate) more: bool,
    /// Front matter error; the tags of the front matter are then missing.
    pub(crate) malformed: Option<MalformedFrontMatter>,
}

/// Parameters of a listing.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListingParams {
    /// Include the contents of subfolders.
    pub(crate) recursive: bool,
    /// Leave out folders.
    pub(crate) notes_only: bool,
    /// Return only what comes after this path, in the form of rows.
    pub(crate) after: Option<String>,
    /// Maximum number of rows, at most [`MOST_ROWS`].
    pub(crate) limit: usize,
}

/// Listing of a folder.
#[derive(Debug)]
pub(crate) struct FolderListing {
    pub(crate) rows: Vec<EntryRow>,
    /// True if there is more.
    pub(crate) truncated: bool,
}

/// Summary of the vault.
#[derive(Debug)]
pub(crate) struct VaultStats {
    pub(crate) notes: usize,
    pub(crate) folders: usize,
    pub(crate) size_bytes: u64,
    pub(crate) recent: Vec<RecentRow>,
    /// True if there is more than was visited.
    pub(crate) truncated: bool,
}

impl VaultView {
    pub(crate) fn read(&self, path: &NotePath) -> Result<NoteText, Error> {
        let (bytes, version) = self.folder.read(path)?;
        let text = String::from_utf8(bytes).map_err(|error| Error::NotText {
            path: path.to_string(),
            at: error.utf8_error().valid_up_to(),
        })?;
        Ok(NoteText { text, expect: WritePrecondition::Same(version) })
    }

    /// Parsed front matter of a note.
    pub(crate) fn front(&self, path: &NotePath) -> Result<Map<String, Value>, Error> {
        front::read(&self.read(path)?.text).map_err(malformed(path))
    }

    pub(crate) fn tags(
        &self,
        path: &NotePath,
        stopped: &dyn Fn() -> bool,
    ) -> Result<NoteTags, Error> {
        let text = self.read(path)?.text;
        let (front, malformed) = match front::read(&text) {
            Ok(front) => (front, None),
            Err(wrong) => (Map::new(), Some(wrong)),
        };
        let inline = tags::inline(&text, stopped)?;
        let all = tags::all(&front, &inline);
        Ok(NoteTags { all: all.tags, inline: inline.tags, more: all.more, malformed })
    }

    /// Lists notes and folders in a folder, by path.
    pub(crate) fn list(
        &self,
        path: &NotePath,
        wanted: &ListingParams,
        stopped: &dyn Fn() -> bool,
    ) -> Result<FolderListing, Error> {
        let prefix = self.shown(path);
        let after = match wanted.after.as_deref() {
            Some(after) if after.starts_with(&prefix) => Some(&after[prefix.len()..]),
            // The position is after everything in this folder.
            Some(after) if *after > *prefix => {
                return Ok(FolderListing { rows: Vec::new(), truncated: false });
            }
            _ => None,
        };
        let wants = match wanted.notes_only {
            true => |kind| kind == WalkEntryKind::Note,
            false => WalkEntryKind::is_listed,
        };
        let (recursive, most) = (wanted.recursive, wanted.limit.min(MOST_ROWS));
        let walk = WalkParams {
            recursive,
            stat: true,
            wants,
            after,
            most,
            ..WalkParams::everything(stopped)
        };
        let (items, truncated) = self.walk(&walk, path)?;
        let row = |item: WalkEntry| EntryRow {
            path: format!("{prefix}{}", item.path),
            is_dir: item.kind == WalkEntryKind::Folder,
            size: item.size_bytes,
        };
        Ok(FolderListing { rows: items.into_iter().map(row).collect(), truncated })
    }

    pub(crate) fn stats(
        &self,
        recent: usize,
        stopped: &dyn Fn() -> bool,
    ) -> Result<VaultStats, Error> {
        let walk = WalkParams {
            stat: true,
            wants: WalkEntryKind::is_listed,
            ..WalkParams::everything(stopped)
        };
        let (items, truncated) = self.walk(&walk, self.scope.root())?;
        let folders = items.iter().filter(|item| item.kind == WalkEntryKind::Folder).count();
        let mut notes: Vec<WalkEntry> =
            items.into_iter().filter(|item| item.kind == WalkEntryKind::Note).collect();
        let size_bytes = notes.iter().map(|note| note.size_bytes).sum();
        let count = notes.len();
        notes.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        let recent = notes.into_iter().take(recent).map(|note| RecentRow {
            path: note.path,
            size_bytes: note.size_bytes,
            modified: note.modified.unwrap_or(SystemTime::UNIX_EPOCH).into(),
        });
        let recent = recent.collect();
        Ok(VaultStats { notes: count, folders, size_bytes, recent, truncated })
    }

    /// Walks a folder. A caller's own root that does not exist yet is empty.
    pub(crate) fn walk(
        &self,
        walk: &WalkParams<'_>,
        at: &NotePath,
    ) -> Result<(Vec<WalkEntry>, bool), Error> {
        match walk.of(&self.folder, at) {
            Err(Error::NotFound { .. }) if at == self.scope.root() => Ok((Vec::new(), false)),
            walked => walked,
        }
    }

    /// Prefix of the caller's paths of items in a folder.
    pub(crate) fn shown(&self, folder: &NotePath) -> String {
        let names: Vec<_> = folder.names().skip(self.scope.root().names().count()).collect();
        names.into_iter().map(|name| format!("{name}/")).collect()
    }
}

fn malformed(path: &NotePath) -> impl FnOnce(MalformedFrontMatter) -> Error {
    let path = path.to_string();
    move |what| Error::Malformed { path, what }
}
