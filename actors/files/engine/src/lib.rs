//! File operations over capability handles, as values that travel: each is run by [`run`] beneath the
//! handle of a folder, on the host or in a guest.
//!
//! ```text
//!  FileOperation ──► run(root, operation, stop) ──► FileOutcome or FileError
//!      │ encode / decode                                  │ encode / decode, then accepts
//!      └────────────── over a link into a guest ──────────┘
//! ```
//! Every path is resolved by the kernel beneath the handle, walks enter folders without following links,
//! nothing that is not a regular file is opened, and a write is there whole or not at all. Blocks; ends
//! early when `stop` says so. In a guest the root is `/` itself: there absolute links lead where they lead.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod bytes;
mod draft;
mod edit;
mod error;
mod folders;
mod glob;
mod grep;
pub mod line_ends;
mod metadata;
mod operation;
mod place_path;
mod read;
mod root;
mod stat;
mod walk;
mod workers;
mod write;

pub use bytes::{BytesPut, GetBytes, GotBytes, PutBytes};
pub use draft::{Draft, FilePut, MAX_CONTENT_BYTES, PutFile, is_draft};
pub use edit::{
    EditFileText, EditOutcome, EditPreview, EditedText, MAX_EDIT_BYTES, Occurrences, TextEdit,
};
pub use error::{FileError, FileErrorKind};
pub use folders::{
    FolderMade, FolderPage, ListEntry, ListNames, ListedFolder, MakeFolder, PathRemoved,
    RemovePath, RenamePath, Renamed, list_folder, make_folder, sync_folder,
};
pub use glob::{FoundPaths, GlobFiles};
pub use grep::{FoundLines, GrepFiles};
pub use metadata::{MAX_METADATA, MAX_METADATA_NAME_BYTES, MAX_METADATA_VALUE_BYTES, Metadata};
pub use operation::{
    FileEffect, FileOperation, FileOutcome, MAX_ENCODED_BYTES, Operation, decode, encode, run,
};
pub use place_path::PlacePath;
pub use read::{
    ByteRange, NumberedLines, ReadBytes, ReadLines, ReadText, TextRange, open_file, read_bytes,
};
pub use root::{FileRoot, ResolvePath, ResolvedPath};
pub use stat::{LookAt, LookedAt, MAX_STAT_ENTRIES, StatEntries, StatEntry, StatKind, StatPath};
pub use workers::{FirstShown, Unread};
pub use write::{FileVersion, Replaced, Replacement, WriteText, write_bytes};

/// Asks whether the outcome is still wanted. Several threads ask.
pub type Stop<'s> = &'s (dyn Fn() -> bool + Sync + 's);
