//! Work of several workspaces brought together in one.

use hivekeep_git::merge::api::MergeResult;
use hivekeep_kernel::tools;

use crate::{
    api::merge::{MAX_SOURCES, WorkspaceMerge},
    workspaces::Workspaces,
};

tools! { pub FAMILY: "git" for Workspaces, singleton workspaces;
    workspace_merge: WorkspaceMerge => MergeResult = Workspaces::merge {
        title: "Merge workspaces", rate: RateClass::Exec, risk: Risk::Medium,
        timeout_secs: 900, weight: one_each,
    };
}

/// A call takes a token for each source, and one for the target.
fn one_each(input: &serde_json::Value) -> u32 {
    let list = input.get("source_workspaces").and_then(|ids| ids.as_array());
    let sources = list.map_or(1, Vec::len).clamp(1, MAX_SOURCES);
    u32::try_from(sources).unwrap_or(1).saturating_add(1)
}
