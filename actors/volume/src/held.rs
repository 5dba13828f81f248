//! Judgments on all volumes together: which one is meant, who has it mounted, what a user may still make.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use chrono::{DateTime, Utc};
use hivekeep_file_engine::FileRoot;
use hivekeep_kernel::{Layer, ToolError, User, VolumeId, WorkspaceId};
use hivekeep_runtime::log::Log;

use crate::{
    Options, codes,
    roots::VolumeRoots,
    volume::{Volume, VolumePhase},
};

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
