//! A consistent copy of disks while their machines run: freeze, link, and let go.
//!
//! ```text
//! freeze ──▶ link ──▶ the journal's copy ──▶ link what is new ──▶ contents ──▶ pack ──▶ release
//! a snapshot  a second name for each          (frozen layers that the copy names,
//! of each     file of layers                   and the bases they stand on)
//! ```
//! A frozen layer never changes, but it can be merged or removed: the second names keep what the
//! journal's copy will name, whichever moment it is of. Tops are not kept: a start begins an empty
//! one, so a disk comes back as it was frozen.

mod contents;
mod links;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::StreamExt;
use hivekeep_kernel::{Layer, SnapshotId, ToolError, WorkspaceId};
use hivekeep_store::Journal;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use contents::Contents;

use crate::{
    codes,
    directory::DirectoryEntry,
    phase::Phase,
    shared::Shared,
    workspace::{self, BackupMsg},
};

/// Disks frozen at a time.
const AT_ONCE: usize = 4;
/// How long a workspace that is busy is asked again, for its snapshot and for the end of it.
const BUSY: Duration = Duration::from_secs(20);
const BUSY_AT_END: Duration = Duration::from_secs(120);
const ASK_AGAIN_IN: Duration = Duration::from_millis(500);
/// More than the longest work that is waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// A workspace in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUp {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
}

/// A workspace whose disk is not in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Why, as a code.
    pub code: String,
    /// Why.
    pub message: String,
    /// Layers of its older snapshots that are not in it either.
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
    /// For the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }

    /// Freezes the disk of every workspace, whoever owns it; not those of the pool. One that cannot
    /// be frozen ends nothing. When this or what it answers is dropped, the snapshots go.
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

/// Disks that are frozen. Their snapshots go when this is dropped.
pub struct Frozen {
    shared: Arc<Shared>,
    made: Vec<(WorkspaceId, SnapshotId)>,
    left_out: Vec<LeftOut>,
}

impl Frozen {
    /// Gives every layer that is there a second name in this folder of the same file system.
    /// Blocks.
    ///
    /// # Errors
    /// When one cannot be linked.
    pub fn link(&self, into: &Path) -> Result<(), ToolError> {
        links::link_all(&self.shared.folders.layers, into)
    }

    /// What a copy of the journal names, of which the layers lie in this folder; others are removed
    /// from it. Blocks.
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
        // Without a runtime the daemon ends, and its next start releases them.
        if let (false, Ok(runtime)) = (made.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(release(shared, made));
        }
    }
}

async fn freeze(card: &DirectoryEntry, name: &str) -> Result<SnapshotId, ToolError> {
    let ask = |reply| BackupMsg::Freeze { name: name.to_owned(), reply };
    patiently(card, BUSY, ask).await
}

/// Removes snapshots of backups. What stays, as it is needed or its workspace is busy, is seen in
/// its list, and is tried again when the daemon starts.
pub(crate) async fn release(shared: Arc<Shared>, made: Vec<(WorkspaceId, SnapshotId)>) {
    let released = made.into_iter().map(|(workspace, snapshot)| {
        let card = shared.directory.any(workspace);
        async move {
            // One that is gone took its snapshots with it.
            let card = card?;
            let ask = |reply| BackupMsg::Release { snapshot, reply };
            let left = patiently(&card, BUSY_AT_END, ask).await.err()?;
            tracing::warn!(workspace = %card.name, %left, "a snapshot of a backup stays");
            Some(())
        }
    });
    futures::future::join_all(released).await;
}

/// Asks again for as long as the answer is that it can be tried again.
async fn patiently<T: Send + 'static>(
    card: &DirectoryEntry,
    patience: Duration,
    ask: impl Fn(tokio::sync::oneshot::Sender<Result<T, ToolError>>) -> BackupMsg,
) -> Result<T, ToolError> {
    let until = Instant::now() + patience;
    loop {
        let asked = card.address.ask(PATIENCE, |reply| workspace::Msg::Backup(ask(reply))).await;
        match asked.map_err(ToolError::from).flatten() {
            Err(error) if error.retryable && Instant::now() < until => {
                tokio::time::sleep(ASK_AGAIN_IN).await;
            }
            outcome => return outcome,
        }
    }
}

/// What made a backup end.
fn raced(message: String) -> ToolError {
    ToolError::new(Layer::Store, codes::BACKUP_RACED, message)
        .next("try again: snapshots were deleted or merged while the backup was made")
        .retryable()
}
