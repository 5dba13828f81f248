//! Workspaces that are made to be forked.

use hivekeep_kernel::{SnapshotId, WorkspaceId, tools};
use hivekeep_machine::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspaces::Workspaces;

/// Most time for the start, the snapshot, and undoing both.
const AROUND_SECS: u64 = 600;
/// Limit of one command when the input names none.
pub(crate) const DEFAULT_TIMEOUT_SECS: u64 = 300;

/// Make a workspace to be forked many times: boot it, clone a repository to
/// /workspace, run setup commands, and freeze it in a snapshot named `golden`. A
/// second call with the same recipe answers with what is there. When anything
/// fails, nothing of the workspace is left.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspacePrepare {
    /// Unique name: 1 to 63 of a-z, 0-9 and -.
    pub name: String,
    /// Image to start from, as listed by `hivekeep image list`.
    pub base_image: Option<String>,
    /// Repository to clone to /workspace: https://, http://, git://, ssh:// or file:///. Credentials in it are used once and kept nowhere.
    pub git_url: Option<String>,
    /// Scripts for /bin/sh, run in /workspace one after the other, at most 64; the first that does not exit with 0 ends the preparation.
    pub setup_commands: Option<Vec<String>>,
    /// Wall-clock limit of the clone and of each command in seconds, 1 to 86400. Default: 300.
    pub timeout_secs: Option<u64>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Usable disk size in GiB.
    pub disk_gb: Option<u64>,
    /// Keep the memory in the snapshot, so that forks go on where the setup ended instead of booting. Default: true where this host's machines can.
    pub include_memory: Option<bool>,
    /// The internet for the clone and the commands; it is closed again before the snapshot is made. Default: true where this daemon's network can.
    pub allow_internet: Option<bool>,
    /// How to isolate it; a `sandbox` has no snapshots and is refused. Default: the daemon's.
    pub isolation: Option<Isolation>,
}

/// A prepared workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Prepared {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `golden`.
    pub snapshot_name: String,
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// Its address; null while it has no network.
    pub ip: Option<String>,
    /// It was there already, made from the same recipe: nothing was done.
    pub reused_existing: bool,
    /// Whether the snapshot keeps the memory.
    pub has_memory: bool,
    /// What was done, in order; empty when it was reused.
    pub steps: Vec<PrepareStep>,
    /// From the start of its making to the guest's first answer; absent when it was reused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_time_ms: Option<u64>,
    /// Whether the setup had the internet; absent when it was reused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internet: Option<Internet>,
    /// Why the internet was unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internet_reason: Option<String>,
}

/// What a setup had of the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Internet {
    /// For the setup alone.
    DuringSetup,
    /// The policy of new workspaces allows it anyway.
    Allowed,
    /// It was not wanted.
    Off,
    /// This daemon's network cannot give it.
    Unavailable,
}

/// One step of a preparation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PrepareStep {
    /// What kind of step.
    pub kind: StepKind,
    /// What was done; a long command is cut.
    pub what: String,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The machine was started.
    Boot,
    /// The repository was cloned.
    Clone,
    /// One of `setup_commands` ran.
    Command,
    /// `golden` was made.
    Snapshot,
}

tools! { pub FAMILY: "orchestration" for Workspaces, singleton workspaces;
    workspace_prepare: WorkspacePrepare => Prepared = Workspaces::prepare {
        title: "Prepare a workspace to be forked", effect: Idempotent, rate: RateClass::Create,
        risk: Risk::Medium, open_world: true, timeout_secs: 900, limit_secs: time_of_all_steps,
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
