//! Durable timer of volumes: each time it looks, it goes by what the records say.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::VolumeId;

use crate::{
    codes,
    held::VolumeResult,
    volumes::{VolumeService, failed, lost},
};

/// How often expiries and unused mounts are looked for. Times are given in hours.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(15);

impl VolumeService {
    /// Removes what has expired and unmounts what nothing uses.
    pub(crate) async fn tend(self: &Arc<Self>, now: DateTime<Utc>) {
        if !*self.all_set.borrow() {
            return;
        }
        let expired = self.held().expired(now);
        for id in expired {
            match self.remove(id, "volume.expired").await {
                Ok(()) => tracing::info!(volume = %id, "an expired volume is removed"),
                // A workspace came first.
                Err(error) if error.is(codes::VOLUME_IN_USE) => {}
                Err(error) => tracing::error!(volume = %id, %error, "an expired volume stays"),
            }
        }
        let all = self.held().all();
        for id in all {
            if let Err(error) = self.unmount_idle(id).await {
                tracing::error!(volume = %id, %error, "a volume stays mounted");
            }
        }
    }

    /// Unmounts all of which nothing is open, once no machine runs any more.
    pub(crate) async fn unmount_all(&self) {
        let all = self.held().all();
        for id in all {
            match self.on_mount(id, move |images| images.unmount(id)).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(volume = %id, "a volume is in use and stays mounted"),
                Err(error) => tracing::error!(volume = %id, %error, "a volume stays mounted"),
            }
        }
    }

    /// Unmounts a volume that no workspace has and nothing has used for a while.
    async fn unmount_idle(self: &Arc<Self>, id: VolumeId) -> VolumeResult<()> {
        let idle = Duration::from_secs(self.options.idle_unmount_secs);
        let (this, turn) = (self.clone(), self.held().turn(id));
        let done = tokio::task::spawn_blocking(move || {
            let mut used = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = used.is_some_and(|used| used.elapsed() >= idle);
            // A caller that attaches the volume from here on mounts it in a later turn.
            if is_idle && this.held().users(id).is_empty() && this.images.unmount(id)? {
                *used = None;
            }
            Ok(())
        });
        done.await.map_err(lost)?.map_err(|error| failed("unmount", &error))
    }
}
