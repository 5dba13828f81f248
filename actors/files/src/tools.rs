//! Tool declarations of the file families.

mod dir;
mod file;
mod fs;
mod lang;

pub(crate) use dir::{DirCreate, DirCreated, DirEntry, DirList, DirListed};
pub(crate) use file::{FileDelete, FileDeleted, FileExists, FileFound, FileRename, FileRenamed};
pub(crate) use fs::{
    FsContent, FsCreateDir, FsDelete, FsEdit, FsEdited, FsEntry, FsGlob, FsGlobbed, FsGrep,
    FsGrepped, FsList, FsListed, FsMultiEdit, FsPath, FsRead, FsUnread, FsWrite, FsWritten,
};
pub(crate) use lang::{LangDetect, LangDetected, LangList, LangListed, LangRow};

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::files::Files;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Files>>] =
    &[&fs::FAMILY, &file::FAMILY, &dir::FAMILY, &lang::FAMILY];
