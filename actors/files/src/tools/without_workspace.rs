//! Tools of workspaces, for calls that name none: the session's place serves them. Their declarations for
//! clients, bounds included, are the workspaces'.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Read a text file of a place.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PlaceRead {
    /// Name of the place.
    pub(crate) place: Option<String>,
    /// Path from the place's root.
    pub(crate) path: String,
    /// First byte to read.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Most bytes to read.
    pub(crate) limit: Option<u64>,
}

/// Text of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlaceContent {
    /// Place.
    pub(crate) place: String,
    /// Language by the file's name.
    pub(crate) language: &'static str,
    /// Path.
    pub(crate) path: String,
    /// The text.
    pub(crate) content: String,
    /// Position of its first byte.
    pub(crate) offset: u64,
    /// Where to go on.
    pub(crate) next_offset: u64,
    /// Size of the file.
    pub(crate) size_bytes: u64,
}

/// Write a text file of a place.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PlaceWrite {
    /// Name of the place.
    pub(crate) place: Option<String>,
    /// Path from the place's root.
    pub(crate) path: String,
    /// The whole content.
    pub(crate) content: String,
    /// Permission bits in octal.
    pub(crate) mode: Option<String>,
}

/// A written file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlaceWritten {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Size.
    pub(crate) bytes: u64,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
    /// Its permission bits in octal.
    pub(crate) mode: String,
}

/// Replace a text in a file of a place.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PlaceEdit {
    /// Name of the place.
    pub(crate) place: Option<String>,
    /// Path from the place's root.
    pub(crate) path: String,
    /// Exact text to find.
    pub(crate) old_string: String,
    /// Text to put in its place.
    pub(crate) new_string: String,
    /// Replace every occurrence instead of the first.
    #[serde(default)]
    pub(crate) replace_all: bool,
}

/// An edited file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlaceEdited {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Always true: a text that does not occur is an error.
    pub(crate) success: bool,
    /// Occurrences replaced.
    pub(crate) replacements: u64,
    /// Occurrences there were.
    pub(crate) occurrences: u64,
}

tools! { pub(crate) FAMILY: "file operations" for service Files, singleton files;
    file_read: PlaceRead => PlaceContent = Files::place_read {
        title: "Read a file", effect: Read, rate: RateClass::File,
    };
    file_write: PlaceWrite => PlaceWritten = Files::place_write {
        title: "Write a file", effect: Idempotent, rate: RateClass::File,
    };
    file_edit: PlaceEdit => PlaceEdited = Files::place_edit {
        title: "Edit a file", rate: RateClass::File,
    };
}
