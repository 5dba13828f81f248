//! What the keeper and its handles share; it outlives the keeper's restarts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use hivekeep_kernel::{Address, Room, ToolError};
use hivekeep_runtime::documents::Changed;
use tokio::sync::{Semaphore, broadcast};

use super::{Msg, VaultHandle};
use crate::folder::Folder;
use crate::ops::Vault;
use crate::path::{Rules, Scope};
use crate::{Error, Options};

/// Notes that are read, or folders listed, at a time.
const READERS: usize = 8;
/// Changes that wait for the slowest of their listeners; it is told when it missed some.
const CHANGES: usize = 256;
/// Searches at a time; each has threads of its own.
const SEARCHES: usize = 2;
/// Notes that are written at a time.
pub(super) const WRITERS: u32 = 8;
/// Of these, those that look for what a pattern matches; the others are left for quick ones.
const SLOW_WRITERS: usize = 2;

/// What an incarnation of the keeper is made from.
#[derive(Clone)]
pub struct Seed(pub(super) Arc<VaultShared>);

pub(super) struct VaultShared {
    pub(super) options: Options,
    pub(super) rules: Rules,
    pub(super) address: Address<Msg>,
    path: PathBuf,
    room: Room,
    /// Opened by whoever needs it first, and kept. Held while it is opened, by blocking work only.
    folder: Mutex<Option<Arc<Folder>>>,
    pub(super) changes: broadcast::Sender<Changed>,
    pub(super) readers: Arc<Semaphore>,
    pub(super) searches: Arc<Semaphore>,
    pub(super) writers: Arc<Semaphore>,
    pub(super) slow_writers: Arc<Semaphore>,
}

/// Makes the vault's handle and the seed of its keeper. Touches no folder yet.
pub fn open(
    options: Options,
    state_dir: &Path,
    room: Room,
    address: Address<Msg>,
) -> (VaultHandle, Seed) {
    let house = Arc::new(VaultShared {
        rules: Rules::of(&options),
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
    (VaultHandle(house.clone()), Seed(house))
}

impl VaultShared {
    /// The folder, opened if it is not open. Blocks.
    pub(super) fn folder(&self) -> Result<Arc<Folder>, Error> {
        let probe = self.address.probe();
        if !self.options.enabled {
            probe.set_state("off");
            return Err(Error::Disabled);
        }
        let mut held = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*held {
            return Ok(folder.clone());
        }
        let changes = self.changes.clone();
        let opened = Folder::open(&self.options, &self.path, changes).and_then(|folder| {
            folder.sweep()?;
            Ok(Arc::new(folder.with_room(self.room.clone(), &self.path)))
        });
        match &opened {
            Ok(folder) => {
                *held = Some(folder.clone());
                probe.set_state("running");
            }
            Err(error) => {
                probe.set_state("unavailable");
                probe.set_error(error.to_string());
            }
        }
        opened
    }

    pub(super) fn vault(&self, scope: Scope) -> Result<Vault, Error> {
        Ok(Vault { folder: self.folder()?, scope })
    }

    /// Work that changes nothing, as one of a crowd. It is told to stop when the future is dropped.
    pub(super) async fn look<T: Send + 'static>(
        self: Arc<Self>,
        crowd: Arc<Semaphore>,
        scope: Scope,
        work: impl FnOnce(&Vault, Stopped<'_>) -> Result<T, Error> + Send + 'static,
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

/// Answers blocking work whether nobody waits for it any more.
pub(super) type Stopped<'s> = &'s (dyn Fn() -> bool + Sync);

/// Set when it is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
