//! Records of a workspace, as its log has them.
//!
//! A record is an intent (`…Wanted`, `Planned`) made before the world is
//! touched, or a fact learnt after. Records are JSON; new kinds and new optional
//! fields may be added, none may change its meaning.

mod pooled;
mod process;
mod recipe;

use std::{collections::BTreeMap, path::PathBuf};

use chrono::{DateTime, Utc};
use hivekeep_image::ImageDefaults;
use hivekeep_kernel::{
    JobId, LayerId, Resources, SessionId, SnapshotId, ToolError, User, WorkspaceId,
    ports::{AttachedVolume, NetworkWish},
};
use hivekeep_link::LinkToken;
use hivekeep_machine::{AppliedLimits, Isolation, MachineHandle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use pooled::{MadeOf, Pooled, Role};
pub use process::{ProcessEntry, ProcessExit};
pub use recipe::Recipe;
pub(crate) use recipe::differences;

use crate::{
    lifetime::{Lifetime, LifetimeChange, LifetimeWish, WorkspaceLabels},
    name::WorkspaceName,
    snapshots::{Artifact, Merge, SnapshotNode},
};

/// One entry of the stream `workspace/<id>`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A workspace shall be made, its machine be started for the first time. Until
    /// [`Record::Created`] it is undone by a restart.
    Planned(Planned),
    /// It was made and answered its first call.
    Created {
        /// From the call to the first answer of the guest.
        boot_time_ms: u64,
    },
    /// It was made to be forked, and its snapshot is complete.
    Prepared {
        /// The snapshot `golden`.
        snapshot: SnapshotId,
    },
    /// Making it failed; its logs are kept, its resources are not.
    CreateFailed {
        /// Code of the error the caller got.
        code: String,
        /// Its message.
        message: String,
    },
    /// The disk is made over this base, which later starts must use again whatever
    /// image is current by then.
    DiskMade {
        /// The base's file system (vm) or folder (sandbox).
        base: PathBuf,
        /// What the image says that commands begin with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        defaults: Option<ImageDefaults>,
    },
    /// A machine shall be started again.
    StartWanted,
    /// It mounts these volumes from its next start on.
    VolumesSet {
        /// All of them.
        volumes: Vec<AttachedVolume>,
    },
    /// A machine runs.
    Launched {
        /// How to find it again.
        handle: Box<MachineHandle>,
        /// Which limits really apply to it.
        limits: AppliedLimits,
    },
    /// The guest answers and is configured.
    Up {
        /// From the start of the machine to the first answer; 0 when it was attached again.
        boot_time_ms: u64,
        /// When.
        at: DateTime<Utc>,
    },
    /// The machine shall stop.
    StopWanted,
    /// No machine runs.
    Stopped {
        /// When.
        at: DateTime<Utc>,
        /// The guest shut down by itself, or what was done instead.
        how: StopHow,
    },
    /// The machine ended without having been told to, or could not be started.
    Crashed {
        /// When it was noticed.
        at: DateTime<Utc>,
        /// Why, as far as it is known.
        reason: String,
    },
    /// Environment variables were set, or removed where the value is `None`.
    EnvSet {
        /// By name.
        vars: BTreeMap<String, Option<String>>,
    },
    /// The owner changed.
    Owned {
        /// `None`: orphaned.
        by: Option<SessionId>,
        /// The user of that session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
    },
    /// A background job shall be started.
    JobWanted {
        /// Its id in the guest too.
        job: JobId,
        /// What it runs.
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
        /// How, as far as the guest said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<ProcessExit>,
    },
    /// A process shall be started: a job with an open input.
    ProcessWanted {
        /// Its id in the guest too.
        job: JobId,
        /// What it runs.
        process: Box<ProcessEntry>,
    },
    /// It was started.
    ProcessStarted {
        /// The process.
        job: JobId,
        /// Its first process in the guest.
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
        /// The top after that.
        top: LayerId,
        /// The machine was paused before and stays so.
        paused: bool,
    },
    /// The snapshot wanted last is complete and durable.
    SnapshotMade {
        /// Bytes of its memory, when that was asked for.
        memory_bytes: Option<u64>,
    },
    /// The snapshot wanted last was not made.
    SnapshotFailed {
        /// Whether the disk's top was changed all the same.
        switched: bool,
    },
    /// The workspace shall go back to a snapshot.
    RestoreWanted {
        /// Which.
        snapshot: SnapshotId,
        /// The disk's top after that.
        top: LayerId,
    },
    /// It stands at the snapshot wanted last; no machine runs.
    Restored {
        /// Whether the machine goes on from the snapshot's memory.
        with_memory: bool,
        /// Whether snapshots made after it are removed with this.
        discard_newer: bool,
    },
    /// Going back failed before anything was lost.
    RestoreFailed,
    /// A snapshot does not exist any more.
    SnapshotDeleted {
        /// Which.
        snapshot: SnapshotId,
    },
    /// It shall be parked: its memory is being saved, and it stands still for that.
    ParkWanted(ParkWish),
    /// Its memory is durable; the machine is ended now. Nothing is written to the disk behind it.
    Parked {
        /// Whose memory: that of the wish.
        park: SnapshotId,
        /// Bytes on the host's disk.
        memory_bytes: u64,
        /// When.
        at: DateTime<Utc>,
    },
    /// Its memory was not saved, or is not needed: the machine goes on.
    ParkFailed,
    /// The machine that was parked is gone.
    ParkEnded,
    /// It goes on from its memory now, which belongs to the disk no more.
    Woken,
    /// Its memory is given up: it starts from its disk.
    MemoryGivenUp,
    /// It is parked by itself when it was idle for so long; `None`: as configured.
    IdleParkSet {
        /// Seconds; 0: never.
        secs: Option<u64>,
    },
    /// Two layers shall become one.
    MergeWanted(Merge),
    /// The merge wanted last is complete and durable; the two are not needed any more.
    Merged,
    /// It was given up.
    MergeFailed,
    /// It was the pool's and is somebody's from now on.
    Claimed {
        /// Whose.
        owner: SessionId,
        /// The user of that session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
        /// Its name from now on.
        name: WorkspaceName,
        /// When.
        at: DateTime<Utc>,
        /// What its creation asked of the network.
        network: NetworkWish,
        /// What its creation gave it.
        #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
        labels: WorkspaceLabels,
        /// When it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lifetime: Option<Lifetime>,
    },
    /// It ends at another time, or otherwise, or not at all.
    LifetimeSet(LifetimeChange),
    /// The time of its end came: what was to happen then is wanted from now on.
    LifetimeOver {
        /// The end that it was; another one that was set meanwhile holds.
        ends_at: DateTime<Utc>,
        /// When that was noticed.
        at: DateTime<Utc>,
    },
    /// What was to happen at the end of its lifetime has happened.
    LifetimeEnded {
        /// As of [`Record::LifetimeOver`].
        ends_at: DateTime<Utc>,
    },
    /// Everything of the workspace shall be removed.
    DestroyWanted,
}

/// The plan of a workspace, fixed at its creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// Its id.
    pub id: WorkspaceId,
    /// Its unique name.
    pub name: WorkspaceName,
    /// The session that asked for it.
    pub owner: SessionId,
    /// The user of that session; not there in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Size and kind.
    pub spec: WorkspaceSpec,
    /// When.
    pub at: DateTime<Utc>,
    /// The link's secret; the guest knows only its hash.
    pub token: LinkToken,
    /// A small number, unique among the workspaces that have a machine; gives the
    /// machine its user on the host.
    pub slot: u32,
    /// Proves that a process is this workspace's machine.
    pub uuid: uuid::Uuid,
    /// What it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Box<Fork>>,
    /// What its creation asked of the network. What holds is known there.
    #[serde(default)]
    pub network: NetworkWish,
    /// What it is prepared with before it counts as made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Box<Recipe>>,
    /// Set while it is the pool's and nobody's else: then `owner` is who operates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pooled>,
    /// A sandbox that has users besides root. Those of earlier versions have root alone, as have those that
    /// were made where more was not to be had, or beside a folder of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several_users: bool,
    /// Volumes that it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachedVolume>,
    /// Names and values that its creator gave it.
    #[serde(default, skip_serializing_if = "WorkspaceLabels::is_empty")]
    pub labels: WorkspaceLabels,
    /// How long it lives once it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<LifetimeWish>,
}

impl Planned {
    /// The plan of a workspace from nothing that has no slot yet, with a secret, a proof and a time
    /// of its own.
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
            network: NetworkWish::default(),
            recipe: None,
            pool: None,
            several_users: false,
            volumes: Vec::new(),
            labels: WorkspaceLabels::new(),
            lifetime: None,
        })
    }

    /// Whose quota it counts against.
    pub(crate) fn holder(&self) -> Option<SessionId> {
        self.pool.is_none().then_some(self.owner)
    }
}

/// A park that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkWish {
    /// Name of its memory among those of snapshots.
    pub park: SnapshotId,
    /// The snapshot whose memory it began with, if that is there: only the difference is saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<SnapshotId>,
    /// The machine was paused before.
    pub paused: bool,
}

impl ParkWish {
    /// Memories that must be kept for it.
    pub(crate) fn memories(self) -> impl Iterator<Item = Artifact> {
        std::iter::once(self.park).chain(self.base).map(Artifact::Memory)
    }
}

/// Where a fork begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fork {
    /// The workspace that was forked.
    pub source: WorkspaceId,
    /// Its name at that time.
    pub source_name: WorkspaceName,
    /// The snapshot that was forked.
    pub snapshot: SnapshotId,
    /// Its name at that time.
    pub snapshot_name: String,
    /// The base of the source's disk.
    pub base: PathBuf,
    /// The snapshot's layers over it, oldest first.
    pub layers: Vec<LayerId>,
    /// The fork's own layer.
    pub top: LayerId,
    /// Set when it begins with the snapshot's memory: what the guest in there takes for its
    /// link's secret.
    pub memory: Option<LinkToken>,
    /// Environment of the source's commands.
    pub env: BTreeMap<String, String>,
    /// What its image says that commands begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<ImageDefaults>,
}

/// Size and kind of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// Name of the image it was made from.
    pub image: String,
    /// How it is isolated.
    pub isolation: Isolation,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Usable size of its disk in GiB.
    pub disk_gb: u64,
}

impl WorkspaceSpec {
    /// What it counts against a quota.
    pub fn resources(&self) -> Resources {
        Resources::workspace(self.memory_mb, self.disk_gb)
    }

    /// The part of it that a parked one does not hold.
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
    /// It was killed after the grace period; unsynced writes of the guest are lost.
    Killed,
    /// It had ended already.
    AlreadyGone,
}
