//! What there is.

use std::time::SystemTime;

use super::Vault;
use crate::Error;
use crate::folder::{Item, Kind, Walk};
use crate::path::NotePath;

/// The most rows of one listing.
const MOST_ROWS: usize = 10_000;

/// One row of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// From the caller's root.
    pub(crate) path: String,
    pub(crate) is_folder: bool,
    pub(crate) size_bytes: u64,
}

/// What a folder has.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) rows: Vec<Row>,
    /// There is more.
    pub(crate) truncated: bool,
}

/// A note, and when it was changed.
#[derive(Debug)]
pub(crate) struct RecentFile {
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) modified: SystemTime,
}

/// The whole at a glance.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) notes: usize,
    pub(crate) folders: usize,
    pub(crate) size_bytes: u64,
    pub(crate) recent: Vec<RecentFile>,
    /// There is more than was looked at.
    pub(crate) truncated: bool,
}

impl Vault {
    /// Notes and folders in a folder, by path.
    pub(crate) fn list(
        &self,
        path: &NotePath,
        recursive: bool,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Listing, Error> {
        let walk = Walk { recursive, stat: true, every_file: false, stopped };
        let (items, more) = self.walk(&walk, path)?;
        let prefix = self.shown(path);
        let mut rows: Vec<_> = items
            .into_iter()
            .filter(|item| item.kind != Kind::Other)
            .map(|item| Row {
                path: format!("{prefix}{}", item.path),
                is_folder: item.kind == Kind::Folder,
                size_bytes: item.size_bytes,
            })
            .collect();
        let truncated = more || rows.len() > MOST_ROWS;
        rows.truncate(MOST_ROWS);
        Ok(Listing { rows, truncated })
    }

    pub(crate) fn stats(&self, recent: usize, stopped: &dyn Fn() -> bool) -> Result<Stats, Error> {
        let walk = Walk { recursive: true, stat: true, every_file: false, stopped };
        let (items, truncated) = self.walk(&walk, self.scope.root())?;
        let folders = items.iter().filter(|item| item.kind == Kind::Folder).count();
        let mut notes: Vec<Item> =
            items.into_iter().filter(|item| item.kind == Kind::Note).collect();
        let size_bytes = notes.iter().map(|note| note.size_bytes).sum();
        let count = notes.len();
        notes.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        let recent = notes.into_iter().take(recent).map(|note| RecentFile {
            path: note.path,
            size_bytes: note.size_bytes,
            modified: note.modified.unwrap_or(SystemTime::UNIX_EPOCH),
        });
        let recent = recent.collect();
        Ok(Stats { notes: count, folders, size_bytes, recent, truncated })
    }

    /// Walks. A caller's own root that is not there yet is an empty folder.
    pub(crate) fn walk(&self, walk: &Walk<'_>, at: &NotePath) -> Result<(Vec<Item>, bool), Error> {
        match walk.of(&self.folder, at) {
            Err(Error::NotFound { .. }) if at == self.scope.root() => Ok((Vec::new(), false)),
            walked => walked,
        }
    }

    /// What the caller's paths of things in a folder begin with.
    pub(crate) fn shown(&self, folder: &NotePath) -> String {
        let names: Vec<_> = folder.names().skip(self.scope.root().names().count()).collect();
        names.into_iter().map(|name| format!("{name}/")).collect()
    }
}
