//! Entries of folders, as the SDKs have them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::beside;
use crate::{
    error::{E2bError, Kind},
    state::E2b,
    target::Target,
};

/// Namespace of the metadata among the attributes of a file.
pub(in super::super) const METADATA_PREFIX: &str = "e2b.";

/// An entry as `fs.stat` tells it.
#[derive(Debug, Clone, Deserialize)]
pub(in super::super) struct Entry {
    /// Absolute here; of the tool, from the place's root.
    pub(in super::super) path: String,
    kind: EntryKind,
    bytes: u64,
    mode: u32,
    owner: String,
    group: String,
    modified_at: String,
    symlink_target: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryKind {
    File,
    Dir,
    Symlink,
    Other,
}

#[derive(Debug, Deserialize)]
struct Stats {
    entries: Vec<Entry>,
    #[serde(default)]
    truncated: bool,
}

impl Entry {
    pub(in super::super) fn is_folder(&self) -> bool {
        self.kind == EntryKind::Dir
    }

    /// Metadata that uploads have given it.
    pub(in super::super) fn metadata(&self) -> BTreeMap<&str, &str> {
        let own = self.metadata.iter();
        own.filter_map(|(name, value)| Some((name.strip_prefix(METADATA_PREFIX)?, &**value)))
            .collect()
    }

    /// The entry as a message of the data plane.
    pub(in super::super) fn told(&self) -> Value {
        let kind = match self.kind {
            EntryKind::File => "FILE_TYPE_FILE",
            EntryKind::Dir => "FILE_TYPE_DIRECTORY",
            EntryKind::Symlink => "FILE_TYPE_SYMLINK",
            EntryKind::Other => "FILE_TYPE_UNSPECIFIED",
        };
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let mut told = json!({
            "name": name, "type": kind, "path": self.path,
            // Numbers of 64 bits are strings in protobuf's JSON.
            "size": self.bytes.to_string(), "mode": self.mode & 0o7777,
            "permissions": self.permissions(), "owner": self.owner, "group": self.group,
            "modifiedTime": self.modified_at,
        });
        if let Some(target) = &self.symlink_target {
            told["symlinkTarget"] = beside(&self.path, target).into();
        }
        let metadata = self.metadata();
        if !metadata.is_empty() {
            told["metadata"] = json!(metadata);
        }
        told
    }

    /// Permissions as `ls` writes them.
    fn permissions(&self) -> String {
        let kind = match (self.kind, &self.symlink_target) {
            (_, Some(_)) | (EntryKind::Symlink, _) => 'L',
            (EntryKind::Dir, _) => 'd',
            _ => '-',
        };
        let bit = |at: u32| self.mode >> at & 1 == 1;
        let letters = (0..9).rev().zip("rwxrwxrwx".chars());
        let letters = letters.map(|(at, letter)| if bit(at) { letter } else { '-' });
        std::iter::once(kind).chain(letters).collect()
    }
}

impl E2b {
    /// The entry of an absolute path. A link has the kind of what it leads to, if that is there.
    pub(in super::super) async fn entry(
        &self,
        target: &Target,
        path: &str,
    ) -> Result<Entry, E2bError> {
        let mut entry = self.one(target, path, false).await?;
        if entry.kind == EntryKind::Symlink {
            match self.one(target, path, true).await {
                Ok(led_to) => {
                    entry = Entry { symlink_target: entry.symlink_target, ..led_to };
                }
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        entry.path = path.to_owned();
        Ok(entry)
    }

    async fn one(&self, target: &Target, path: &str, follow: bool) -> Result<Entry, E2bError> {
        let asked = json!({ "place": target.place("/"), "path": path, "follow": follow });
        let Stats { entries, .. } = self.ask(&target.owner, "fs.stat", asked).await?;
        let none = || E2bError::new(Kind::NotFound, format!("path {path} does not exist"));
        entries.into_iter().next().ok_or_else(none)
    }

    /// Entries below an absolute path, in the order of their paths.
    pub(in super::super) async fn entries(
        &self,
        target: &Target,
        path: &str,
        depth: u32,
    ) -> Result<Vec<Entry>, E2bError> {
        let asked = json!({ "place": target.place("/"), "path": path, "depth": depth });
        let Stats { mut entries, truncated } = self.ask(&target.owner, "fs.stat", asked).await?;
        if truncated {
            let why = format!("{path} has more entries than are listed; ask for less depth");
            return Err(E2bError::new(Kind::ResourceExhausted, why));
        }
        for entry in &mut entries {
            entry.path = format!("/{}", entry.path.trim_start_matches('/'));
        }
        entries.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_told_as_the_data_plane_has_it() {
        let entry = Entry {
            path: "/a/b.txt".to_owned(),
            kind: EntryKind::File,
            bytes: 4,
            mode: 0o100_644,
            owner: "user".to_owned(),
            group: "user".to_owned(),
            modified_at: "2026-01-01T00:00:00Z".to_owned(),
            symlink_target: None,
            metadata: BTreeMap::from([
                ("e2b.author".to_owned(), "ann".to_owned()),
                ("other".to_owned(), "x".to_owned()),
            ]),
        };
        let told = entry.told();
        assert_eq!((&told["name"], &told["size"]), (&json!("b.txt"), &json!("4")));
        assert_eq!(told["permissions"], "-rw-r--r--");
        assert_eq!(told["mode"], 0o644);
        assert_eq!(told["metadata"], json!({ "author": "ann" }));
        let link = Entry { symlink_target: Some("c".to_owned()), ..entry };
        assert_eq!(link.told()["symlinkTarget"], "/a/c");
    }
}
