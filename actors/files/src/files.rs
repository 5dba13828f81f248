//! Service of the file tools: each call runs on a blocking thread, bounded in number.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Service, ServiceActor, ToolError, ToolGroup};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{
        Unread,
        edit::{self, Occurrences, TextEdit},
        folders, glob,
        grep::{self, Search},
        list, read, remove, write,
    },
    place_path::PlacePath,
    places::{Place, Places},
    tools::{
        FsContent, FsCreateDir, FsDelete, FsEdit, FsEdited, FsEntry, FsGlob, FsGlobbed, FsGrep,
        FsGrepped, FsList, FsListed, FsMultiEdit, FsPath, FsRead, FsUnread, FsWrite, FsWritten,
        SERVED,
    },
};

type Answer<T> = Result<T, ToolError>;

/// Files of all places.
pub(crate) struct Files {
    places: Places,
}

impl Service for Files {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = SERVED;
}

impl Files {
    pub(crate) fn new(places: Places) -> Self {
        Self { places }
    }

    /// Runs `work` on a path of a place. It is told when nobody waits for it any more, and may then end
    /// without an outcome; a change of one file is made whole all the same.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        place: Option<&str>,
        path: &str,
        work: impl FnOnce(&Place, &PlacePath, &CancellationToken) -> Answer<T> + Send + 'static,
    ) -> Answer<(T, FsPath)> {
        let place = self.places.find(place)?;
        let path = PlacePath::parse(path)?;
        // Never closed.
        let permit = place.permits.clone().acquire_owned().await.ok();
        let stop = CancellationToken::new();
        let _nobody_waits = stop.clone().drop_guard();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let outcome = work(&place, &path, &stop)?;
            Ok((outcome, FsPath { place: place.name.clone(), path: path.to_string() }))
        });
        done.await.map_err(|panic| ToolError::internal(format!("a file tool: {panic}")))?
    }

    pub(crate) async fn read(self: Arc<Self>, _: CallCx, input: FsRead) -> Answer<FsContent> {
        let (offset, limit) = (input.offset, input.limit);
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            read::text(place.root()?, path, offset, limit)
        };
        let (read, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
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

    pub(crate) async fn write(self: Arc<Self>, _: CallCx, input: FsWrite) -> Answer<FsWritten> {
        let bytes_written = input.content.len() as u64;
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            write::write(place, path, &input.content, None)
        };
        let (replaced, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        Ok(FsWritten { place, path, bytes_written, replaced: replaced.existed })
    }

    pub(crate) async fn list(self: Arc<Self>, _: CallCx, input: FsList) -> Answer<FsListed> {
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            list::list(place.root()?, path, input.after.as_deref(), input.limit)
        };
        let (page, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        let next = page.next().map(str::to_owned);
        let row = |(name, entry): (String, list::Entry)| FsEntry {
            name,
            file_type: entry.kind,
            size_bytes: entry.size_bytes,
        };
        Ok(FsListed {
            place,
            path,
            next,
            entries: page.entries.into_iter().map(row).collect(),
            total: page.total,
        })
    }

    pub(crate) async fn create_dir(
        self: Arc<Self>,
        _: CallCx,
        input: FsCreateDir,
    ) -> Answer<FsPath> {
        let work = |place: &Place, path: &PlacePath, _: &_| folders::make(place.writable()?, path);
        Ok(self.run(input.place.as_deref(), &input.path, work).await?.1)
    }

    pub(crate) async fn delete(self: Arc<Self>, _: CallCx, input: FsDelete) -> Answer<FsPath> {
        let recursive = input.recursive;
        let work =
            move |place: &Place, path: &PlacePath, _: &_| remove::remove(place, path, recursive);
        Ok(self.run(input.place.as_deref(), &input.path, work).await?.1)
    }

    pub(crate) async fn edit(self: Arc<Self>, _: CallCx, input: FsEdit) -> Answer<FsEdited> {
        let edit = only(input.target_content, input.replacement_content);
        self.edit_all(input.place.as_deref(), &input.path, vec![edit]).await
    }

    pub(crate) async fn multi_edit(
        self: Arc<Self>,
        _: CallCx,
        input: FsMultiEdit,
    ) -> Answer<FsEdited> {
        let edits = input.edits.into_iter();
        let edits = edits.map(|edit| only(edit.target_content, edit.replacement_content));
        self.edit_all(input.place.as_deref(), &input.path, edits.collect()).await
    }

    async fn edit_all(
        &self,
        place: Option<&str>,
        path: &str,
        edits: Vec<TextEdit>,
    ) -> Answer<FsEdited> {
        let applied = edits.len();
        let work = move |place: &Place, path: &PlacePath, _: &_| edit::edit(place, path, &edits);
        let (edited, FsPath { place, path }) = self.run(place, path, work).await?;
        Ok(FsEdited { place, path, applied, size_bytes: edited.size_bytes })
    }

    pub(crate) async fn grep(self: Arc<Self>, _: CallCx, input: FsGrep) -> Answer<FsGrepped> {
        let search = Search {
            glob: input.glob.as_deref().map(glob::matcher).transpose()?,
            pattern: input.pattern,
            ignore_case: input.ignore_case,
            gitignore: input.gitignore,
            limit: input.limit,
        };
        let work = move |place: &Place, path: &PlacePath, stop: &CancellationToken| {
            grep::grep(place, path, &search, stop)
        };
        let (lines, at) = self.run(input.place.as_deref(), &input.path, work).await?;
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

    pub(crate) async fn glob(self: Arc<Self>, _: CallCx, input: FsGlob) -> Answer<FsGlobbed> {
        let FsGlob { pattern, gitignore, limit, .. } = input;
        let work = move |place: &Place, path: &PlacePath, stop: &CancellationToken| {
            glob::glob(place.root()?, path, &pattern, gitignore, limit, stop)
        };
        let (found, at) = self.run(input.place.as_deref(), &input.path, work).await?;
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

impl From<Unread> for FsUnread {
    fn from(unread: Unread) -> Self {
        Self { unreadable_count: unread.total, unreadable: unread.named }
    }
}
