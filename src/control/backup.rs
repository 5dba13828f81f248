//! A copy of the journal, and of what the disks are made of, for as long as somebody packs it.

use std::{fs, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

use hivekeep_door_server::{DaemonServices, codes};
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_store::{Journal, Options};
use hivekeep_workspace::backup::{Contents, DisksHandle, Frozen};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::{BackupMade, Outlet};
use crate::backup::Staging;

/// Cache of a journal's copy, which is read only once.
const CACHE_MB: u64 = 16;

/// Time that a backup whose client has left may take before the next one is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the copy, says where it is, and removes it when this is dropped, as when the client leaves.
///
/// A copy that has begun goes on to its end, also when the client leaves: the journal's copier would
/// otherwise make the folder again after its removal.
pub(super) async fn make(
    core: &Arc<DaemonServices>,
    disks: bool,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let preparing = tokio::spawn(prepare(core.clone(), disks));
    let prepared = preparing.await.map_err(|error| ToolError::internal(error.to_string()))??;
    outlet.item(json!(prepared.made)).await;
    std::future::pending().await
}

/// A copy that is ready to be packed.
struct Prepared {
    made: BackupMade,
    _staging: Removed,
    _frozen: Option<Arc<Frozen>>,
    _one_at_a_time: OwnedSemaphorePermit,
}

async fn prepare(core: Arc<DaemonServices>, disks: bool) -> Result<Prepared, ToolError> {
    let turn = tokio::time::timeout(PATIENCE, core.backups.clone().acquire_owned()).await;
    let turn = turn.ok().and_then(Result::ok).ok_or_else(|| {
        ToolError::new(Layer::Door, codes::BACKUP_RUNNING, "another backup is being made")
            .next("try again when it is done")
    })?;
    let state = core.folders.state.clone();
    let staging = Removed(Some(blocking(move || Staging::make(&state).map_err(failed)).await?));
    let Some(folder) = staging.0.as_ref().map(|staging| staging.path().to_owned()) else {
        return Err(ToolError::internal("no staging folder"));
    };
    let journal = folder.join("journal");
    made(&journal).await?;
    let (disks, frozen) = if disks {
        let disks = core.ports.find::<DisksHandle>().ok_or_else(no_disks)?;
        let (contents, frozen) = freeze(&core, &disks, &folder, &journal).await?;
        (Some(contents), Some(frozen))
    } else {
        core.journal.backup(journal.clone()).await.map_err(failed)?;
        (None, None)
    };
    let made = BackupMade { journal, disks };
    Ok(Prepared { made, _staging: staging, _frozen: frozen, _one_at_a_time: turn })
}

/// Freezes the disks, copies the journal, and keeps every layer that the copy names.
async fn freeze(
    core: &DaemonServices,
    disks: &DisksHandle,
    staging: &Path,
    journal: &Path,
) -> Result<(Contents, Arc<Frozen>), ToolError> {
    let layers = staging.join(hivekeep_workspace::LAYERS);
    made(&layers).await?;
    let frozen = Arc::new(disks.freeze().await);
    link(&frozen, &layers).await?;
    core.journal.backup(journal.to_owned()).await.map_err(failed)?;
    // Layers that were frozen or merged since the first `link`.
    link(&frozen, &layers).await?;
    let options = Options {
        dir: journal.to_owned(),
        cache_mb: CACHE_MB,
        reserve_mb: 0,
        ..core.config.store.clone()
    };
    let (copy, _) = blocking(move || Journal::open(options).map_err(failed)).await?;
    let (reader, reading) = (copy.clone(), frozen.clone());
    let contents = blocking(move || reading.contents(&reader, layers)).await;
    let _stopped = copy.close().await;
    Ok((contents?, frozen))
}

async fn link(frozen: &Arc<Frozen>, into: &Path) -> Result<(), ToolError> {
    let (frozen, into) = (frozen.clone(), into.to_owned());
    blocking(move || frozen.link(&into)).await
}

async fn made(folder: &Path) -> Result<(), ToolError> {
    let folder = folder.to_owned();
    blocking(move || fs::DirBuilder::new().mode(0o700).create(folder).map_err(failed)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::internal(error.to_string()))?
}

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::new(Layer::Store, codes::BACKUP_FAILED, error.to_string())
        .next("look at the free space of the state folder, and at `hivekeep logs`")
}

fn no_disks() -> ToolError {
    ToolError::new(Layer::Door, codes::NO_DISKS, "this daemon has no workspaces, and so no disks")
        .next("leave --disks out")
}

/// Has the folder removed off the async threads.
struct Removed(Option<Staging>);

impl Drop for Removed {
    fn drop(&mut self) {
        let staging = self.0.take();
        tokio::task::spawn_blocking(move || drop(staging));
    }
}
