//! The tools `fs.read` to `fs.multi_edit`: files and folders of a session's place.

use std::sync::Arc;

use hivekeep_file_engine::{
    EditFileText, ListEntry, ListNames, MAX_EDIT_BYTES, MakeFolder, Occurrences, ReadText,
    RemovePath, TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files};
use crate::place::PlacedPath;

/// Size of a text that one call reads at most.
pub(crate) const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// Read a text file of a place, or a range of it. A file that is not UTF-8 is refused with its size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsRead {
    /// Path from the place's root.
    path: String,
    /// First byte to read.
    #[serde(default)]
    offset: u64,
    /// Most bytes to read, at most 4 MiB.
    #[schemars(range(min = 8, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    limit: u64,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

fn default_read_bytes() -> u64 {
    256 * 1024
}

/// Text of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct FsContent {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// The text. A character that an edge of the range cuts is left out.
    content: String,
    /// Position of the first byte of `content`.
    offset: u64,
    /// Where to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Size of the file.
    size_bytes: u64,
}

/// Write a text file in a place: the whole file appears at once or not at all. An existing one keeps its
/// mode and owner; missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsWrite {
    /// Path from the place's root.
    path: String,
    /// The whole content, at most 16 MiB.
    #[schemars(length(max = MAX_EDIT_BYTES))]
    content: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
struct FsWritten {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Size of the file.
    bytes_written: u64,
    /// Whether there was a file before.
    replaced: bool,
}

/// List a folder of a place, sorted by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsList {
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

pub(super) fn default_entries() -> usize {
    200
}

/// A page of a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct FsListed {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// By name; bytes of names that are not UTF-8 are replaced.
    entries: Vec<FsEntry>,
    /// Number of entries on all pages.
    total: u64,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct FsEntry {
    /// Name.
    name: String,
    /// `file`, `directory`, `symlink` or `other`.
    file_type: &'static str,
    /// Size.
    size_bytes: u64,
}

/// Make a folder in a place, with the folders that it is in. One that exists is left as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsCreateDir {
    /// Path from the place's root.
    path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Delete a file, a link or a folder of a place for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsDelete {
    /// Path from the place's root.
    path: String,
    /// Delete a folder with everything in it; without it only an empty one.
    #[serde(default)]
    recursive: bool,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// A path that was made or deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct FsPath {
    /// Place.
    place: String,
    /// Path.
    path: String,
}

/// Replace a text that occurs exactly once in a UTF-8 file of a place. The file changes whole or not at
/// all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsEdit {
    /// Path from the place's root.
    path: String,
    /// Exact text to replace; it must occur once.
    #[schemars(length(min = 1))]
    target_content: String,
    /// Text to put in its place.
    replacement_content: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Replace several texts in a UTF-8 file of a place, each exactly once in what the edits before it left.
/// All are made, or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsMultiEdit {
    /// Path from the place's root.
    path: String,
    /// Edits, in their order.
    #[schemars(length(min = 1, max = 1000))]
    edits: Vec<FsOneEdit>,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Replacement of one text in a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsOneEdit {
    /// Exact text to replace; it must occur once.
    #[schemars(length(min = 1))]
    target_content: String,
    /// Text to put in its place.
    replacement_content: String,
}

/// A file that was edited.
#[derive(Debug, Serialize, JsonSchema)]
struct FsEdited {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Number of texts that were replaced.
    applied: usize,
    /// Size of the file now.
    size_bytes: u64,
}

tools! { pub(crate) FAMILY: "fs" for service Files, singleton files;
    fs_read: FsRead => FsContent = Files::read {
        name: "fs.read", title: "Read a file of a place", effect: Read,
        result_budget_bytes: 32 * 1024 * 1024, rate: RateClass::File,
    };
    fs_write: FsWrite => FsWritten = Files::write {
        name: "fs.write", title: "Write a file of a place", effect: Idempotent, risk: Risk::Medium,
        rate: RateClass::File,
    };
    fs_list: FsList => FsListed = Files::list {
        name: "fs.list", title: "List a folder of a place", effect: Read, rate: RateClass::File,
    };
    fs_create_dir: FsCreateDir => FsPath = Files::create_dir {
        name: "fs.create_dir", title: "Make a folder in a place", effect: Idempotent,
        risk: Risk::Medium, rate: RateClass::File,
    };
    fs_delete: FsDelete => FsPath = Files::delete {
        name: "fs.delete", title: "Delete from a place", effect: Destroy, risk: Risk::High,
        timeout_secs: 600, rate: RateClass::File,
    };
    fs_edit: FsEdit => FsEdited = Files::edit {
        name: "fs.edit", title: "Edit a file of a place", risk: Risk::Medium, rate: RateClass::File,
    };
    fs_multi_edit: FsMultiEdit => FsEdited = Files::multi_edit {
        name: "fs.multi_edit", title: "Edit a file of a place several times", risk: Risk::Medium,
        rate: RateClass::File,
    };
}

impl Files {
    async fn read(self: Arc<Self>, cx: CallCx, input: FsRead) -> Answer<FsContent> {
        let FsRead { path, offset, limit, place } = input;
        let asked = ReadText { path, offset, limit };
        let (read, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        let next_offset = (read.next_offset < read.size_bytes).then_some(read.next_offset);
        Ok(FsContent {
            place,
            path,
            content: read.text,
            offset: read.offset,
            next_offset,
            size_bytes: read.size_bytes,
        })
    }

    async fn write(self: Arc<Self>, cx: CallCx, input: FsWrite) -> Answer<FsWritten> {
        let FsWrite { path, content, place } = input;
        let bytes_written = content.len() as u64;
        let asked = WriteText { path, content, mode: None };
        let (replaced, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsWritten { place, path, bytes_written, replaced: replaced.existed })
    }

    async fn list(self: Arc<Self>, cx: CallCx, input: FsList) -> Answer<FsListed> {
        let FsList { path, after, limit, place } = input;
        let asked = ListNames { path, after, limit };
        let (page, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        let next = page.next().map(str::to_owned);
        let row = |(name, entry): (String, ListEntry)| {
            let (file_type, size_bytes) = match entry {
                ListEntry::File(size_bytes) => ("file", size_bytes),
                ListEntry::Folder => ("directory", 0),
                ListEntry::Link(size_bytes) => ("symlink", size_bytes),
                ListEntry::Other => ("other", 0),
            };
            FsEntry { name, file_type, size_bytes }
        };
        let entries = page.entries.into_iter().map(row).collect();
        Ok(FsListed { place, path, next, entries, total: page.total })
    }

    async fn create_dir(self: Arc<Self>, cx: CallCx, input: FsCreateDir) -> Answer<FsPath> {
        Ok(self.run(&cx, input.place.as_deref(), MakeFolder { path: input.path }).await?.1.into())
    }

    async fn delete(self: Arc<Self>, cx: CallCx, input: FsDelete) -> Answer<FsPath> {
        let FsDelete { path, recursive, place } = input;
        Ok(self.run(&cx, place.as_deref(), RemovePath { path, recursive }).await?.1.into())
    }

    async fn edit(self: Arc<Self>, cx: CallCx, input: FsEdit) -> Answer<FsEdited> {
        let edit = only(input.target_content, input.replacement_content);
        self.edit_all(&cx, input.place.as_deref(), input.path, vec![edit]).await
    }

    async fn multi_edit(self: Arc<Self>, cx: CallCx, input: FsMultiEdit) -> Answer<FsEdited> {
        let edits = input.edits.into_iter();
        let edits = edits.map(|edit| only(edit.target_content, edit.replacement_content));
        self.edit_all(&cx, input.place.as_deref(), input.path, edits.collect()).await
    }

    async fn edit_all(
        &self,
        cx: &CallCx,
        place: Option<&str>,
        path: String,
        edits: Vec<TextEdit>,
    ) -> Answer<FsEdited> {
        let applied = edits.len();
        let asked = EditFileText { path, edits, expected: None };
        let (edited, PlacedPath { place, path }) = self.run(cx, place, asked).await?;
        Ok(FsEdited { place, path, applied, size_bytes: edited.size_bytes })
    }
}

/// An edit of a text that occurs once.
fn only(old: String, new: String) -> TextEdit {
    TextEdit { which: Occurrences::Only, old, new }
}

impl From<PlacedPath> for FsPath {
    fn from(PlacedPath { place, path }: PlacedPath) -> Self {
        Self { place, path }
    }
}
