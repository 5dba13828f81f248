//! Workspaces that are made to be forked.

use hivekeep_kernel::tools;

use crate::{
    api::prepare::{DEFAULT_TIMEOUT_SECS, Prepared, WorkspacePrepare},
    workspaces::Workspaces,
};

/// Most time for the start, the snapshot, and undoing both.
const AROUND_SECS: u64 = 600;
tools! { pub FAMILY: "orchestration" for Workspaces, singleton workspaces;
    workspace_prepare: WorkspacePrepare => Prepared = Workspaces::prepare {
        title: "Prepare a workspace to be forked", effect: Idempotent, rate: RateClass::Create,
        risk: Risk::Medium, open_world: true, timeout_secs: 900, limit_secs: time_of_all_steps,
        told_by: Some("workspace_list"),
    };
}

/// `timeout_secs` is the limit of one step, not of the call.
fn time_of_all_steps(input: &serde_json::Value) -> Option<u64> {
    let commands = input.get("setup_commands").and_then(|list| list.as_array()).map_or(0, Vec::len);
    let clones = usize::from(input.get("git_url").is_some_and(|url| !url.is_null()));
    let each = input.get("timeout_secs").and_then(serde_json::Value::as_u64);
    let steps = u64::try_from(commands + clones).ok()?;
    Some(each.unwrap_or(DEFAULT_TIMEOUT_SECS).saturating_mul(steps).saturating_add(AROUND_SECS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_may_take_as_long_as_all_its_steps() {
        let limit = |input| time_of_all_steps(&input).unwrap();
        assert_eq!(limit(json!({ "name": "g" })), 600);
        let input = json!({ "git_url": "file:///r", "setup_commands": ["a", "b"] });
        assert_eq!(limit(input), 600 + 3 * 300);
        let input = json!({ "git_url": null, "setup_commands": ["a"], "timeout_secs": 7 });
        assert_eq!(limit(input), 607);
        let input = json!({ "setup_commands": ["a", "b"], "timeout_secs": u64::MAX });
        assert_eq!(limit(input), u64::MAX);
    }
}
