//! Volumes as their records have them, each in its stream `volume/ID`, and judgments on all together: which
//! one is meant, who has it mounted, what a user may still make.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Instant,
};

use chrono::{DateTime, Utc};
use hivekeep_file_engine::FileRoot;
use hivekeep_kernel::{Layer, ToolError, User, VolumeId, WorkspaceId};
use hivekeep_runtime::log::{Log, Sourced};
use serde::{Deserialize, Serialize};

use crate::{Options, codes};

/// Volume as its records have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) owner: User,
    pub(crate) label: String,
    /// Size of its file system; a multiple of 1 MiB.
    pub(crate) size_bytes: u64,
    pub(crate) created_at: DateTime<Utc>,
    /// Time from which it is removed once nothing has it mounted.
    pub(crate) expires_at: Option<DateTime<Utc>>,
    pub(crate) phase: VolumePhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumePhase {
    /// Intended; a start of the daemon undoes it.
    Making,
    /// Made and usable.
    Ready,
    /// To be removed; a start of the daemon finishes that.
    Deleting,
}

impl Volume {
    /// True if it is there and `owner`'s.
    pub(crate) fn is_ready(&self, owner: User) -> bool {
        self.owner == owner && self.phase == VolumePhase::Ready
    }

    /// True if its time is over.
    fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.phase == VolumePhase::Ready && self.expires_at.is_some_and(|end| end <= now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// Intent to make it.
    Wanted {
        owner: User,
        label: String,
        size_bytes: u64,
        at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<DateTime<Utc>>,
    },
    /// The file system is on the disk.
    Made,
    /// Intent to remove it.
    DeleteWanted,
}

impl Sourced for Volume {
    const KIND: &'static str = "volume";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Wanted { owner, label, size_bytes, at, expires_at } => Ok(Self {
                owner,
                label,
                size_bytes,
                created_at: at,
                expires_at,
                phase: VolumePhase::Making,
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        self.phase = match (record, self.phase) {
            (Record::Made, VolumePhase::Making) => VolumePhase::Ready,
            (Record::DeleteWanted, VolumePhase::Making | VolumePhase::Ready) => {
                VolumePhase::Deleting
            }
            (other, _) => return Err(other),
        };
        Ok(())
    }
}

pub(crate) type VolumeResult<T> = Result<T, ToolError>;

/// Turn at a volume's mount, and when it was last used; `None` once it is unmounted.
#[derive(Debug)]
pub(crate) struct VolumeUse(pub(crate) Mutex<Option<Instant>>);

/// All volumes, and which workspaces have them.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) logs: BTreeMap<VolumeId, Log<Volume>>,
    pub(crate) attached: BTreeMap<WorkspaceId, Vec<VolumeId>>,
    uses: BTreeMap<VolumeId, Arc<VolumeUse>>,
    roots: VolumeRoots,
}

impl Held {
    /// Volumes with everything decided.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (VolumeId, Volume)> {
        let decided = |log: &Log<Volume>| log.views(|decided, _| decided.cloned());
        self.logs.iter().filter_map(move |(id, log)| Some((*id, decided(log)?)))
    }

    /// A user's volume that can be used, by id or label.
    pub(crate) fn usable(
        &self,
        owner: User,
        asked: &str,
        now: DateTime<Utc>,
    ) -> VolumeResult<(VolumeId, Volume)> {
        let usable = |volume: &Volume| volume.is_ready(owner) && !volume.is_expired(now);
        let by_id = asked
            .parse()
            .ok()
            .and_then(|id| Some((id, self.logs.get(&id)?.views(|decided, _| decided.cloned())?)));
        by_id
            .filter(|(_, volume)| usable(volume))
            .or_else(|| self.decided().find(|(_, volume)| usable(volume) && volume.label == asked))
            .ok_or_else(|| not_found(asked))
    }

    /// Workspaces that have a volume.
    pub(crate) fn users(&self, id: VolumeId) -> Vec<WorkspaceId> {
        let attached = self.attached.iter().filter(|(_, volumes)| volumes.contains(&id));
        attached.map(|(workspace, _)| *workspace).collect()
    }

    /// Turn at a volume's mount.
    pub(crate) fn turn(&mut self, id: VolumeId) -> Arc<VolumeUse> {
        let new = || Arc::new(VolumeUse(Mutex::new(Some(Instant::now()))));
        self.uses.entry(id).or_insert_with(new).clone()
    }

    /// Root for work in a volume.
    pub(crate) fn root(&mut self, id: VolumeId, new: FileRoot) -> Arc<FileRoot> {
        self.roots.root(id, new)
    }

    /// Volumes that are there, whoever owns them.
    pub(crate) fn all(&self) -> Vec<VolumeId> {
        self.logs.keys().copied().filter(|id| self.is_there(*id)).collect()
    }

    /// Takes a volume out that is no more.
    pub(crate) fn drop_volume(&mut self, id: VolumeId) {
        self.logs.remove(&id);
        self.uses.remove(&id);
    }

    /// Refuses a volume more, of this label and size, that the user may not have. What is being made or
    /// removed counts.
    pub(crate) fn admit(
        &self,
        owner: User,
        label: &str,
        size_bytes: u64,
        options: &Options,
    ) -> VolumeResult<()> {
        let own: Vec<_> = self.decided().filter(|(_, volume)| volume.owner == owner).collect();
        if own.iter().any(|(_, volume)| volume.label == label) {
            let message = format!("you have a volume `{label}` already");
            return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
                .next("use it, or choose another label"));
        }
        let allocated: u64 = own.iter().map(|(_, volume)| volume.size_bytes).sum();
        let (count, most) = (own.len(), options.max_volumes);
        let (wanted, most_bytes) =
            (allocated.saturating_add(size_bytes), options.max_total_bytes());
        if count < most && wanted <= most_bytes {
            return Ok(());
        }
        let message = format!(
            "with it you would have {} of {most} volumes and {wanted} of {most_bytes} bytes",
            count + 1
        );
        Err(ToolError::new(Layer::Quota, codes::VOLUME_QUOTA_EXCEEDED, message)
            .next("delete a volume with aegis.volume.delete, or ask for a smaller one")
            .detail("volume_count", count)
            .detail("max_volumes", most)
            .detail("total_allocated_bytes", allocated)
            .detail("total_storage_bytes", most_bytes))
    }

    /// Volumes whose time is over and that no workspace has.
    pub(crate) fn expired(&self, now: DateTime<Utc>) -> Vec<VolumeId> {
        let expired = self.decided().filter(|(_, volume)| volume.is_expired(now));
        expired.map(|(id, _)| id).filter(|id| self.users(*id).is_empty()).collect()
    }

    /// True for one that is there, whoever owns it.
    pub(crate) fn is_there(&self, id: VolumeId) -> bool {
        let phase = |volume: Option<&Volume>| volume.map(|volume| volume.phase);
        let log = self.logs.get(&id);
        log.and_then(|log| log.views(|decided, _| phase(decided))) == Some(VolumePhase::Ready)
    }
}

pub(crate) fn not_found(asked: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::VOLUME_NOT_FOUND, "volume", asked)
        .next("aegis.volume.list shows yours")
}

pub(crate) fn in_use(id: VolumeId, users: &[WorkspaceId]) -> ToolError {
    let names: Vec<_> = users.iter().map(ToString::to_string).collect();
    let message = format!("the volume {id} is mounted into {}", names.join(", "));
    ToolError::new(Layer::Actor, codes::VOLUME_IN_USE, message)
        .next("destroy these workspaces, or start them with other `volumes`")
        .detail("workspaces", names)
}

/// Roots of volumes that are worked in. All work in one volume has the same, for an edit is compared and put
/// in place in its turn; without work it is closed, so that the volume can be unmounted.
#[derive(Default)]
struct VolumeRoots(BTreeMap<VolumeId, Weak<FileRoot>>);

impl VolumeRoots {
    /// Root of a volume: the one that others work beneath, or the new one.
    fn root(&mut self, id: VolumeId, new: FileRoot) -> Arc<FileRoot> {
        self.0.retain(|_, root| root.strong_count() > 0);
        self.0.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let root = Arc::new(new);
            self.0.insert(id, Arc::downgrade(&root));
            root
        })
    }
}
