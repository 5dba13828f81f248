//! Files of a session's place in the dialect of an assistant: numbered lines, and patches.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Read a text file of a place with its lines numbered, or a range of its lines. A binary file is refused
/// with its size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadNumbered {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Number of the first line, from 1.
    #[schemars(range(min = 1))]
    #[serde(default = "first_line")]
    pub(crate) offset: u64,
    /// Most lines, 1 to 10000; they have 256 KiB together.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default = "default_lines")]
    pub(crate) limit: u64,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

fn first_line() -> u64 {
    1
}

fn default_lines() -> u64 {
    2000
}

/// Lines of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NumberedText {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Each line: its number, a tab, its text; a line over 8 KiB is cut, and says so.
    pub(crate) content: String,
    /// Number of lines in `content`.
    pub(crate) lines: u64,
    /// Pass as `offset` to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
    /// Number of lines behind `content`; absent where they are too many to be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<u64>,
    /// Size of the file.
    pub(crate) size_bytes: u64,
}

/// Create, change or delete a file of a place. A YAML file below the folder of workflows is validated first:
/// an invalid one is refused, and the old file stays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    /// Path from the place's root.
    pub(crate) path: String,
    /// `create` writes the whole file, `replace` a text that occurs once in it, `delete` removes a file or an
    /// empty folder.
    pub(crate) operation: PatchOperation,
    /// The whole content, for `create`.
    #[schemars(length(max = 16_777_216))]
    pub(crate) content: Option<String>,
    /// Exact text to replace, for `replace`.
    #[schemars(length(min = 1))]
    pub(crate) old_string: Option<String>,
    /// Text to put in its place, for `replace`.
    pub(crate) new_string: Option<String>,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// What a patch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PatchOperation {
    /// Writes the whole file.
    Create,
    /// Replaces a text.
    Replace,
    /// Removes it.
    Delete,
}

/// A patched file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Patched {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// What was done.
    pub(crate) operation: PatchOperation,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
    /// Number of lines of the file now; absent after `delete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<u64>,
    /// Whether a manifest was validated; absent for another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manifest_check: Option<PatchCheck>,
}

/// Validation of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PatchCheck {
    /// It is valid.
    Passed,
    /// This daemon has no check of manifests: it was put in place unchecked.
    Unavailable,
}

tools! { pub(crate) FAMILY: "agent" for service Files, singleton files;
    read: ReadNumbered => NumberedText = Files::read_numbered {
        title: "Read numbered lines of a file", effect: Read, rate: RateClass::File,
    };
    patch: Patch => Patched = Files::patch {
        title: "Patch a file", effect: Destroy, risk: Risk::Medium, rate: RateClass::File,
    };
}
