//! Files and folders of a session's place by their paths: moved, deleted, looked for, listed, made.

use std::sync::Arc;

use hivekeep_file_engine::{
    ListEntry, ListNames, LookAt, LookedAt, MakeFolder, RemovePath, RenamePath,
};
use hivekeep_kernel::{CallCx, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files, fs::default_entries};
use crate::place::{PlacedPath, refused};

/// Delete a file or a link of a place, or an empty folder, for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileDelete {
    /// Path from the place's root.
    path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A file that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct FileDeleted {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Always true: what could not be deleted is an error.
    success: bool,
}

/// Rename or move a file or folder within a place, in one step; missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileRename {
    /// Path from the place's root.
    old_path: String,
    /// Path that it is to have.
    new_path: String,
    /// Replace a file that is there; without it one is an error.
    #[serde(default)]
    overwrite: bool,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A file that was renamed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FileRenamed {
    /// Place.
    place: String,
    /// Path before.
    old_path: String,
    /// Path now.
    new_path: String,
    /// Always true: what could not be renamed is an error.
    success: bool,
}

/// Ask whether a path of a place exists, and whether it is a folder. Links are followed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileExists {
    /// Path from the place's root.
    path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Whether a path exists.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FileFound {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Whether there is anything.
    exists: bool,
    /// Whether it is a folder.
    is_dir: bool,
}

tools! { pub(crate) FILE: "file" for service Files, singleton files;
    file_delete: FileDelete => FileDeleted = Files::file_delete {
        title: "Delete a file of a place", effect: Destroy, risk: Risk::High, rate: RateClass::File,
    };
    file_rename: FileRename => FileRenamed = Files::file_rename {
        title: "Rename a file of a place", risk: Risk::Medium, rate: RateClass::File,
    };
    file_exists: FileExists => FileFound = Files::file_exists {
        title: "Look for a file of a place", effect: Read, rate: RateClass::File,
    };
}

/// List a folder of a place, sorted by name, with the path of each entry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DirList {
    /// Path of a folder from the place's root; `/` is the root.
    path: String,
    /// Continue after this name: the `next` of the page before.
    after: Option<String>,
    /// Most entries, 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    #[serde(default = "default_entries")]
    limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A page of a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct DirListed {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// By name.
    entries: Vec<DirEntry>,
    /// Number of entries on all pages.
    total: u64,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DirEntry {
    /// Name.
    name: String,
    /// Path from the place's root.
    path: String,
    /// Whether it is a folder.
    is_dir: bool,
    /// Size in bytes; 0 for a folder.
    size: u64,
}

/// Make a folder in a place, with the folders that it is in. One that exists is left as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DirCreate {
    /// Path from the place's root.
    path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A folder that is there.
#[derive(Debug, Serialize, JsonSchema)]
struct DirCreated {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Always true: what could not be made is an error.
    success: bool,
}

tools! { pub(crate) DIR: "dir" for service Files, singleton files;
    dir_list: DirList => DirListed = Files::dir_list {
        title: "List a folder and the paths in it", effect: Read, rate: RateClass::File,
    };
    dir_create: DirCreate => DirCreated = Files::dir_create {
        title: "Make a folder", effect: Idempotent, risk: Risk::Medium, rate: RateClass::File,
    };
}

impl Files {
    async fn file_delete(self: Arc<Self>, cx: CallCx, input: FileDelete) -> Answer<FileDeleted> {
        let asked = RemovePath { path: input.path, recursive: false };
        let (_, PlacedPath { place, path }) = self.run(&cx, input.place.as_deref(), asked).await?;
        Ok(FileDeleted { place, path, success: true })
    }

    async fn file_rename(self: Arc<Self>, cx: CallCx, input: FileRename) -> Answer<FileRenamed> {
        let place = self.places.find(&cx, input.place.as_deref()).await?;
        let new_path = place.shown(&input.new_path).map_err(refused)?;
        let FileRename { old_path: path, new_path: new, overwrite, .. } = input;
        let asked = RenamePath { path, new_path: new, overwrite };
        let (_, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        Ok(FileRenamed { place, old_path: path, new_path, success: true })
    }

    async fn file_exists(self: Arc<Self>, cx: CallCx, input: FileExists) -> Answer<FileFound> {
        let asked = LookAt { path: input.path };
        let (found, PlacedPath { place, path }) =
            self.run(&cx, input.place.as_deref(), asked).await?;
        let (exists, is_dir) = (found != LookedAt::Nothing, found == LookedAt::Folder);
        Ok(FileFound { place, path, exists, is_dir })
    }

    async fn dir_list(self: Arc<Self>, cx: CallCx, input: DirList) -> Answer<DirListed> {
        let DirList { path, after, limit, place } = input;
        let asked = ListNames { path, after, limit };
        let (page, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        let next = page.next().map(str::to_owned);
        let folder = path.trim_start_matches("./").trim_end_matches('/');
        let entry = |(name, entry): (String, ListEntry)| DirEntry {
            path: if folder == "." { name.clone() } else { format!("{folder}/{name}") },
            name,
            is_dir: entry == ListEntry::Folder,
            size: match entry {
                ListEntry::File(size) | ListEntry::Link(size) => size,
                ListEntry::Folder | ListEntry::Other => 0,
            },
        };
        let entries = page.entries.into_iter().map(entry).collect();
        Ok(DirListed { place, entries, total: page.total, next, path })
    }

    async fn dir_create(self: Arc<Self>, cx: CallCx, input: DirCreate) -> Answer<DirCreated> {
        let asked = MakeFolder { path: input.path };
        let (_, PlacedPath { place, path }) = self.run(&cx, input.place.as_deref(), asked).await?;
        Ok(DirCreated { place, path, success: true })
    }
}
