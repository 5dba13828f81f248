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
mod codec;
mod content;
mod draft;
mod edit;
mod error;
mod first_shown;
mod folders;
mod glob;
mod grep;
mod ignored;
pub mod line_ends;
mod lines;
mod list;
mod look;
mod metadata;
mod operation;
mod owners;
mod place_path;
mod read;
mod remove;
mod rename;
mod resolve;
mod root;
mod stat;
mod unread;
mod walk;
mod work_queue;
mod write;

pub use bytes::{BytesPut, GetBytes, GotBytes, PutBytes};
pub use codec::{MAX_ENCODED_BYTES, decode, encode};
pub use content::{FilePut, MAX_CONTENT_BYTES, PutFile};
pub use draft::is_draft;
pub use edit::{
    EditFileText, EditOutcome, EditPreview, EditedText, MAX_EDIT_BYTES, Occurrences, TextEdit,
};
pub use error::{FileError, FileErrorKind};
pub use folders::{FolderMade, MakeFolder, make_folder};
pub use glob::{FoundPaths, GlobFiles};
pub use grep::{FoundLines, GrepFiles};
pub use lines::{NumberedLines, ReadLines};
pub use list::{FolderPage, ListEntry, ListNames, ListedFolder, list_folder};
pub use look::{LookAt, LookedAt};
pub use metadata::{MAX_METADATA, MAX_METADATA_NAME_BYTES, MAX_METADATA_VALUE_BYTES, Metadata};
pub use operation::{FileEffect, FileOperation, FileOutcome, Operation, run};
pub use place_path::PlacePath;
pub use read::{ByteRange, ReadBytes, ReadText, TextRange, read_bytes};
pub use remove::{PathRemoved, RemovePath};
pub use rename::{RenamePath, Renamed};
pub use resolve::{ResolvePath, ResolvedPath};
pub use root::FileRoot;
pub use stat::{MAX_STAT_ENTRIES, StatEntries, StatEntry, StatKind, StatPath};
pub use unread::Unread;
pub use write::{FileVersion, Replaced, Replacement, WriteText, write_bytes};

/// Asks whether the outcome is still wanted. Several threads ask.
pub type Stop<'s> = &'s (dyn Fn() -> bool + Sync + 's);
