//! Files that disks and snapshots are made of, and the counts of who needs them.

use std::{
    collections::BTreeSet,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use dashmap::DashMap;
use hivekeep_fs::remove_tree;
use hivekeep_kernel::{Layer, LayerId, SnapshotId, ToolError, WorkspaceId};
use hivekeep_machine::layer;
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    folders::WorkspaceFolders,
    snapshots::{Merge, SnapshotNode},
};

/// Bytes that a file, or the files of a folder, take on the host's disk. Blocks.
pub(crate) fn bytes(path: &Path) -> io::Result<u64> {
    let meta = std::fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Ok(meta.blocks() * 512);
    }
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.blocks() * 512)).sum()
}

/// Whether everything that a snapshot is made of is there, as after a restore of a backup it may not
/// be: layers of its disk, and its memory if that is wanted.
///
/// # Errors
/// `disk_missing`, `snapshot_memory_missing`.
pub(crate) async fn whole(
    folders: &WorkspaceFolders,
    node: &SnapshotNode,
    with_memory: bool,
) -> Result<(), ToolError> {
    let layers: Vec<_> =
        node.layers.iter().map(|layer| Artifact::Layer(*layer).path(folders)).collect();
    there(layers).await?;
    let memory = Artifact::Memory(node.id).path(folders);
    if with_memory && !tokio::fs::try_exists(&memory).await.unwrap_or(true) {
        let message = format!("the memory of snapshot `{}` is not there", node.name);
        return Err(ToolError::new(Layer::Machine, codes::SNAPSHOT_MEMORY_MISSING, message)
            .next("call workspace_fork with with_memory false: backups hold disks, no memory")
            .detail("missing", memory.display().to_string()));
    }
    Ok(())
}

/// Whether files of a disk are there.
///
/// # Errors
/// `disk_missing`.
pub(crate) async fn there(paths: Vec<PathBuf>) -> Result<(), ToolError> {
    for path in paths {
        if !tokio::fs::try_exists(&path).await.unwrap_or(true) {
            let message = format!("the disk is not whole: {} is missing", path.display());
            return Err(ToolError::new(Layer::Machine, codes::DISK_MISSING, message)
                .next("put it back from where it was kept, or call workspace_destroy"));
        }
    }
    Ok(())
}

/// Makes an empty layer where there is none yet.
pub(crate) async fn begin(path: PathBuf, size_gb: u64) -> Result<(), ToolError> {
    let work = move || layer::make_top(&path, size_gb << 30);
    let made = tokio::task::spawn_blocking(work).await;
    Ok(made.map_err(|error| ToolError::internal(error.to_string()))??)
}

/// Gives a file a second name, durably. Success if it has it already.
pub(crate) async fn link(from: PathBuf, to: PathBuf) -> Result<(), ToolError> {
    let shown = to.display().to_string();
    let work = move || {
        match std::fs::hard_link(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        hivekeep_fs::sync_parent(&to)
    };
    blocking(work, shown).await
}

/// Takes away the first name of a file that has another one. Where that fails, the name goes with
/// the workspace.
pub(crate) async fn unlink(path: PathBuf) {
    let shown = path.display().to_string();
    if let Err(error) = blocking(move || remove_tree(&path), shown).await {
        tracing::warn!(%error, "the first name of a frozen layer stays");
    }
}

/// Makes one layer of two. Ends early when it is not wanted any more, or when this is dropped.
pub(crate) async fn merge(
    folders: &WorkspaceFolders,
    merge: Merge,
    wanted: &CancellationToken,
) -> Result<(), ToolError> {
    let path = |layer| Artifact::Layer(layer).path(folders);
    let (lower, upper, into) = (path(merge.lower), path(merge.upper), path(merge.into));
    let wanted = wanted.child_token();
    let _until_dropped = wanted.clone().drop_guard();
    let work = move || layer::merge(&lower, &upper, &into, &|| !wanted.is_cancelled());
    let made = tokio::task::spawn_blocking(work).await;
    Ok(made.map_err(|error| ToolError::internal(error.to_string()))??)
}

/// Removes files that nobody needs. What cannot be removed is left to the next start.
pub(crate) async fn remove(folders: &WorkspaceFolders, artifacts: Vec<Artifact>) {
    for artifact in artifacts {
        let path = artifact.path(folders);
        let shown = path.display().to_string();
        if let Err(error) = blocking(move || remove_tree(&path), shown).await {
            tracing::warn!(?artifact, %error, "a file of a snapshot stays until the next start");
        }
    }
}

/// Removes every layer and memory that nobody needs; returns their names. Blocks.
pub(crate) fn sweep(folders: &WorkspaceFolders, holds: &RefCounts) -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for folder in [&folders.layers, &folders.memories] {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if artifact_of(&path).is_some_and(|artifact| holds.held(artifact)) {
                continue;
            }
            remove_tree(&path)?;
            removed.push(path.display().to_string());
        }
    }
    Ok(removed)
}

/// The artifact that a file is, if its name is one.
fn artifact_of(path: &Path) -> Option<Artifact> {
    let name = path.file_name()?.to_str()?;
    let layer = || name.strip_suffix(".qcow2")?.parse().ok().map(Artifact::Layer);
    name.parse().ok().map(Artifact::Memory).or_else(layer)
}

async fn blocking(
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
    what: String,
) -> Result<(), ToolError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ToolError::internal(error.to_string()))?
        .map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::StorageFull => codes::HOST_DISK_FULL,
                _ => codes::MACHINE_HOST_IO,
            };
            ToolError::new(Layer::Machine, code, format!("{what}: {error}"))
                .next("`hivekeep check` looks at the folders")
        })
}

/// A file or folder that several workspaces may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Artifact {
    /// A layer of a disk.
    Layer(LayerId),
    /// The memory of a snapshot.
    Memory(SnapshotId),
}

impl Artifact {
    /// Path of the artifact.
    pub(crate) fn path(self, folders: &WorkspaceFolders) -> PathBuf {
        match self {
            Self::Layer(layer) => folders.layers.join(format!("{layer}.qcow2")),
            Self::Memory(snapshot) => folders.memories.join(snapshot.to_string()),
        }
    }
}

/// Counts who needs which artifact. Kept in memory only: each start rebuilds the counts from the
/// workspaces' records.
///
/// An artifact is taken for a new workspace while the one that it comes from still holds it, so a count
/// that fell to zero never rises again.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefCounts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: DashMap<Artifact, usize>,
    /// Artifacts that are counted for each workspace.
    held: DashMap<WorkspaceId, BTreeSet<Artifact>>,
}

impl RefCounts {
    /// Replaces the artifacts of a workspace; returns those of its former ones that nobody needs any more.
    pub(crate) fn replace(&self, id: WorkspaceId, artifacts: BTreeSet<Artifact>) -> Vec<Artifact> {
        let mut held = self.0.held.entry(id).or_default();
        self.take(artifacts.difference(&held).copied());
        let free = self.release(held.difference(&artifacts).copied());
        *held = artifacts;
        drop(held);
        self.0.held.remove_if(&id, |_, held| held.is_empty());
        free
    }

    /// Adds one to the count of each artifact.
    pub(crate) fn take(&self, artifacts: impl IntoIterator<Item = Artifact>) {
        for artifact in artifacts {
            *self.0.counts.entry(artifact).or_default() += 1;
        }
    }

    /// Adds one to an artifact's count if anybody needs it; returns whether that is so.
    pub(crate) fn take_held(&self, artifact: Artifact) -> bool {
        self.0.counts.get_mut(&artifact).map(|mut count| *count += 1).is_some()
    }

    /// Takes one from the count of each artifact; returns those that nobody needs any more.
    #[must_use]
    pub(crate) fn release(&self, artifacts: impl IntoIterator<Item = Artifact>) -> Vec<Artifact> {
        let gone = |artifact: &Artifact| {
            if let Some(mut count) = self.0.counts.get_mut(artifact) {
                *count = count.saturating_sub(1);
            }
            self.0.counts.remove_if(artifact, |_, count| *count == 0).is_some()
        };
        artifacts.into_iter().filter(gone).collect()
    }

    /// Whether anybody needs the artifact.
    pub(crate) fn held(&self, artifact: Artifact) -> bool {
        self.0.counts.contains_key(&artifact)
    }

    /// Number of those who need the artifact.
    pub(crate) fn count(&self, artifact: Artifact) -> usize {
        self.0.counts.get(&artifact).map_or(0, |count| *count)
    }
}
