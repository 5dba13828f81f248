//! Making, starting, stopping, looking at and removing workspaces.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, WorkspaceId};
use hivekeep_machine::{AcceleratorKind, AppliedLimits, Confinement, Isolation, MAX_VOLUMES};
use hivekeep_ports::{AttachedVolume, VolumeRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    lifetime::{AtEnd, MAX_LIFETIME_SECS, WorkspaceLabels},
    network::api::NetworkState,
    phase::{MachineProcess, Phase},
    records::{StopHow, WorkspaceSpec},
    snapshot::api::{ForkedFrom, SnapshotSummary},
};

/// Create and start a new isolated workspace. Returns once a command can be run
/// in it. Sizes left out come from the daemon's configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceCreate {
    /// Unique name: 1 to 63 of a-z, 0-9 and -, usable wherever an id is asked for. Default: ws- and eight hex digits.
    pub name: Option<String>,
    /// Image to start from: a name that `hivekeep image list` shows, or a full reference such as `docker.io/library/python:3.12`, which is pulled first if it is not here and the daemon's policy allows its registry.
    pub base_image: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Usable disk size in GiB.
    pub disk_gb: Option<u64>,
    /// Let the workspace reach public addresses of the internet; network_policy changes it later and can allow more. Refused where that cannot be kept: in a sandbox, and where the daemon has no bridge. Default: `network.default_allow_internet` of the configuration.
    pub allow_internet: Option<bool>,
    /// How to isolate it: `vm` is a machine with a kernel of its own, `sandbox` shares the host's kernel and starts faster. Never substituted for one another.
    pub isolation: Option<Isolation>,
    /// Volumes to mount, as `aegis.volume.list` has them: storage that stays when the workspace is gone.
    #[schemars(length(max = MAX_VOLUMES))]
    pub volumes: Option<Vec<VolumeRequest>>,
    /// End it so long after it is ready, as at_end says. Default: it has no end.
    #[schemars(range(min = 1, max = MAX_LIFETIME_SECS))]
    pub lifetime_secs: Option<u64>,
    /// Action at that end: `stop`, the default, `destroy`, or with its memory kept `pause` or `park`.
    pub at_end: Option<AtEnd>,
    /// Names and values to find it by in workspace_list.
    pub labels: Option<WorkspaceLabels>,
}

/// Size of a workspace.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct Size {
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Usable disk size in GiB.
    pub disk_gb: u64,
}

impl Size {
    /// The size part of a plan.
    pub(crate) fn of(spec: &WorkspaceSpec) -> Self {
        Self { vcpus: spec.vcpus, memory_mb: spec.memory_mb, disk_gb: spec.disk_gb }
    }
}

/// A new workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceCreated {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `running`.
    pub state: Phase,
    /// Its address; null while it has no network.
    pub ip: Option<String>,
    /// From the call to the guest's first answer.
    pub boot_time_ms: u64,
    /// Whether a machine booted in advance was used.
    pub from_pool: bool,
    /// Size that the workspace really has.
    pub resources: Size,
    /// How it is isolated.
    pub isolation: Isolation,
}

/// List workspaces, newest last, with who owns them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceList {
    /// Only those in this state.
    pub state_filter: Option<Phase>,
    /// Only those that have all of these labels.
    pub labels: Option<WorkspaceLabels>,
}

/// All workspaces that match.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceListed {
    /// Workspaces, oldest first.
    pub workspaces: Vec<WorkspaceRow>,
    /// Number of workspaces.
    pub count: usize,
}

/// Workspace as a list shows it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceRow {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Phase of the workspace's life.
    pub state: Phase,
    /// Whether a process of its machine is on the host, as workspace_info tells it.
    pub process: MachineProcess,
    /// Its address; null while it has no network.
    pub ip: Option<String>,
    /// Whether the calling session owns it.
    pub owned: bool,
    /// Whether nobody does, so that workspace_adopt may take it.
    pub orphaned: bool,
    /// Its size.
    pub resources: Size,
    /// How it is isolated.
    pub isolation: Isolation,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Names and values that the workspace was created with.
    #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
    pub labels: WorkspaceLabels,
    /// Time at which the workspace ends by itself; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// Action at that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_end: Option<AtEnd>,
}

/// Stop and permanently remove a workspace: its machine, its disk, its record.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceDestroy {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// A removed workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceDestroyed {
    /// Its former id.
    pub workspace_id: WorkspaceId,
    /// Its former name, free again.
    pub name: String,
    /// Always true: a removal that left anything behind is an error.
    pub destroyed: bool,
}

/// Start the machine of a stopped or crashed workspace on its own disk, or wake a parked one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceStart {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Volumes to mount from now on, in place of those that it had; empty for none. Default: the same as before.
    #[schemars(length(max = MAX_VOLUMES))]
    pub volumes: Option<Vec<VolumeRequest>>,
    /// Give the memory of a parked workspace up and boot from its disk, as after a power cut. Otherwise it goes on where it was.
    #[serde(default)]
    pub from_disk: bool,
}

/// A started workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceStarted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `running`.
    pub state: Phase,
    /// Its address; null while it has no network.
    pub ip: Option<String>,
    /// From the call to the guest's first answer.
    pub boot_time_ms: u64,
}

/// Stop a running workspace in order; its disk is kept and it can be started again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceStop {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// A stopped workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceStopped {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `stopped`.
    pub state: Phase,
    /// Whether the guest shut down in order or had to be killed.
    pub how: StopHow,
}

/// Everything known about one workspace.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceInfo {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// Workspace with its machine, network, volumes and snapshots.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceDetails {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Phase of the workspace's life.
    pub state: Phase,
    /// Why it crashed or could not be made, and what to do about a process that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether a process of its machine is on the host. In the state `crashed`, `running` and `unknown` say that a start, a stop or a recovery failed and left one, or may have: workspace_stop ends it.
    pub process: MachineProcess,
    /// The image it was made from.
    pub base_image: String,
    /// Whom commands run as unless a call says otherwise.
    #[serde(default)]
    pub user: String,
    /// Why that is not the image's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_note: Option<String>,
    /// Its address; null while it has no network.
    pub ip: Option<String>,
    /// Its size.
    pub resources: Size,
    /// How it is connected, what it may reach, what leads to it.
    pub network: NetworkState,
    /// Volumes that it mounts while it runs, and keeps from being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachedVolume>,
    /// Its snapshots, oldest first; snapshot with action `list` shows their sizes.
    pub snapshots: Vec<SnapshotSummary>,
    /// Snapshot that the workspace is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Session that owns the workspace; null when orphaned.
    pub owner: Option<SessionId>,
    /// Whether the calling session owns it.
    pub owned: bool,
    /// How it is isolated.
    pub isolation: Isolation,
    /// Names and values that the workspace was created with.
    #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
    pub labels: WorkspaceLabels,
    /// Time at which the workspace ends by itself; absent where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// Action at that end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_end: Option<AtEnd>,
    /// Why the workspace's end, which is due, could not be carried out yet; it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_delayed: Option<String>,
    /// Bytes of a parked workspace's memory on the host's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_bytes: Option<u64>,
    /// Idle seconds after which the workspace is parked by itself; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_park_secs: Option<u64>,
    /// The machine, while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineDetails>,
    /// Names and values of the persistent environment.
    pub env: BTreeMap<String, String>,
    /// Background jobs not known to have ended.
    pub running_jobs: Vec<String>,
    /// Program and arguments of the image's entry point, as `entrypoint` of cmd.run starts it where the
    /// call adds none; absent where the image has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Bytes in use on its disk, asked of the guest; absent while it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_used_bytes: Option<u64>,
    /// Size of its file system; absent while it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_volsize_bytes: Option<u64>,
    /// Why the guest could not be asked for the disk's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_error: Option<String>,
    /// How long its last start took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_time_ms: Option<u64>,
}

/// A running machine.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MachineDetails {
    /// Process id of the hypervisor or sandbox on the host.
    pub pid: i32,
    /// Accelerator that executes the guest: `tcg` is software emulation.
    pub accelerator: AcceleratorKind,
    /// How the guest is reached.
    pub carrier: String,
    /// Whether the guest answers now.
    pub link: String,
    /// Bytes of the host's memory that the machine holds.
    pub memory_bytes: Option<u64>,
    /// Processor time in milliseconds that the machine took on the host since its start.
    pub cpu_ms: Option<u64>,
    /// Which limits really apply, and how.
    pub limits: AppliedLimits,
    /// Confinement of a sandbox on this host; absent for a virtual machine.
    pub confinement: Option<Confinement>,
}
