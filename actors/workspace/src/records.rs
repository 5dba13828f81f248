//! Records of a workspace, as its log has them.
//!
//! A record is an intent (`…Wanted`, `Planned`) made before the world is
//! touched, or a fact learnt after. Records are JSON; new kinds and new optional
//! fields may be added, none may change its meaning.

mod process;
mod recipe;

use std::{collections::BTreeMap, path::PathBuf};

use chrono::{DateTime, Utc};
use hivekeep_image::ImageDefaults;
use hivekeep_kernel::{
    JobId, LayerId, Resources, SessionId, SnapshotId, ToolError, User, WorkspaceId,
};
use hivekeep_link::LinkToken;
use hivekeep_machine::{AppliedLimits, Isolation, MachineHandle};
use hivekeep_ports::{AttachedVolume, NetworkRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use process::{ProcessEntry, ProcessExit};
pub(crate) use recipe::differences;
pub use recipe::{MadeOf, Pooled, Recipe, Role};

use crate::{
    lifetime::{Lifetime, LifetimeChange, LifetimeRequest, WorkspaceLabels},
    name::WorkspaceName,
    snapshots::{Artifact, Merge, SnapshotNode},
};

/// Entry of the stream `workspace/<id>`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A workspace shall be made, and its machine started for the first time. A restart before
    /// [`Record::Created`] undoes it.
    Planned(Planned),
    /// The workspace was made and answered its first call.
    Created {
        /// Time from the call to the first answer of the guest.
        boot_time_ms: u64,
    },
    /// The workspace was prepared for forks, and its snapshot is complete.
    Prepared {
        /// The snapshot `golden`.
        snapshot: SnapshotId,
    },
    /// The creation failed; the workspace's logs are kept, its resources are not.
    CreateFailed {
        /// Code of the error the caller got.
        code: String,
        /// Message of that error.
        message: String,
    },
    /// The disk is made over this base, which later starts must use again whatever
    /// image is current by then.
    DiskMade {
        /// The base's file system (vm) or folder (sandbox).
        base: PathBuf,
        /// The image's defaults for commands.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        defaults: Option<ImageDefaults>,
    },
    /// A machine shall be started again.
    StartWanted,
    /// The workspace mounts these volumes from its next start on.
    VolumesSet {
        /// All volumes that it mounts.
        volumes: Vec<AttachedVolume>,
    },
    /// A machine runs.
    Launched {
        /// Handle by which the machine is found again.
        handle: Box<MachineHandle>,
        /// Limits that really apply to the machine.
        limits: AppliedLimits,
    },
    /// The guest answers and is configured.
    Up {
        /// Time from the start of the machine to the first answer; 0 when it was attached again.
        boot_time_ms: u64,
        /// When the guest came up.
        at: DateTime<Utc>,
    },
    /// The machine shall stop.
    StopWanted,
    /// No machine runs.
    Stopped {
        /// When the machine stopped.
        at: DateTime<Utc>,
        /// How the machine came to its end.
        how: StopHow,
    },
    /// The machine ended without a request, or could not be started.
    Crashed {
        /// When the end was noticed.
        at: DateTime<Utc>,
        /// Reason, as far as it is known.
        reason: String,
    },
    /// Environment variables were set, or removed where the value is `None`.
    EnvSet {
        /// Values by name.
        vars: BTreeMap<String, Option<String>>,
    },
    /// The owner changed.
    Owned {
        /// The new owner; `None`: orphaned.
        by: Option<SessionId>,
        /// The user of that session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
    },
    /// A background job shall be started.
    JobWanted {
        /// The job's id, in the guest too.
        job: JobId,
        /// Command of the job.
        command: String,
    },
    /// The guest refused to start the job.
    JobRefused {
        /// The job.
        job: JobId,
    },
    /// A background job ended.
    JobEnded {
        /// The job.
        job: JobId,
        /// Exit of the job, as far as the guest said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<ProcessExit>,
    },
    /// A process shall be started: a job with an open input.
    ProcessWanted {
        /// The process's id, in the guest too.
        job: JobId,
        /// Arguments, place and terminal of the process.
        process: Box<ProcessEntry>,
    },
    /// The process was started.
    ProcessStarted {
        /// The process.
        job: JobId,
        /// Pid of the process in the guest.
        pid: u32,
    },
    /// A process that ended is shown no longer.
    ProcessForgotten {
        /// The process.
        job: JobId,
    },
    /// A snapshot shall be made: the disk's top is frozen and another begun.
    SnapshotWanted {
        /// The snapshot to be.
        node: Box<SnapshotNode>,
        /// The top's name once it is frozen.
        frozen: LayerId,
        /// The new top after the freeze.
        top: LayerId,
        /// The machine was paused before and stays so.
        paused: bool,
    },
    /// The snapshot wanted last is complete and durable.
    SnapshotMade {
        /// Bytes of the snapshot's memory, if the snapshot has it.
        memory_bytes: Option<u64>,
    },
    /// The snapshot wanted last was not made.
    SnapshotFailed {
        /// Whether the disk's top was switched all the same.
        switched: bool,
    },
    /// The workspace shall go back to a snapshot.
    RestoreWanted {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The disk's new top after the restore.
        top: LayerId,
    },
    /// The workspace stands at the snapshot wanted last; no machine runs.
    Restored {
        /// Whether the machine goes on from the snapshot's memory.
        with_memory: bool,
        /// Whether snapshots made after it are removed with this record.
        discard_newer: bool,
    },
    /// The restore failed before anything was lost.
    RestoreFailed,
    /// A snapshot was deleted.
    SnapshotDeleted {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The workspace shall be parked: its memory is being saved while its machine stands still.
    ParkWanted(ParkPlan),
    /// The memory is durable; the machine is ended now, and the disk is not written after it.
    Parked {
        /// Name of the memory: that of [`Record::ParkWanted`].
        park: SnapshotId,
        /// Bytes on the host's disk.
        memory_bytes: u64,
        /// When the workspace was parked.
        at: DateTime<Utc>,
    },
    /// The memory was not saved, or is not needed: the machine goes on.
    ParkFailed,
    /// The machine that was parked is gone.
    ParkEnded,
    /// The workspace goes on from its memory, which does not fit the disk any more.
    Woken,
    /// The parked memory is given up: the workspace starts from its disk.
    MemoryGivenUp,
    /// The machine is paused until it is used, or is not any more.
    RestSet {
        /// Whether any use has it go on.
        rests: bool,
    },
    /// The idle time after which the workspace is parked was set; `None`: as configured.
    IdleParkSet {
        /// Seconds; 0: never.
        secs: Option<u64>,
    },
    /// Two layers shall become one.
    MergeWanted(Merge),
    /// The merge wanted last is complete and durable; the two layers are not needed any more.
    Merged,
    /// The merge wanted last was given up.
    MergeFailed,
    /// A machine of the pool became a session's workspace.
    Claimed {
        /// The session.
        owner: SessionId,
        /// The user of that session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
        /// The workspace's new name.
        name: WorkspaceName,
        /// When it was claimed.
        at: DateTime<Utc>,
        /// The creation's network request.
        network: NetworkRequest,
        /// The creation's labels.
        #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
        labels: WorkspaceLabels,
        /// The workspace's lifetime.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lifetime: Option<Lifetime>,
    },
    /// The workspace's lifetime was changed or removed.
    LifetimeSet(LifetimeChange),
    /// The lifetime is over: its action is wanted from now on.
    LifetimeOver {
        /// The end that came; an end that was set meanwhile stays in force.
        ends_at: DateTime<Utc>,
        /// When the end was noticed.
        at: DateTime<Utc>,
    },
    /// The action at the end of the lifetime was carried out.
    LifetimeEnded {
        /// Same as in [`Record::LifetimeOver`].
        ends_at: DateTime<Utc>,
    },
    /// Everything of the workspace shall be removed.
    DestroyWanted,
}

/// The plan of a workspace, fixed at its creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// Unique name of the workspace.
    pub name: WorkspaceName,
    /// The session that asked for the workspace.
    pub owner: SessionId,
    /// The user of that session; missing in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Size and kind.
    pub spec: WorkspaceSpec,
    /// When the workspace was planned.
    pub at: DateTime<Utc>,
    /// The link's secret; the guest knows only its hash.
    pub token: LinkToken,
    /// A small number, unique among the workspaces that have a machine; gives the
    /// machine its user on the host.
    pub slot: u32,
    /// Proves that a process is this workspace's machine.
    pub uuid: uuid::Uuid,
    /// Origin of the workspace, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Box<Fork>>,
    /// The creation's network request. The network knows the policy in force.
    #[serde(default)]
    pub network: NetworkRequest,
    /// Recipe that is carried out before the workspace counts as made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Box<Recipe>>,
    /// Set while the workspace is the pool's: then `owner` is the session that operates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pooled>,
    /// The workspace is a sandbox with users besides root. Sandboxes of earlier versions have root alone, as
    /// have those made on a host that cannot have more, or with a folder of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several_users: bool,
    /// Volumes that the workspace mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachedVolume>,
    /// Names and values that the workspace's creator gave it.
    #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
    pub labels: WorkspaceLabels,
    /// Lifetime of the workspace, from when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<LifetimeRequest>,
}

impl Planned {
    /// The plan of a new workspace that is no fork and has no slot yet, with a secret, a UUID and a time of
    /// its own.
    ///
    /// # Errors
    /// When the host has no randomness.
    pub(crate) fn new(
        id: WorkspaceId,
        name: WorkspaceName,
        owner: SessionId,
        spec: WorkspaceSpec,
    ) -> Result<Self, ToolError> {
        let token =
            LinkToken::generate().map_err(|error| ToolError::internal(error.to_string()))?;
        Ok(Self {
            id,
            name,
            owner,
            user: None,
            spec,
            at: Utc::now(),
            token,
            slot: u32::MAX,
            uuid: uuid::Uuid::new_v4(),
            fork: None,
            network: NetworkRequest::default(),
            recipe: None,
            pool: None,
            several_users: false,
            volumes: Vec::new(),
            labels: WorkspaceLabels::new(),
            lifetime: None,
        })
    }

    /// The session whose quota the workspace counts against.
    pub(crate) fn holder(&self) -> Option<SessionId> {
        self.pool.is_none().then_some(self.owner)
    }
}

/// A park that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkPlan {
    /// Name of the parked memory among those of snapshots.
    pub park: SnapshotId,
    /// The snapshot whose memory the machine began with, if that is there: only the difference is saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<SnapshotId>,
    /// The machine was paused before.
    pub paused: bool,
}

impl ParkPlan {
    /// Memories that must be kept for the park.
    pub(crate) fn memories(self) -> impl Iterator<Item = Artifact> {
        std::iter::once(self.park).chain(self.base).map(Artifact::Memory)
    }
}

/// Origin of a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fork {
    /// The workspace that was forked.
    pub source: WorkspaceId,
    /// Name of that workspace at that time.
    pub source_name: WorkspaceName,
    /// The snapshot that was forked.
    pub snapshot: SnapshotId,
    /// Name of that snapshot at that time.
    pub snapshot_name: String,
    /// The base of the source's disk.
    pub base: PathBuf,
    /// The snapshot's layers over the base, oldest first.
    pub layers: Vec<LayerId>,
    /// The fork's own layer.
    pub top: LayerId,
    /// Set when the fork begins with the snapshot's memory: the secret that the guest in it expects of
    /// its link.
    pub memory: Option<LinkToken>,
    /// True if the source's tasks, which are in the memory, go on in the fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_tasks: bool,
    /// Environment of the source's commands.
    pub env: BTreeMap<String, String>,
    /// The image's defaults for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<ImageDefaults>,
}

/// Size and kind of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// Name of the image that the workspace was made from.
    pub image: String,
    /// Isolation of the machine.
    pub isolation: Isolation,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Usable size of the disk in GiB.
    pub disk_gb: u64,
}

impl WorkspaceSpec {
    /// Resources that the workspace counts against a quota.
    pub fn resources(&self) -> Resources {
        Resources::workspace(self.memory_mb, self.disk_gb)
    }

    /// The part of those resources that a parked workspace does not hold.
    pub(crate) fn memory(&self) -> Resources {
        Resources { memory_mb: self.memory_mb, ..Resources::default() }
    }
}

/// How a machine came to its end when it was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopHow {
    /// The guest ended its processes, synced its disk and powered off.
    Guest,
    /// The machine was killed after the grace period; unsynced writes of the guest are lost.
    Killed,
    /// The machine had ended already.
    AlreadyGone,
}
