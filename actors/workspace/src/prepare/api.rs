//! Workspaces that are made to be forked.

use hivekeep_kernel::{SnapshotId, WorkspaceId};
use hivekeep_machine::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands::api::MAX_TIMEOUT_SECS;

/// Limit of one command when the input names none.
pub(super) const DEFAULT_TIMEOUT_SECS: u64 = 300;

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
    #[schemars(length(max = 64))]
    pub setup_commands: Option<Vec<String>>,
    /// Wall-clock limit of the clone and of each command in seconds, 1 to 86400. Default: 300.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
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
    /// The workspace was there already, made from the same recipe: nothing was done.
    pub reused_existing: bool,
    /// Whether the snapshot keeps the memory.
    pub has_memory: bool,
    /// Steps that were done, in order; empty when the workspace was reused.
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

/// Access to the internet during a setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Internet {
    /// Access for the setup alone.
    DuringSetup,
    /// The policy of new workspaces allows it anyway.
    Allowed,
    /// Access was not wanted.
    Off,
    /// This daemon's network cannot give access.
    Unavailable,
}

/// Step of a preparation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PrepareStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Command or action of the step; a long command is cut.
    pub what: String,
    /// Time that the step took.
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
    /// A command of `setup_commands` ran.
    Command,
    /// `golden` was made.
    Snapshot,
}
