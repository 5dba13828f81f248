//! Section `[session]`.

use std::{collections::BTreeMap, path::PathBuf};

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where sessions work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Name of the place that a call without `place` works in. Unset: the only one there is.
    pub default_place: Option<String>,
    /// Folders of the host that every session may work in, by name: `[session.places.NAME]` with
    /// `folder` and, for a place that may be changed, `read_only = false`.
    pub places: BTreeMap<String, PlaceOptions>,
}

/// A folder of the host that sessions may work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceOptions {
    /// Absolute path of a folder that is there.
    pub folder: PathBuf,
    /// Whether sessions may only read. Default: true.
    #[serde(default = "read_only")]
    pub read_only: bool,
}

fn read_only() -> bool {
    true
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let relative = self.places.iter().filter(|(_, place)| !place.folder.is_absolute());
        let relative = relative.map(|(name, _)| format!("the folder of `{name}` must be absolute"));
        let mut problems: Vec<_> = relative.map(|problem| ("places", problem)).collect();
        let default = self.default_place.as_ref();
        if let Some(name) = default.filter(|name| !self.places.contains_key(*name)) {
            problems.push(("default_place", format!("`{name}` is not one of `places`")));
        }
        problems
    }
}
