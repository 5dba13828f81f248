//! Claims of a creation before it is durable: a name, a slot, the session's quota, and the files of the
//! snapshot that it is forked from.

use std::{collections::BTreeMap, path::PathBuf};

use hivekeep_image::ImageDefaults;
use hivekeep_kernel::{CallCx, LayerId, ToolError, WorkspaceId};
use hivekeep_ports::NetworkRequest;

use crate::{
    folders::WorkspaceFolders,
    lifetime::{LifetimeRequest, WorkspaceLabels},
    name::WorkspaceName,
    records::{Fork, Planned, WorkspaceSpec},
    snapshots::{Artifact, RefCounts, SnapshotNode, files},
};

/// Gives back what was claimed for a plan; the flag says whether its quota was reserved.
pub(crate) type GiveBack = Box<dyn Fn(&Planned, bool) + Send + Sync>;

/// Claims of one creation; given back when dropped, unless kept.
pub(crate) struct Claims {
    plan: Planned,
    quota: bool,
    kept: bool,
    give_back: GiveBack,
}

impl Claims {
    pub(crate) fn new(plan: Planned, give_back: GiveBack) -> Self {
        Self { plan, quota: false, kept: false, give_back }
    }

    pub(crate) fn plan(&self) -> &Planned {
        &self.plan
    }

    /// The plan, whose slot and volumes are claimed after its name.
    pub(crate) fn plan_mut(&mut self) -> &mut Planned {
        &mut self.plan
    }

    /// The quota of the plan's owner is reserved: it is given back with the other claims.
    pub(crate) fn reserved(&mut self) {
        self.quota = true;
    }

    /// Keeps the claims: the plan is durable, or may be, so its workspace gives them back.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Gives the claims back on drop again: the plan is not durable after all.
    pub(crate) fn unkeep(&mut self) {
        self.kept = false;
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if !self.kept {
            (self.give_back)(&self.plan, self.quota);
        }
    }
}

/// Origin of forks. The files that it names are kept until it is dropped.
pub struct ForkSource {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workspace_name: WorkspaceName,
    pub(crate) spec: WorkspaceSpec,
    pub(crate) base: PathBuf,
    pub(crate) node: SnapshotNode,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) defaults: Option<ImageDefaults>,
    pub(crate) network: NetworkRequest,
    pub(crate) labels: WorkspaceLabels,
    /// The lifetime of the forks.
    pub(crate) lifetime: Option<LifetimeRequest>,
    /// Whether tasks that run go on in the forks.
    pub(crate) keeps_tasks: bool,
    pub(crate) _pinned: PinnedFiles,
}

impl ForkSource {
    /// The plan of a fork that has no slot yet.
    ///
    /// # Errors
    /// When the host has no randomness.
    pub(crate) fn plan(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        name: WorkspaceName,
        spec: WorkspaceSpec,
        with_memory: bool,
    ) -> Result<Planned, ToolError> {
        let memory = self.node.memory.as_ref().filter(|_| with_memory);
        Ok(Planned {
            fork: Some(Box::new(Fork {
                source: self.workspace,
                source_name: self.workspace_name.clone(),
                snapshot: self.node.id,
                snapshot_name: self.node.name.clone(),
                base: self.base.clone(),
                layers: self.node.layers.clone(),
                top: LayerId::new(),
                memory: memory.map(|memory| memory.token.clone()),
                keeps_tasks: self.keeps_tasks && with_memory,
                env: self.env.clone(),
                defaults: self.defaults.clone(),
            })),
            network: self.network.clone(),
            labels: self.labels.clone(),
            lifetime: self.lifetime,
            ..Planned::new(id, name, cx.session, spec)?
        })
    }
}

/// Keeps files of a snapshot while forks of it are being planned.
pub(crate) struct PinnedFiles {
    counts: RefCounts,
    folders: WorkspaceFolders,
    artifacts: Vec<Artifact>,
}

impl PinnedFiles {
    pub(crate) fn new(counts: RefCounts, folders: WorkspaceFolders, node: &SnapshotNode) -> Self {
        let artifacts: Vec<_> = node.artifacts().collect();
        counts.take(artifacts.iter().copied());
        Self { counts, folders, artifacts }
    }
}

impl Drop for PinnedFiles {
    fn drop(&mut self) {
        let free = self.counts.release(self.artifacts.drain(..));
        // The snapshot was deleted meanwhile and no fork came of it.
        if let (false, Ok(runtime)) = (free.is_empty(), tokio::runtime::Handle::try_current()) {
            let folders = self.folders.clone();
            runtime.spawn(async move { files::remove(&folders, free).await });
        }
    }
}
