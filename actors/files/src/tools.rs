//! Tool declarations of the file families.

mod agent;
mod dir;
mod entries;
mod file;
mod fs;
mod lang;
mod text;
mod watch;

pub(crate) use agent::{NumberedText, Patch, PatchCheck, PatchOperation, Patched, ReadNumbered};
pub(crate) use dir::{DirCreate, DirCreated, DirEntry, DirList, DirListed};
pub(crate) use entries::{
    FsBytesPut, FsGet, FsGot, FsPut, FsStat, FsStatEntry, FsStats, MAX_PIECE_BYTES,
};
pub(crate) use file::{FileDelete, FileDeleted, FileExists, FileFound, FileRename, FileRenamed};
pub(crate) use fs::{
    FsContent, FsCreateDir, FsDelete, FsEdit, FsEdited, FsEntry, FsGlob, FsGlobbed, FsGrep,
    FsGrepped, FsList, FsListed, FsMultiEdit, FsPath, FsRead, FsUnread, FsWrite, FsWritten,
};
pub(crate) use lang::{LangDetect, LangDetected, LangList, LangListed, LangRow};
pub(crate) use text::{FileContent, FileEdit, FileEdited, FileRead, FileWrite, FileWritten};
pub(crate) use watch::{FsChanged, FsChanges, FsUnwatch, FsUnwatched, FsWatch, FsWatching};

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::files::Files;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Files>>] = &[
    &text::FAMILY,
    &fs::FAMILY,
    &entries::FAMILY,
    &watch::FAMILY,
    &file::FAMILY,
    &dir::FAMILY,
    &lang::FAMILY,
    &agent::FAMILY,
];
