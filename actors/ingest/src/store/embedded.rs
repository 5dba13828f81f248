//! Store in the daemon: an append-only log of changes for each collection, and an exact index in memory.
//!
//! ```text
//! change ─▶ framed, appended, synced ─▶ applied to the index ─▶ answered
//!             └ a torn tail was never answered: it is cut off when the file is opened
//! ```
//! One file has one writer at a time; searches run beside each other. The engine's work blocks, so it is done
//! on threads for that. A collection is read when it is first used, and dropped from memory when others need
//! the room.

mod file;
mod index;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use async_trait::async_trait;
use hivekeep_kernel::lock;
use tokio::task::spawn_blocking;

use super::{
    FoundPoint, PointChange, PointFilter, PointPage, PointStore, SearchVector, StoreFailure,
    StoredState,
};
use crate::point::PointId;
use file::ChangeFile;
use index::PointIndex;

/// Collections as files below a folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EmbeddedStore(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    memory_bytes: usize,
    /// Never locked while a file is read or written.
    open: Mutex<OpenCollections>,
}

#[derive(Default)]
struct OpenCollections {
    slots: HashMap<String, Arc<Slot>>,
    /// Counts uses.
    clock: u64,
}

struct Slot {
    /// `None` until the file is read; locked by the one writer.
    loaded: RwLock<Option<Loaded>>,
    used: Mutex<Used>,
}

#[derive(Default, Clone, Copy)]
struct Used {
    at: u64,
    bytes: usize,
}

struct Loaded {
    file: ChangeFile,
    index: PointIndex,
}

type Answer<T> = Result<T, StoreFailure>;

impl EmbeddedStore {
    /// Collections below a folder, which is made when it is needed.
    pub(crate) fn new(folder: PathBuf, memory_bytes: usize) -> Self {
        Self(Arc::new(Shared { folder, memory_bytes, open: Mutex::default() }))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        collection: &str,
        work: impl FnOnce(&Shared, &str) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (shared, collection) = (self.0.clone(), collection.to_owned());
        let done = spawn_blocking(move || work(&shared, &collection)).await;
        done.unwrap_or_else(|panic| Err(StoreFailure::lasting(format!("the index: {panic}"))))
    }
}

impl Shared {
    fn folder_of(&self, collection: &str) -> PathBuf {
        self.folder.join(collection)
    }

    fn slot(&self, collection: &str) -> Arc<Slot> {
        let mut open = lock(&self.open);
        open.clock += 1;
        let clock = open.clock;
        let new = || Arc::new(Slot { loaded: RwLock::new(None), used: Mutex::default() });
        let slot = open.slots.entry(collection.to_owned()).or_insert_with(new).clone();
        lock(&slot.used).at = clock;
        slot
    }

    /// Looks at a collection; `None` if it is not there.
    fn read<T>(&self, collection: &str, look: impl FnOnce(&PointIndex) -> T) -> Answer<Option<T>> {
        let slot = self.slot(collection);
        loop {
            let loaded = slot.loaded.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(loaded) = &*loaded {
                return Ok(Some(look(&loaded.index)));
            }
            drop(loaded);
            if !self.load(collection, &slot)? {
                return Ok(None);
            }
        }
    }

    /// Changes an existing collection.
    fn write<T>(
        &self,
        collection: &str,
        change: impl FnOnce(&mut Loaded) -> Answer<T>,
    ) -> Answer<T> {
        let slot = self.slot(collection);
        if !self.load(collection, &slot)? {
            return Err(StoreFailure::lasting(format!(
                "the collection `{collection}` is not there"
            )));
        }
        let mut held = slot.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let Some(loaded) = &mut *held else {
            return Err(StoreFailure::passing("the collection was dropped from memory just now"));
        };
        let outcome = change(loaded);
        let bytes = loaded.index.bytes();
        if outcome.is_err() {
            // The next use reads the file again.
            *held = None;
        }
        drop(held);
        lock(&slot.used).bytes = bytes;
        self.make_room(collection);
        outcome
    }

    /// Reads a collection that is not in memory; false if there is none.
    fn load(&self, collection: &str, slot: &Slot) -> Answer<bool> {
        let mut held = slot.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(true);
        }
        let opened = ChangeFile::open(&self.folder_of(collection))?;
        let Some((file, dimension, changes)) = opened else { return Ok(false) };
        let mut index = PointIndex::new(dimension);
        for change in changes {
            index.apply(change)?;
        }
        lock(&slot.used).bytes = index.bytes();
        *held = Some(Loaded { file, index });
        drop(held);
        self.make_room(collection);
        Ok(true)
    }

    /// Drops the least recently used collections while memory is too full, except `but_for`.
    fn make_room(&self, but_for: &str) {
        let mut open = lock(&self.open);
        let mut all: Vec<_> =
            open.slots.iter().map(|(name, slot)| (*lock(&slot.used), name.clone())).collect();
        all.sort_by_key(|(used, _)| used.at);
        let mut bytes: usize = all.iter().map(|(used, _)| used.bytes).sum();
        for (used, name) in all {
            if bytes <= self.memory_bytes {
                break;
            }
            // A collection in use is kept.
            let idle = open.slots.get(&name).is_some_and(|slot| Arc::strong_count(slot) == 1);
            if name != but_for && idle {
                open.slots.remove(&name);
                bytes -= used.bytes;
            }
        }
    }
}

#[async_trait]
impl PointStore for EmbeddedStore {
    async fn create(&self, collection: &str, dimension: usize) -> Answer<()> {
        self.blocking(collection, move |shared, collection| {
            let slot = shared.slot(collection);
            if !shared.load(collection, &slot)? {
                ChangeFile::create(&shared.folder_of(collection), dimension)?;
                shared.load(collection, &slot)?;
            }
            let known = shared.read(collection, PointIndex::dimension)?;
            match known == Some(dimension) {
                true => Ok(()),
                false => {
                    let message =
                        format!("`{collection}` has vectors of {known:?}, not {dimension}");
                    Err(StoreFailure::lasting(message))
                }
            }
        })
        .await
    }

    async fn discard(&self, collection: &str) -> Answer<()> {
        self.blocking(collection, |shared, collection| {
            let slot = shared.slot(collection);
            let mut held = slot.loaded.write().unwrap_or_else(PoisonError::into_inner);
            *held = None;
            file::remove(&shared.folder_of(collection))?;
            lock(&slot.used).bytes = 0;
            Ok(())
        })
        .await
    }

    async fn state(&self, collection: &str) -> Answer<Option<StoredState>> {
        let points = self
            .blocking(collection, |shared, collection| shared.read(collection, PointIndex::len))
            .await?;
        Ok(points.map(|points| StoredState { points: points as u64, status: "green".to_owned() }))
    }

    async fn change(&self, collection: &str, change: PointChange) -> Answer<()> {
        if change.is_empty() {
            return Ok(());
        }
        self.blocking(collection, |shared, collection| {
            shared.write(collection, |Loaded { file, index }| {
                index.check(&change)?;
                file.append(&change)?;
                index.apply(change)?;
                file.compact(index.len(), || index.points())
            })
        })
        .await
    }

    async fn page(
        &self,
        collection: &str,
        from: Option<PointId>,
        limit: usize,
    ) -> Answer<PointPage> {
        let page = self.blocking(collection, move |shared, collection| {
            shared.read(collection, |index| index.page(from, limit))
        });
        Ok(page.await?.unwrap_or_default())
    }

    async fn search(
        &self,
        collection: &str,
        vector: SearchVector,
        filter: PointFilter,
        limit: usize,
    ) -> Answer<Vec<FoundPoint>> {
        let found = self.blocking(collection, move |shared, collection| {
            shared
                .read(collection, |index| index.search(&vector, &filter, limit))
                .map(Option::transpose)?
        });
        Ok(found.await?.unwrap_or_default())
    }
}
