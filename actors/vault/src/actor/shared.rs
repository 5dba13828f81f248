//! State shared by the actor and its handles; it outlives the actor's restarts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use hivekeep_kernel::{Address, Room, ToolError, lock};
use hivekeep_runtime::documents::Changed;
use tokio::sync::{Semaphore, broadcast};

use super::{Msg, VaultHandle};
use crate::folder::VaultFolder;
use crate::ops::VaultView;
use crate::path::{PathRules, Scope};
use crate::{Error, Options};

/// Maximum number of notes read, or folders listed, at a time.
const READERS: usize = 8;
/// Capacity of the change broadcast; a slower listener learns that it missed some.
const CHANGES: usize = 256;
/// Maximum number of searches at a time; each has threads of its own.
const SEARCHES: usize = 2;
/// Maximum number of notes written at a time.
pub(super) const WRITERS: u32 = 8;
/// Maximum number of those that run a pattern; the others are reserved for quick changes.
const SLOW_WRITERS: usize = 2;

/// Start arguments of the actor.
#[derive(Clone)]
pub struct Args(pub(super) Arc<VaultShared>);

pub(super) struct VaultShared {
    pub(super) options: Options,
    pub(super) rules: PathRules,
    pub(super) address: Address<Msg>,
    path: PathBuf,
    room: Room,
    /// Opened on first use and kept. Locked while it is opened, by blocking work only.
    folder: Mutex<Option<Arc<VaultFolder>>>,
    pub(super) changes: broadcast::Sender<Changed>,
    pub(super) readers: Arc<Semaphore>,
    pub(super) searches: Arc<Semaphore>,
    pub(super) writers: Arc<Semaphore>,
    pub(super) slow_writers: Arc<Semaphore>,
}

/// Makes the vault's handle and the start arguments of its actor. Touches no folder yet.
pub fn open(
    options: Options,
    state_dir: &Path,
    room: Room,
    address: Address<Msg>,
) -> (VaultHandle, Args) {
    let shared = Arc::new(VaultShared {
        rules: PathRules::of(&options),
        path: options.folder(state_dir),
        room,
        options,
        address,
        folder: Mutex::default(),
        changes: broadcast::channel(CHANGES).0,
        readers: Arc::new(Semaphore::new(READERS)),
        searches: Arc::new(Semaphore::new(SEARCHES)),
        writers: Arc::new(Semaphore::new(WRITERS as usize)),
        slow_writers: Arc::new(Semaphore::new(SLOW_WRITERS)),
    });
    (VaultHandle(shared.clone()), Args(shared))
}

impl VaultShared {
    /// Opens the folder if it is not open. Blocks.
    pub(super) fn folder(&self) -> Result<Arc<VaultFolder>, Error> {
        let status = self.address.probe();
        if !self.options.enabled {
            status.set_state("off");
            return Err(Error::Disabled);
        }
        let mut folder_slot = lock(&self.folder);
        if let Some(folder) = &*folder_slot {
            return Ok(folder.clone());
        }
        let changes = self.changes.clone();
        let opened = VaultFolder::open(&self.options, &self.path, changes).and_then(|folder| {
            folder.sweep()?;
            Ok(Arc::new(folder.with_room(self.room.clone(), &self.path)))
        });
        match &opened {
            Ok(folder) => {
                *folder_slot = Some(folder.clone());
                status.set_state("running");
            }
            Err(error) => {
                status.set_state("unavailable");
                status.set_error(error.to_string());
            }
        }
        opened
    }

    pub(super) fn vault(&self, scope: Scope) -> Result<VaultView, Error> {
        Ok(VaultView { folder: self.folder()?, scope })
    }

    /// Runs work that changes nothing, limited by a semaphore. It is told to stop when the future
    /// is dropped.
    pub(super) async fn look<T: Send + 'static>(
        self: Arc<Self>,
        crowd: Arc<Semaphore>,
        scope: Scope,
        work: impl FnOnce(&VaultView, Stopped<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ToolError> {
        let stop = Arc::<AtomicBool>::default();
        let _dropped = StopOnDrop(stop.clone());
        let permit = crowd.acquire_owned().await;
        let looked = tokio::task::spawn_blocking(move || {
            let _until_it_is_over = permit;
            work(&self.vault(scope)?, &|| stop.load(Relaxed))
        });
        let panicked = |error| ToolError::internal(format!("looking into the vault: {error}"));
        Ok(looked.await.map_err(panicked)??)
    }
}

/// Cancellation check of blocking work: true once nobody waits for it.
pub(super) type Stopped<'s> = &'s (dyn Fn() -> bool + Sync);

/// Flag that is set on drop.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
