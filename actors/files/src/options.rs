//! Section `[session]`.

use std::{collections::BTreeMap, path::PathBuf};

use hivekeep_ports::SESSION_PLACE;
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::place::VOLUME_PREFIX;

/// Where sessions work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Name of the place that a call without `place` works in: one of `places`, or `session` for a workspace of
    /// the session's own. Unset: the only one of `places` where there is one, else `session`.
    pub default_place: Option<String>,
    /// Folder of a place below which YAML files are manifests: `patch` puts only valid ones there. Relative to
    /// the place's root, in a workspace to `/workspace`; empty: none is.
    pub dag_folder: String,
    /// The workspace that a session gets when a call first needs one of its own.
    pub workspace: SessionWorkspaceOptions,
    /// Folders of the host that every session may work in, by name: `[session.places.NAME]` with
    /// `folder` and, for a place that may be changed, `read_only = false`.
    pub places: BTreeMap<String, PlaceOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_place: None,
            dag_folder: "dags".to_owned(),
            workspace: SessionWorkspaceOptions::default(),
            places: BTreeMap::new(),
        }
    }
}

/// Workspace of a session's own. What is unset is as `workspace_create` has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionWorkspaceOptions {
    /// How it is isolated.
    pub isolation: Option<SessionIsolation>,
    /// Image that it starts from.
    pub image: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Size of its disk in GiB.
    pub disk_gb: Option<u64>,
}

/// Isolation of a session's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionIsolation {
    /// Virtual machine.
    Vm,
    /// Namespaces on the host's kernel.
    Sandbox,
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
        let known = |name: &str| name == SESSION_PLACE || self.places.contains_key(name);
        if let Some(name) = default.filter(|name| !known(name)) {
            let what = format!("`{name}` is neither `{SESSION_PLACE}` nor one of `places`");
            problems.push(("default_place", what));
        }
        if self.places.contains_key(SESSION_PLACE) {
            let what = format!("`{SESSION_PLACE}` is the session's own workspace");
            problems.push(("places", what));
        }
        if let Some(name) = self.places.keys().find(|name| name.starts_with(VOLUME_PREFIX)) {
            problems.push(("places", format!("`{name}` is the name of a volume")));
        }
        if hivekeep_file_engine::PlacePath::parse(&format!("./{}", self.dag_folder)).is_err() {
            problems.push(("dag_folder", "it must be a path below the root of a place".to_owned()));
        }
        problems
    }
}
