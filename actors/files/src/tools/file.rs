//! Moving, deleting and looking for files of a session's place.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Delete a file or a link of a place, or an empty folder, for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileDelete {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A file that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileDeleted {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Always true: what could not be deleted is an error.
    pub(crate) success: bool,
}

/// Rename or move a file or folder within a place, in one step; missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FileRename {
    /// Path from the place's root.
    pub(crate) old_path: String,
    /// Path that it is to have.
    pub(crate) new_path: String,
    /// Replace a file that is there; without it one is an error.
    #[serde(default)]
    pub(crate) overwrite: bool,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A file that was renamed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileRenamed {
    /// Place.
    pub(crate) place: String,
    /// Path before.
    pub(crate) old_path: String,
    /// Path now.
    pub(crate) new_path: String,
    /// Always true: what could not be renamed is an error.
    pub(crate) success: bool,
}

/// Ask whether a path of a place exists, and whether it is a folder. Links are followed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileExists {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// Whether a path exists.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileFound {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Whether there is anything.
    pub(crate) exists: bool,
    /// Whether it is a folder.
    pub(crate) is_dir: bool,
}

tools! { pub(crate) FAMILY: "file" for service Files, singleton files;
    file_delete: FileDelete => FileDeleted = Files::file_delete {
        title: "Delete a file of a place", effect: Destroy, risk: Risk::High, rate: RateClass::File,
    };
    file_rename: FileRename => FileRenamed = Files::file_rename {
        title: "Rename a file of a place", risk: Risk::Medium, rate: RateClass::File,
    };
    file_exists: FileExists => FileFound = Files::file_exists {
        title: "Look for a file of a place", effect: Read, rate: RateClass::File,
    };
}
