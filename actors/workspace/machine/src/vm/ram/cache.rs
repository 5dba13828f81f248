//! Cache of memory images, so that many forks load and share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use uuid::Uuid;

use super::Sealed;
use crate::Error;

/// Time that an image is kept after its last use.
const KEEP: Duration = Duration::from_secs(60);
/// Most images kept at once; the one that was used longest ago goes first.
const MAX_IMAGES: usize = 8;

type Cell = Arc<OnceCell<Arc<Sealed>>>;

/// Images by the id of their memory image. Clones are one cache.
#[derive(Debug, Clone, Default)]
pub(in crate::vm) struct RamCache {
    /// Locked for a lookup, never across an await.
    images: Arc<Mutex<HashMap<Uuid, (Cell, Instant)>>>,
}

impl RamCache {
    fn images(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, (Cell, Instant)>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image, loaded by `load` if it is not here. Those who ask meanwhile wait for it.
    pub(in crate::vm) async fn get(
        &self,
        id: Uuid,
        load: impl Future<Output = Result<Sealed, Error>> + Send,
    ) -> Result<Arc<Sealed>, Error> {
        let cell = self.cell(id);
        let loaded = cell.get_or_try_init(|| async { load.await.map(Arc::new) }).await.cloned();
        if loaded.is_err() {
            self.forget(id);
        }
        loaded
    }

    /// Keeps an image that was just made.
    pub(in crate::vm) fn put(&self, id: Uuid, image: Sealed) {
        // Nobody else knows the id yet.
        let _ = self.cell(id).set(Arc::new(image));
    }

    /// Drops an image; machines that have it keep it.
    pub(in crate::vm) fn forget(&self, id: Uuid) {
        self.images().remove(&id);
    }

    fn cell(&self, id: Uuid) -> Cell {
        let now = Instant::now();
        let mut images = self.images();
        let (cell, used) = images.entry(id).or_insert_with(|| (Cell::default(), now));
        *used = now;
        let cell = cell.clone();
        while images.len() > MAX_IMAGES {
            let oldest = images.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = oldest.min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id) else {
                break;
            };
            images.remove(&oldest);
        }
        drop(images);
        let cache = Arc::downgrade(&self.images);
        tokio::spawn(async move {
            tokio::time::sleep(KEEP).await;
            let Some(images) = cache.upgrade() else { return };
            let mut images = images.lock().unwrap_or_else(PoisonError::into_inner);
            if images.get(&id).is_some_and(|(_, used)| *used == now) {
                images.remove(&id);
            }
        });
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::super::make;
    use super::*;

    fn image() -> Result<Sealed, Error> {
        Sealed::of(make(1).unwrap()).map_err(Error::io("seal", "test".as_ref()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_load_serves_all_who_ask_and_is_let_go_after_a_while() {
        let cache = RamCache::default();
        let id = Uuid::new_v4();
        let loads = std::sync::atomic::AtomicU32::new(0);
        let get = || {
            cache.get(id, async {
                loads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                image()
            })
        };
        let (one, two) = tokio::join!(get(), get());
        assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
        tokio::time::sleep(KEEP * 2).await;
        assert!(cache.images().is_empty());
        get().await.unwrap();
        assert_eq!(loads.into_inner(), 2);
    }

    #[tokio::test]
    async fn a_failed_load_is_tried_anew_and_the_number_is_bounded() {
        let cache = RamCache::default();
        let id = Uuid::new_v4();
        let failing = cache.get(id, async { Err(Error::BadPlan("no".into())) }).await;
        assert!(failing.is_err());
        cache.get(id, async { image() }).await.unwrap();
        for _ in 0..2 * MAX_IMAGES {
            cache.put(Uuid::new_v4(), image().unwrap());
        }
        assert_eq!(cache.images().len(), MAX_IMAGES);
    }
}
