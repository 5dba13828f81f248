//! One command, or one each, in many workspaces at once.

use hivekeep_kernel::tools;

use crate::{
    api::parallel::{ExecParallel, MAX_WORKSPACES, ParallelResult},
    workspaces::Workspaces,
};

tools! { pub FAMILY: "execution" for Workspaces, singleton workspaces;
    exec_parallel: ExecParallel => ParallelResult = Workspaces::exec_parallel {
        title: "Run commands in several workspaces", rate: RateClass::Exec, open_world: true,
        timeout_secs: 300, weight: one_each, result_budget_bytes: 64 * 1024 * 1024,
    };
}

/// A call takes a token for each workspace.
fn one_each(input: &serde_json::Value) -> u32 {
    let workspaces = input.get("workspace_ids").and_then(|ids| ids.as_array()).map_or(1, Vec::len);
    u32::try_from(workspaces.clamp(1, MAX_WORKSPACES)).unwrap_or(1)
}
