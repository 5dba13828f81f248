//! A consistent copy of disks while their machines run: freeze, link, and let go.
//!
//! ```text
//! freeze ──▶ link ──▶ the journal's copy ──▶ link what is new ──▶ contents ──▶ pack ──▶ release
//! a snapshot  a second name for each          (frozen layers that the copy names,
//! of each     file of layers                   and the bases they stand on)
//! ```
//! A frozen layer never changes, but it can be merged or removed: the second names keep every layer
//! that the journal's copy names, whichever moment it is of. Tops are not kept: a start begins an
//! empty top, so a disk comes back as it was frozen.

mod contents;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::StreamExt;
use hivekeep_kernel::{Layer, LayerId, SnapshotId, ToolError, WorkspaceId};
use hivekeep_store::Journal;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use contents::Contents;

use crate::{
    codes, directory::DirectoryEntry, messages::SnapshotMsg, phase::Phase, shared::Shared,
};

/// Disks frozen at a time.
const AT_ONCE: usize = 4;
/// How long the freeze of a busy workspace is tried again; below, the removal of its snapshot.
const BUSY: Duration = Duration::from_secs(20);
const BUSY_AT_END: Duration = Duration::from_secs(120);
const ASK_AGAIN_IN: Duration = Duration::from_millis(500);
/// More than the longest work that is waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// A workspace in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUp {
    /// Id of the workspace.
    pub workspace_id: WorkspaceId,
    /// Name of the workspace.
    pub name: String,
}

/// A workspace whose disk is not in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Id of the workspace.
    pub workspace_id: WorkspaceId,
    /// Name of the workspace.
    pub name: String,
    /// Code of the reason.
    pub code: String,
    /// Reason in words.
    pub message: String,
    /// Layers of the workspace's older snapshots that are missing in the backup too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_layers: Vec<String>,
}

impl LeftOut {
    fn new(workspace_id: WorkspaceId, name: &impl ToString, error: &ToolError) -> Self {
        Self {
            workspace_id,
            name: name.to_string(),
            code: error.code.to_string(),
            message: error.message.clone(),
            missing_layers: Vec::new(),
        }
    }
}

/// Freezes the disks of this daemon's workspaces. Cheap to clone.
#[derive(Clone)]
pub struct DisksHandle(Arc<Shared>);

impl DisksHandle {
    /// A handle for the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }

    /// Freezes the disk of every workspace, whoever owns it; not those of the pool. A workspace that
    /// cannot be frozen is left out. Dropping the future or its [`Frozen`] removes the snapshots.
    pub async fn freeze(&self) -> Frozen {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = &format!("backup-{}", since.as_millis());
        let mut frozen = Frozen { shared: self.0.clone(), made: Vec::new(), left_out: Vec::new() };
        // A creation that failed has no disk.
        let cards = self.0.directory.cards().into_iter().filter(|card| card.phase != Phase::Failed);
        let outcomes = cards.map(|card| async move { (freeze(&card, name).await, card) });
        let mut outcomes = futures::stream::iter(outcomes).buffer_unordered(AT_ONCE);
        while let Some((outcome, card)) = outcomes.next().await {
            match outcome {
                Ok(snapshot) => frozen.made.push((card.id, snapshot)),
                Err(error) => frozen.left_out.push(LeftOut::new(card.id, &card.name, &error)),
            }
        }
        frozen.left_out.sort_by(|a, b| a.name.cmp(&b.name));
        frozen
    }
}

/// Frozen disks. Dropping it removes their snapshots.
pub struct Frozen {
    shared: Arc<Shared>,
    made: Vec<(WorkspaceId, SnapshotId)>,
    left_out: Vec<LeftOut>,
}

impl Frozen {
    /// Links every present layer into a folder of the same file system. Blocks.
    ///
    /// # Errors
    /// When a layer cannot be linked.
    pub fn link(&self, into: &Path) -> Result<(), ToolError> {
        link_all(&self.shared.folders.layers, into)
    }

    /// Contents of the disks that a copy of the journal names. Layers in the folder that it does not name
    /// are removed. Blocks.
    ///
    /// # Errors
    /// `backup_raced` when a layer is missing that a disk in the backup needs.
    pub fn contents(&self, journal: &Journal, layers: PathBuf) -> Result<Contents, ToolError> {
        let frozen = self.made.iter().map(|(workspace, _)| *workspace).collect();
        contents::of(journal, &frozen, self.left_out.clone(), layers)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let (shared, made) = (self.shared.clone(), std::mem::take(&mut self.made));
        // Without a runtime the daemon is ending; its next start releases the snapshots.
        if let (false, Ok(runtime)) = (made.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(release(shared, made));
        }
    }
}

async fn freeze(card: &DirectoryEntry, name: &str) -> Result<SnapshotId, ToolError> {
    let ask = |reply| SnapshotMsg::Freeze { name: name.to_owned(), reply };
    patiently(card, BUSY, ask).await
}

/// Removes snapshots of backups. A snapshot that is needed, or whose workspace is busy, stays in the
/// workspace's list; its removal is tried again when the daemon starts.
pub(crate) async fn release(shared: Arc<Shared>, made: Vec<(WorkspaceId, SnapshotId)>) {
    let released = made.into_iter().map(|(workspace, snapshot)| {
        let card = shared.directory.any(workspace);
        async move {
            // A workspace that is gone took its snapshots with it.
            let card = card?;
            let ask = |reply| SnapshotMsg::Release { snapshot, reply };
            let left = patiently(&card, BUSY_AT_END, ask).await.err()?;
            tracing::warn!(workspace = %card.name, %left, "a snapshot of a backup stays");
            Some(())
        }
    });
    futures::future::join_all(released).await;
}

/// Asks again while the error is retryable and the patience lasts.
async fn patiently<T: Send + 'static>(
    card: &DirectoryEntry,
    patience: Duration,
    ask: impl Fn(tokio::sync::oneshot::Sender<Result<T, ToolError>>) -> SnapshotMsg,
) -> Result<T, ToolError> {
    let until = Instant::now() + patience;
    loop {
        let asked = card.address.ask(PATIENCE, |reply| ask(reply).into()).await;
        match asked.map_err(ToolError::from).flatten() {
            Err(error) if error.retryable && Instant::now() < until => {
                tokio::time::sleep(ASK_AGAIN_IN).await;
            }
            outcome => return outcome,
        }
    }
}

/// Error of a backup that lost a race with the removal or merge of a layer.
fn raced(message: String) -> ToolError {
    ToolError::new(Layer::Store, codes::BACKUP_RACED, message)
        .next("try again: snapshots were deleted or merged while the backup was made")
        .retryable()
}

/// The layer that a file is, if its name is one.
pub(super) fn layer_of(name: &std::ffi::OsStr) -> Option<LayerId> {
    name.to_str()?.strip_suffix(".qcow2")?.parse().ok()
}

/// Links every layer that is in a folder and not in the other one yet. Blocks.
fn link_all(from: &Path, into: &Path) -> Result<(), ToolError> {
    let failed = |error: io::Error| {
        let message = format!("the layers of disks cannot be linked: {error}");
        ToolError::new(Layer::Store, codes::BACKUP_FAILED, message)
            .next("keep the whole state folder on one file system that has hard links")
    };
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if layer_of(&entry.file_name()).is_none() {
            continue;
        }
        match fs::hard_link(entry.path(), into.join(entry.file_name())) {
            // Linked before, or merged or removed since the folder was listed.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                ) => {}
            linked => linked.map_err(failed)?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_linked_once_and_outlive_their_first_names() {
        let dir = tempfile::tempdir().unwrap();
        let (from, into) = (dir.path().join("from"), dir.path().join("into"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&into).unwrap();
        let (one, two) = (format!("{}.qcow2", LayerId::new()), format!("{}.qcow2", LayerId::new()));
        fs::write(from.join(&one), "one").unwrap();
        fs::write(from.join(&one).with_extension("new"), "half").unwrap();
        link_all(&from, &into).unwrap();
        fs::remove_file(from.join(&one)).unwrap();
        fs::write(from.join(&two), "two").unwrap();
        link_all(&from, &into).unwrap();
        link_all(&from, &into).unwrap();
        assert_eq!(fs::read(into.join(&one)).unwrap(), b"one");
        assert_eq!(fs::read(into.join(&two)).unwrap(), b"two");
        assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
        let error = link_all(&dir.path().join("none"), &into).unwrap_err();
        assert_eq!(error.code, "backup_failed");
    }
}
