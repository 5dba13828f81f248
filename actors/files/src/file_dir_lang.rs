//! Handlers of the families `file`, `dir` and `lang`, over the same engine as `fs`.

use std::sync::Arc;

use hivekeep_file_engine::{
    ListEntry, ListNames, LookAt, LookedAt, MakeFolder, RemovePath, RenamePath,
};
use hivekeep_kernel::CallCx;

use crate::{
    file_place::PlacedPath,
    files::{Answer, Files},
    languages,
    refuse::refused,
    tools::{
        DirCreate, DirCreated, DirEntry, DirList, DirListed, FileDelete, FileDeleted, FileExists,
        FileFound, FileRename, FileRenamed, LangDetect, LangDetected, LangList, LangListed,
        LangRow,
    },
};

impl Files {
    pub(crate) async fn file_delete(
        self: Arc<Self>,
        cx: CallCx,
        input: FileDelete,
    ) -> Answer<FileDeleted> {
        let asked = RemovePath { path: input.path, recursive: false };
        let (_, PlacedPath { place, path }) = self.run(&cx, input.place.as_deref(), asked).await?;
        Ok(FileDeleted { place, path, success: true })
    }

    pub(crate) async fn file_rename(
        self: Arc<Self>,
        cx: CallCx,
        input: FileRename,
    ) -> Answer<FileRenamed> {
        let place = self.places.find(&cx, input.place.as_deref()).await?;
        let new_path = place.shown(&input.new_path).map_err(refused)?;
        let FileRename { old_path: path, new_path: new, overwrite, .. } = input;
        let asked = RenamePath { path, new_path: new, overwrite };
        let (_, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        Ok(FileRenamed { place, old_path: path, new_path, success: true })
    }

    pub(crate) async fn file_exists(
        self: Arc<Self>,
        cx: CallCx,
        input: FileExists,
    ) -> Answer<FileFound> {
        let asked = LookAt { path: input.path };
        let (found, PlacedPath { place, path }) =
            self.run(&cx, input.place.as_deref(), asked).await?;
        let (exists, is_dir) = (found != LookedAt::Nothing, found == LookedAt::Folder);
        Ok(FileFound { place, path, exists, is_dir })
    }

    pub(crate) async fn dir_list(self: Arc<Self>, cx: CallCx, input: DirList) -> Answer<DirListed> {
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

    pub(crate) async fn dir_create(
        self: Arc<Self>,
        cx: CallCx,
        input: DirCreate,
    ) -> Answer<DirCreated> {
        let asked = MakeFolder { path: input.path };
        let (_, PlacedPath { place, path }) = self.run(&cx, input.place.as_deref(), asked).await?;
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
