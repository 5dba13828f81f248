//! Durable state of a workspace, folded from its records. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use chrono::{DateTime, Utc};
use hivekeep_image::ImageDefaults;
use hivekeep_kernel::{JobId, LayerId, Resources, SessionId, SnapshotId, User};
use hivekeep_machine::{AppliedLimits, MachineHandle};
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::{
    lifetime::Lifetime,
    records::{ParkPlan, Planned, ProcessEntry, Record},
    snapshots::{Artifact, DiskLayers, Merge, SnapshotNode, Tree},
};

/// The durable state of one workspace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ledger {
    /// Plan of the workspace: size, kind, name.
    pub plan: Planned,
    /// The session that owns the workspace; `None` when it is orphaned.
    pub owner: Option<SessionId>,
    /// The user of the session that owned the workspace last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Set once creation was acknowledged.
    pub created: bool,
    /// The snapshot that the workspace's preparation ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden: Option<SnapshotId>,
    /// Set when creation failed: code and message.
    pub failed: Option<(String, String)>,
    /// The machine as last recorded.
    pub machine: MachineFact,
    /// File system (vm) or folder (sandbox) that the disk was made over.
    pub base: Option<PathBuf>,
    /// The image's defaults for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<ImageDefaults>,
    /// Persistent environment of the workspace's commands.
    pub env: BTreeMap<String, String>,
    /// Jobs started and not known to have ended.
    pub jobs: BTreeSet<JobId>,
    /// Processes that are shown. Those among the jobs may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<JobId, ProcessEntry>,
    /// The workspace is to be removed.
    pub destroying: bool,
    /// Boot time of the last start.
    pub boot_time_ms: Option<u64>,
    /// When the machine last came up.
    pub up_at: Option<DateTime<Utc>>,
    /// The layers of the disk.
    #[serde(default)]
    pub disk: DiskLayers,
    /// The workspace's snapshots.
    #[serde(default)]
    pub snapshots: Tree,
    /// A change of disk or snapshots that was begun and not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<DiskChange>,
    /// Two layers that are being merged. Nothing else waits for the merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
    /// When the workspace ends, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// The park under way: the workspace's memory is being saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parking: Option<ParkPlan>,
    /// The memory that the workspace goes on from. Without it, no machine means stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Box<ParkedMemory>>,
    /// See [`Record::RestSet`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    /// See [`Record::IdleParkSet`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_park_secs: Option<u64>,
}

/// Memory of a parked machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ParkedMemory {
    /// Where the memory is, and which memory it is a difference to.
    #[serde(rename = "wish")]
    pub plan: ParkPlan,
    /// Bytes on the host's disk.
    pub bytes: u64,
    /// When the workspace was parked.
    pub at: DateTime<Utc>,
    /// The machine whose memory it is, until that machine is known to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<MachineHandle>,
}

/// A change of the disk that a crash may have cut short.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum DiskChange {
    /// See [`Record::SnapshotWanted`].
    Snapshot {
        /// The snapshot to be.
        node: Box<SnapshotNode>,
        /// The top's name once it is frozen.
        frozen: LayerId,
        /// The new top after the freeze.
        top: LayerId,
        /// The frozen layer was the workspace's first, which had another name.
        first: bool,
        /// The machine was paused before.
        paused: bool,
    },
    /// See [`Record::RestoreWanted`].
    Restore {
        /// The snapshot to go back to.
        snapshot: SnapshotId,
        /// The new top after the restore.
        top: LayerId,
    },
}

impl DiskChange {
    /// Applies a change that was cut short to the disk, as if it were settled.
    pub(crate) fn apply_to(&self, disk: &mut DiskLayers) {
        if let Self::Snapshot { frozen, top, .. } = self {
            disk.freeze(*frozen, *top);
        }
    }

    /// Files that exist, or may, because of the change.
    fn artifacts(&self) -> Vec<Artifact> {
        match self {
            Self::Snapshot { node, frozen, top, .. } => {
                let memory = node.memory.as_ref().map(|_| Artifact::Memory(node.id));
                [Artifact::Layer(*frozen), Artifact::Layer(*top)]
                    .into_iter()
                    .chain(memory)
                    .collect()
            }
            Self::Restore { top, .. } => vec![Artifact::Layer(*top)],
        }
    }
}

/// The machine as last recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum MachineFact {
    /// Never started, or stopped.
    Stopped,
    /// A start was intended; a process may exist that no record names.
    Starting,
    /// A process was started.
    Launched {
        /// Handle by which the process is found.
        handle: Box<MachineHandle>,
        /// Limits on the process.
        limits: AppliedLimits,
        /// The guest answered.
        up: bool,
        /// A stop was intended.
        stopping: bool,
    },
    /// The machine ended by itself.
    Crashed {
        /// Why it ended.
        reason: String,
    },
}

impl Sourced for Ledger {
    const KIND: &'static str = "workspace";
    const FOLD_EVERY: usize = 256;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Planned(plan) => Ok(Self::new(plan)),
            other => Err(other),
        }
    }

    /// Any record may follow any other: what was written once is read for ever.
    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Planned(_) => {}
            Record::Created { boot_time_ms } => {
                self.created = true;
                self.boot_time_ms = Some(boot_time_ms);
                let begun = self.up_at.unwrap_or(self.plan.at);
                self.lifetime = self.plan.lifetime.map(|request| request.from(begun));
            }
            Record::Prepared { snapshot } => self.golden = Some(snapshot),
            Record::CreateFailed { code, message } => {
                self.failed = Some((code, message));
                self.machine = MachineFact::Stopped;
            }
            Record::DiskMade { base, defaults } => {
                (self.base, self.defaults) = (Some(base), defaults);
            }
            Record::StartWanted => self.machine = MachineFact::Starting,
            Record::VolumesSet { volumes } => self.plan.volumes = volumes,
            Record::Launched { handle, limits } => {
                self.machine = MachineFact::Launched { handle, limits, up: false, stopping: false };
            }
            Record::Up { boot_time_ms, at } => {
                if let MachineFact::Launched { up, .. } = &mut self.machine {
                    *up = true;
                }
                // A re-attached machine did not boot.
                if boot_time_ms > 0 {
                    self.boot_time_ms = Some(boot_time_ms);
                }
                self.up_at = Some(at);
            }
            Record::StopWanted => {
                if let MachineFact::Launched { stopping, .. } = &mut self.machine {
                    *stopping = true;
                }
            }
            Record::Stopped { .. } => {
                self.machine = MachineFact::Stopped;
                (self.parking, self.rests) = (None, false);
            }
            Record::Crashed { reason, .. } => {
                self.parking = None;
                // A workspace whose memory is durable, and that did not go on from it, lost nothing.
                self.machine = match self.parked {
                    Some(_) => MachineFact::Stopped,
                    None => MachineFact::Crashed { reason },
                };
            }
            Record::EnvSet { vars } => vars.into_iter().for_each(|(name, value)| {
                match value {
                    Some(value) => self.env.insert(name, value),
                    None => self.env.remove(&name),
                };
            }),
            Record::Owned { by, user } => {
                self.owner = by;
                // An orphaned workspace still belongs to its last user.
                self.user = if by.is_some() { user } else { self.user };
            }
            Record::Claimed { owner, user, name, at, network, labels, lifetime } => {
                (self.owner, self.user) = (Some(owner), user);
                self.lifetime = lifetime;
                // The template that the machine was copied from is internal to the pool.
                let plan = self.plan.clone();
                self.plan =
                    Planned { owner, name, at, network, labels, pool: None, fork: None, ..plan };
            }
            Record::DestroyWanted => self.destroying = true,
            other => self.apply_job(other),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

impl Ledger {
    /// The state right after the plan.
    pub fn new(plan: Planned) -> Self {
        let fork = plan.fork.as_deref();
        let disk = fork.map(|fork| DiskLayers { layers: fork.layers.clone(), top: Some(fork.top) });
        let (base, env) = fork.map(|fork| (fork.base.clone(), fork.env.clone())).unzip();
        Self {
            owner: plan.holder(),
            user: plan.user,
            disk: disk.unwrap_or_default(),
            base,
            defaults: plan.fork.as_ref().and_then(|fork| fork.defaults.clone()),
            env: env.unwrap_or_default(),
            plan,
            created: false,
            golden: None,
            failed: None,
            machine: MachineFact::Stopped,
            snapshots: Tree::default(),
            change: None,
            merge: None,
            lifetime: None,
            parking: None,
            parked: None,
            rests: false,
            idle_park_secs: None,
            jobs: BTreeSet::new(),
            processes: BTreeMap::new(),
            destroying: false,
            boot_time_ms: None,
            up_at: None,
        }
    }

    fn apply_job(&mut self, record: Record) {
        match record {
            Record::JobWanted { job, .. } => {
                self.jobs.insert(job);
            }
            Record::JobRefused { job } => {
                self.jobs.remove(&job);
                self.processes.remove(&job);
            }
            Record::JobEnded { job, end } => {
                self.jobs.remove(&job);
                if let Some(process) = self.processes.get_mut(&job) {
                    process.end = end;
                }
            }
            Record::ProcessWanted { job, process } => {
                self.jobs.insert(job);
                self.processes.insert(job, *process);
            }
            Record::ProcessStarted { job, pid } => {
                if let Some(process) = self.processes.get_mut(&job) {
                    process.pid = pid;
                }
            }
            Record::ProcessForgotten { job } => drop(self.processes.remove(&job)),
            other => self.apply_snapshot(other),
        }
    }

    fn apply_snapshot(&mut self, record: Record) {
        match record {
            Record::SnapshotWanted { node, frozen, top, paused } => {
                let first = self.disk.top.is_none();
                self.change = Some(DiskChange::Snapshot { node, frozen, top, first, paused });
            }
            Record::RestoreWanted { snapshot, top } => {
                self.change = Some(DiskChange::Restore { snapshot, top });
            }
            Record::SnapshotMade { memory_bytes } => {
                if let Some(DiskChange::Snapshot { mut node, frozen, top, .. }) = self.change.take()
                {
                    self.disk.freeze(frozen, top);
                    if let (Some(memory), Some(bytes)) = (&mut node.memory, memory_bytes) {
                        memory.bytes = bytes;
                    }
                    node.layers.clone_from(&self.disk.layers);
                    self.snapshots.add(*node);
                }
            }
            Record::SnapshotFailed { switched } => {
                if let (Some(DiskChange::Snapshot { frozen, top, .. }), true) =
                    (self.change.take(), switched)
                {
                    self.disk.freeze(frozen, top);
                }
            }
            Record::Restored { with_memory, discard_newer } => {
                if let Some(DiskChange::Restore { snapshot, top }) = self.change.take() {
                    self.restored(snapshot, top, with_memory);
                    let newer = self.snapshots.newer_than(snapshot);
                    newer.into_iter().filter(|_| discard_newer).for_each(|newer| {
                        self.snapshots.remove(newer);
                    });
                }
            }
            Record::RestoreFailed => self.change = None,
            Record::SnapshotDeleted { snapshot } => {
                self.snapshots.remove(snapshot);
            }
            Record::MergeWanted(merge) => self.merge = Some(merge),
            Record::Merged => {
                if let Some(merge) = self.merge.take() {
                    merge.apply_to(&mut self.disk.layers);
                    self.snapshots.merged(&merge);
                }
            }
            Record::MergeFailed => self.merge = None,
            other => self.apply_park(other),
        }
    }

    fn apply_park(&mut self, record: Record) {
        match record {
            Record::ParkWanted(plan) => self.parking = Some(plan),
            Record::Parked { park, memory_bytes: bytes, at } => {
                // A park that was given up meanwhile changes nothing.
                let Some(plan) = self.parking.take_if(|plan| plan.park == park) else { return };
                let left = self.handle().cloned();
                self.machine = MachineFact::Stopped;
                self.parked = Some(Box::new(ParkedMemory { plan, bytes, at, left }));
            }
            Record::ParkFailed => self.parking = None,
            Record::ParkEnded => {
                if let Some(parked) = &mut self.parked {
                    parked.left = None;
                }
            }
            Record::Woken | Record::MemoryGivenUp => self.parked = None,
            other => self.apply_lifetime(other),
        }
    }

    fn apply_lifetime(&mut self, record: Record) {
        match record {
            Record::LifetimeSet(change) => self.lifetime = change.applied_to(self.lifetime),
            Record::LifetimeOver { ends_at, .. } => {
                let over = |it: Lifetime| Lifetime { over: it.over || it.ends_at == ends_at, ..it };
                self.lifetime = self.lifetime.map(over);
            }
            Record::LifetimeEnded { ends_at } => {
                self.lifetime.take_if(|it| it.ends_at == ends_at);
            }
            Record::RestSet { rests } => self.rests = rests,
            Record::IdleParkSet { secs } => self.idle_park_secs = secs,
            // Every other kind is applied by the caller.
            _ => {}
        }
    }

    fn restored(&mut self, snapshot: SnapshotId, top: LayerId, with_memory: bool) {
        self.machine = MachineFact::Stopped;
        (self.parking, self.parked) = (None, None);
        self.jobs.clear();
        if let Some(node) = self.snapshots.get(snapshot) {
            self.disk = DiskLayers { layers: node.layers.clone(), top: Some(top) };
            if with_memory {
                self.jobs.clone_from(&node.jobs);
            }
            self.snapshots.at = Some(snapshot);
        }
    }

    /// Every file of disks and snapshots that must be kept for this workspace.
    pub(crate) fn artifacts(&self) -> BTreeSet<Artifact> {
        // A creation that failed is never tried again; only its logs are kept.
        if self.failed.is_some() {
            return BTreeSet::new();
        }
        let mut artifacts = self.snapshots.artifacts();
        artifacts.extend(self.disk.artifacts());
        artifacts.extend(self.change.iter().flat_map(DiskChange::artifacts));
        artifacts.extend(self.merge.map(|merge| Artifact::Layer(merge.into)));
        let parks = self.parking.into_iter().chain(self.parked.iter().map(|parked| parked.plan));
        artifacts.extend(parks.flat_map(|plan| plan.memories()));
        // A fork needs the memory it begins with until it has begun.
        let begins = self.plan.fork.as_ref().filter(|fork| fork.memory.is_some() && !self.created);
        artifacts.extend(begins.map(|fork| Artifact::Memory(fork.snapshot)));
        artifacts
    }

    /// Whether the workspace counts against its owner's quota: a failed one holds nothing.
    pub fn counts(&self) -> bool {
        self.failed.is_none()
    }

    /// Resources that count against the owner's quota: a parked workspace holds no memory of the host.
    pub fn resources(&self) -> Resources {
        let whole = self.plan.spec.resources();
        match self.parked {
            Some(_) => whole.minus(self.plan.spec.memory()),
            None => whole,
        }
    }

    /// Whether a process of the machine may exist, by the records: one was launched, or was about to be,
    /// and was not seen to end.
    pub fn process_may_be_left(&self) -> bool {
        matches!(self.machine, MachineFact::Starting | MachineFact::Launched { .. })
    }

    /// The recorded machine, if one was launched and not seen to end.
    pub fn handle(&self) -> Option<&MachineHandle> {
        match &self.machine {
            MachineFact::Launched { handle, .. } => Some(handle),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
