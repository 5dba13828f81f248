//! Snapshots of a workspace, and forks of them.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SnapshotId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    lifetime::{AtEnd, MAX_LIFETIME_SECS, WorkspaceLabels},
    phase::Phase,
    records::Fork,
    snapshots::SnapshotNode,
};

/// Forks that one call makes.
const MAX_COUNT: u32 = 20;

/// Create, restore, list or delete snapshots of a workspace. A snapshot keeps the
/// disk and, asked for, the memory. Restoring goes back to any of them and keeps
/// the others; what is in none of them is lost.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Id or name of the workspace.
    pub workspace_id: String,
    #[serde(flatten)]
    pub(crate) action: SnapshotAction,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum SnapshotAction {
    /// Make one.
    Create {
        /// Name of the snapshot, 1 to 128 of A-Z, a-z, 0-9, ., _ and -.
        name: String,
        /// Keep the memory too. Needs a running `vm` workspace. Default: false.
        include_memory: Option<bool>,
    },
    /// Go back to one.
    Restore {
        /// Name of the snapshot, 1 to 128 of A-Z, a-z, 0-9, ., _ and -.
        name: String,
        /// Also remove the snapshots made after it. Default: false.
        discard_newer: Option<bool>,
    },
    /// Show all.
    List,
    /// Remove one.
    Delete {
        /// Name of the snapshot, 1 to 128 of A-Z, a-z, 0-9, ., _ and -.
        name: String,
        /// Also where newer ones were made, which stay.
        keep_newer: Option<bool>,
    },
}

/// Result of an action on snapshots.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SnapshotResult {
    /// create, restore, delete: the snapshot.
    pub snapshot_id: Option<SnapshotId>,
    /// create, restore, delete: its name.
    pub name: Option<String>,
    /// The workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// create: whether it holds memory. restore: whether the machine goes on from it.
    pub has_memory: Option<bool>,
    /// create: when it was made.
    pub created_at: Option<DateTime<Utc>>,
    /// create: whether the guest wrote its cache to the disk first. Not so of a paused or crashed workspace: without memory, its disk is as after a power cut.
    pub disk_synced: Option<bool>,
    /// create: how long the guest stood still.
    pub pause_ms: Option<u64>,
    /// create: volumes that the workspace has mounted, whose files are not part of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes_left_out: Option<Vec<String>>,
    /// create: bytes of memory on the host's disk.
    pub memory_bytes: Option<u64>,
    /// restore: the state now.
    pub state: Option<Phase>,
    /// restore: until the guest answered.
    pub boot_time_ms: Option<u64>,
    /// restore: snapshots removed by discard_newer.
    pub discarded: Option<Vec<String>>,
    /// delete: always true; one that could not be deleted is an error.
    pub deleted: Option<bool>,
    /// delete: whether a layer of the disk that this left over was merged with the one beside it.
    pub merged: Option<bool>,
    /// delete: why the layer was not merged. That of a running workspace is merged when it is stopped.
    pub not_merged: Option<String>,
    /// list: all snapshots, oldest first.
    pub snapshots: Option<Vec<SnapshotRow>>,
    /// list: number of snapshots.
    pub count: Option<usize>,
}

/// Snapshot without its sizes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSummary {
    /// Its id.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// Whether it holds memory.
    pub has_memory: bool,
    /// The snapshot it descends from; null for the first.
    pub parent: Option<SnapshotId>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl SnapshotSummary {
    pub(crate) fn of(node: &SnapshotNode) -> Self {
        Self {
            id: node.id,
            name: node.name.clone(),
            has_memory: node.memory.is_some(),
            parent: node.parent,
            created_at: node.at,
        }
    }
}

/// Snapshot with its sizes and dependents.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotRow {
    /// Its id.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// Whether it holds memory.
    pub has_memory: bool,
    /// The snapshot it descends from; null for the first.
    pub parent: Option<SnapshotId>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Whether the workspace's present state descends from it directly.
    pub current: bool,
    /// Bytes that deleting it would free.
    pub own_bytes: u64,
    /// Bytes it shares with other snapshots, forks or the workspace's disk.
    pub shared_bytes: u64,
    /// Names of the snapshots that descend from this one, and of its forks; they keep it from being deleted.
    pub dependents: Vec<String>,
}

/// Make new workspaces that begin as a snapshot of another one. One is named
/// `new_name`; with `count` above 1 they are made side by side and named
/// `name_prefix`-1 and so on, and each that fails is reported on its own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceFork {
    /// Id or name of the workspace whose snapshot is forked; it may be in any state.
    pub workspace_id: String,
    /// Name of the snapshot.
    pub snapshot_name: String,
    /// Name of the new workspace, when it is one.
    pub new_name: Option<String>,
    /// Number of forks. Default: 1.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub count: Option<u32>,
    /// Several are named after this, with the first free numbers. Default: worker.
    pub name_prefix: Option<String>,
    /// Begin with the snapshot's memory. Default: whenever it has one.
    pub with_memory: Option<bool>,
    /// Virtual CPUs; default: as the source. Other than the source's only without memory.
    pub vcpus: Option<u32>,
    /// Memory in MiB; default: as the source. Other than the source's only without memory.
    pub memory_mb: Option<u64>,
    /// Let them reach public addresses of the internet; default: as the source. Port forwards are never inherited.
    pub allow_internet: Option<bool>,
    /// Let them and other workspaces that allow it too reach each other; default: as the source.
    pub allow_inter_vm: Option<bool>,
    /// Further targets, as network_policy takes them; default: as the source.
    pub egress_allow: Option<Vec<String>>,
    /// End each so long after it is ready, as at_end says. Default: no end.
    #[schemars(range(min = 1, max = MAX_LIFETIME_SECS))]
    pub lifetime_secs: Option<u64>,
    /// Action at that end: `stop`, the default, `destroy`, or with its memory kept `pause` or `park`.
    pub at_end: Option<AtEnd>,
    /// Names and values to find them by in workspace_list; default: as the source.
    pub labels: Option<WorkspaceLabels>,
}

/// Freeze a running workspace as it is and fork it, in one call: a snapshot with
/// memory and forks of it. The source stands still only while it is frozen.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceBranch {
    /// Id or name of the running workspace.
    pub workspace_id: String,
    /// Name of the snapshot that is made; default: branch- and eight hex digits.
    pub snapshot_name: Option<String>,
    /// Name of the new workspace, when it is one.
    pub new_name: Option<String>,
    /// Number of forks. Default: 1.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub count: Option<u32>,
    /// Several are named after this, with the first free numbers. Default: worker.
    pub name_prefix: Option<String>,
}

/// The forks.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Forked {
    /// Id of a single fork.
    pub workspace_id: Option<WorkspaceId>,
    /// Name of a single fork.
    pub name: Option<String>,
    /// State of a single fork: `running`.
    pub state: Option<Phase>,
    /// Address of a single fork.
    pub ip: Option<String>,
    /// Origin of a single fork.
    pub forked_from: Option<ForkedFrom>,
    /// The forked workspace.
    pub source_workspace_id: Option<WorkspaceId>,
    /// The forked snapshot.
    pub snapshot_name: Option<String>,
    /// Whether the forks began with the snapshot's memory, whose pages they share until they write.
    pub with_memory: Option<bool>,
    /// workspace_branch: how long the source stood still.
    pub pause_ms: Option<u64>,
    /// Several: how many were asked for.
    pub requested_count: Option<usize>,
    /// Several: how many run.
    pub success_count: Option<usize>,
    /// Several: how many do not.
    pub failure_count: Option<usize>,
    /// Several: those that run.
    pub workers: Option<Vec<Worker>>,
    /// Several: those that do not; nothing of them is left.
    pub failures: Option<Vec<NotForked>>,
}

/// Lineage of a fork.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    /// The forked workspace, which may be gone by now.
    pub source_workspace_id: WorkspaceId,
    /// Its name at that time.
    pub source_workspace_name: String,
    /// The snapshot's name at that time.
    pub snapshot_name: String,
}

impl ForkedFrom {
    pub(crate) fn of(fork: &Fork) -> Self {
        Self {
            source_workspace_id: fork.source,
            source_workspace_name: fork.source_name.to_string(),
            snapshot_name: fork.snapshot_name.clone(),
        }
    }
}

/// Fork that runs, among several.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Its address.
    pub ip: Option<String>,
    /// From the start of its making to the guest's first answer.
    pub boot_time_ms: u64,
}

/// A fork that was not made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NotForked {
    /// Which, from 0.
    pub index: usize,
    /// The name it would have had.
    pub name: String,
    /// Code of the error.
    pub code: String,
    /// Why.
    pub error: String,
}
