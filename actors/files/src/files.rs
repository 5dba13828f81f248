//! Service of the file tools: each call is an operation in a place.

use std::sync::Arc;

use hivekeep_file_engine::{
    EditFileText, GlobFiles, GrepFiles, ListEntry, ListNames, MakeFolder, Occurrences, Operation,
    ReadText, RemovePath, TextEdit, Unread, WriteText,
};
use hivekeep_kernel::{CallCx, Service, ServiceActor, ToolError, ToolGroup};
use hivekeep_runtime::Ports;

use crate::{
    file_place::PlacedPath,
    place_table::PlaceTable,
    tools::{
        FAMILIES, FsContent, FsCreateDir, FsDelete, FsEdit, FsEdited, FsEntry, FsGlob, FsGlobbed,
        FsGrep, FsGrepped, FsList, FsListed, FsMultiEdit, FsPath, FsRead, FsUnread, FsWrite,
        FsWritten,
    },
};

pub(super) type Answer<T> = Result<T, ToolError>;

/// Files of all places.
pub(crate) struct Files {
    pub(crate) places: Arc<PlaceTable>,
    /// Folder of a place below which YAML files are manifests.
    pub(crate) dag_folder: String,
    pub(crate) ports: Ports,
}

impl Service for Files {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = FAMILIES;
}

impl Files {
    pub(crate) fn new(places: Arc<PlaceTable>, dag_folder: String, ports: Ports) -> Self {
        Self { places, dag_folder, ports }
    }

    /// Runs an operation in a place, for its outcome and where it was.
    pub(crate) async fn run<O: Operation>(
        &self,
        cx: &CallCx,
        place: Option<&str>,
        operation: O,
    ) -> Answer<(O::Outcome, PlacedPath)> {
        self.places.find(cx, place).await?.ask(cx, operation).await
    }

    pub(crate) async fn read(self: Arc<Self>, cx: CallCx, input: FsRead) -> Answer<FsContent> {
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

    pub(crate) async fn write(self: Arc<Self>, cx: CallCx, input: FsWrite) -> Answer<FsWritten> {
        let FsWrite { path, content, place } = input;
        let bytes_written = content.len() as u64;
        let asked = WriteText { path, content, mode: None };
        let (replaced, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsWritten { place, path, bytes_written, replaced: replaced.existed })
    }

    pub(crate) async fn list(self: Arc<Self>, cx: CallCx, input: FsList) -> Answer<FsListed> {
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

    pub(crate) async fn create_dir(
        self: Arc<Self>,
        cx: CallCx,
        input: FsCreateDir,
    ) -> Answer<FsPath> {
        Ok(self.run(&cx, input.place.as_deref(), MakeFolder { path: input.path }).await?.1.into())
    }

    pub(crate) async fn delete(self: Arc<Self>, cx: CallCx, input: FsDelete) -> Answer<FsPath> {
        let FsDelete { path, recursive, place } = input;
        Ok(self.run(&cx, place.as_deref(), RemovePath { path, recursive }).await?.1.into())
    }

    pub(crate) async fn edit(self: Arc<Self>, cx: CallCx, input: FsEdit) -> Answer<FsEdited> {
        let edit = only(input.target_content, input.replacement_content);
        self.edit_all(&cx, input.place.as_deref(), input.path, vec![edit]).await
    }

    pub(crate) async fn multi_edit(
        self: Arc<Self>,
        cx: CallCx,
        input: FsMultiEdit,
    ) -> Answer<FsEdited> {
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

    pub(crate) async fn grep(self: Arc<Self>, cx: CallCx, input: FsGrep) -> Answer<FsGrepped> {
        let FsGrep { pattern, path, glob, ignore_case, gitignore, limit, place } = input;
        let asked = GrepFiles { path, pattern, ignore_case, glob, gitignore, limit };
        let (lines, at) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsGrepped {
            place: at.place,
            count: lines.total,
            left: lines.total - lines.shown.len() as u64,
            matches: lines.shown,
            files: lines.files,
            binary_files: lines.binary,
            unread: lines.unread.into(),
        })
    }

    pub(crate) async fn glob(self: Arc<Self>, cx: CallCx, input: FsGlob) -> Answer<FsGlobbed> {
        let FsGlob { pattern, path, gitignore, limit, place } = input;
        let asked = GlobFiles { path, pattern, gitignore, limit };
        let (found, at) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsGlobbed {
            place: at.place,
            count: found.total,
            left: found.total - found.paths.len() as u64,
            paths: found.paths,
            unread: found.unread.into(),
        })
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

impl From<Unread> for FsUnread {
    fn from(unread: Unread) -> Self {
        Self { unreadable_count: unread.total, unreadable: unread.named }
    }
}
