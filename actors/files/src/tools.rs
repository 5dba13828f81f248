//! Tool declarations of the file families.

mod agent;
mod dir;
mod entries;
mod file;
mod fs;
mod lang;
mod watch;
mod without_workspace;

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
pub(crate) use watch::{FsChanged, FsChanges, FsUnwatch, FsUnwatched, FsWatch, FsWatching};
pub(crate) use without_workspace::{
    PlaceContent, PlaceEdit, PlaceEdited, PlaceRead, PlaceWrite, PlaceWritten,
};

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::files::Files;

/// Groups that the service answers: those of its own, and tools of workspaces that work in a place where
/// no workspace is named.
pub(crate) const SERVED: &[&ToolGroup<ServiceActor<Files>>] = &[
    &fs::FAMILY,
    &entries::FAMILY,
    &watch::FAMILY,
    &file::FAMILY,
    &dir::FAMILY,
    &lang::FAMILY,
    &agent::FAMILY,
    &without_workspace::FAMILY,
];

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Files>>] = &[
    &fs::FAMILY,
    &entries::FAMILY,
    &watch::FAMILY,
    &file::FAMILY,
    &dir::FAMILY,
    &lang::FAMILY,
    &agent::FAMILY,
];
