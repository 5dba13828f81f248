//! Handlers of the families `file`, `dir` and `lang`, over the same engine as `fs`.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ToolError};

use crate::{
    engine::{folders, list, metadata, remove, rename},
    files::Files,
    languages,
    place_path::PlacePath,
    places::Place,
    tools::{
        DirCreate, DirCreated, DirEntry, DirList, DirListed, FileDelete, FileDeleted, FileExists,
        FileFound, FileRename, FileRenamed, FsPath, LangDetect, LangDetected, LangList, LangListed,
        LangRow,
    },
};

type Answer<T> = Result<T, ToolError>;

impl Files {
    pub(crate) async fn file_delete(
        self: Arc<Self>,
        _: CallCx,
        input: FileDelete,
    ) -> Answer<FileDeleted> {
        let work = |place: &Place, path: &PlacePath, _: &_| remove::remove(place, path, false);
        let ((), FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        Ok(FileDeleted { place, path, success: true })
    }

    pub(crate) async fn file_rename(
        self: Arc<Self>,
        _: CallCx,
        input: FileRename,
    ) -> Answer<FileRenamed> {
        let (new, overwrite) = (PlacePath::parse(&input.new_path)?, input.overwrite);
        let new_path = new.to_string();
        let work = move |place: &Place, old: &PlacePath, _: &_| {
            rename::rename(place, old, &new, overwrite)
        };
        let ((), FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.old_path, work).await?;
        Ok(FileRenamed { place, old_path: path, new_path, success: true })
    }

    pub(crate) async fn file_exists(
        self: Arc<Self>,
        _: CallCx,
        input: FileExists,
    ) -> Answer<FileFound> {
        let work = |place: &Place, path: &PlacePath, _: &_| metadata::is_dir(place.root()?, path);
        let (found, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        Ok(FileFound { place, path, exists: found.is_some(), is_dir: found == Some(true) })
    }

    pub(crate) async fn dir_list(self: Arc<Self>, _: CallCx, input: DirList) -> Answer<DirListed> {
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            list::list(place.root()?, path, input.after.as_deref(), input.limit)
        };
        let (page, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        let next = page.next().map(str::to_owned);
        let folder = path.trim_start_matches("./").trim_end_matches('/');
        let entry = |(name, entry): (String, list::Entry)| DirEntry {
            path: if folder == "." { name.clone() } else { format!("{folder}/{name}") },
            name,
            is_dir: entry.kind == "directory",
            size: if entry.kind == "directory" { 0 } else { entry.size_bytes },
        };
        let entries = page.entries.into_iter().map(entry).collect();
        Ok(DirListed { place, entries, total: page.total, next, path })
    }

    pub(crate) async fn dir_create(
        self: Arc<Self>,
        _: CallCx,
        input: DirCreate,
    ) -> Answer<DirCreated> {
        let work = |place: &Place, path: &PlacePath, _: &_| folders::make(place.writable()?, path);
        let ((), FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        Ok(DirCreated { place, path, success: true })
    }

    pub(crate) async fn lang_detect(
        self: Arc<Self>,
        _: CallCx,
        input: LangDetect,
    ) -> Answer<LangDetected> {
        Ok(LangDetected { language: languages::detect(&input.path), path: input.path })
    }

    pub(crate) async fn lang_list(self: Arc<Self>, _: CallCx, _: LangList) -> Answer<LangListed> {
        let row = |(id, name, extensions): languages::Language| LangRow {
            id,
            name,
            extensions: extensions.iter().map(|extension| format!(".{extension}")).collect(),
        };
        Ok(LangListed { languages: languages::LANGUAGES.into_iter().map(row).collect() })
    }
}
