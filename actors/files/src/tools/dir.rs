//! Folders of a session's place.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fs::default_entries;
use crate::files::Files;

/// List a folder of a place, sorted by name, with the path of each entry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirList {
    /// Path of a folder from the place's root; `/` is the root.
    pub(crate) path: String,
    /// Continue after this name: the `next` of the page before.
    pub(crate) after: Option<String>,
    /// Most entries, 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    #[serde(default = "default_entries")]
    pub(crate) limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A page of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DirListed {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// By name.
    pub(crate) entries: Vec<DirEntry>,
    /// Number of entries on all pages.
    pub(crate) total: u64,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DirEntry {
    /// Name.
    pub(crate) name: String,
    /// Path from the place's root.
    pub(crate) path: String,
    /// Whether it is a folder.
    pub(crate) is_dir: bool,
    /// Size in bytes; 0 for a folder.
    pub(crate) size: u64,
}

/// Make a folder in a place, with the folders that it is in. One that exists is left as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirCreate {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A folder that is there.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DirCreated {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Always true: what could not be made is an error.
    pub(crate) success: bool,
}

tools! { pub(crate) FAMILY: "dir" for service Files, singleton files;
    dir_list: DirList => DirListed = Files::dir_list {
        title: "List a folder and the paths in it", effect: Read, rate: RateClass::File,
    };
    dir_create: DirCreate => DirCreated = Files::dir_create {
        title: "Make a folder", effect: Idempotent, risk: Risk::Medium, rate: RateClass::File,
    };
}
