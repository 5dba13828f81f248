//! Making and removing volumes: an intent, its effect, and the record of its end. Each runs to its end,
//! whether or not anybody waits.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use futures::future::BoxFuture;
use hivekeep_kernel::{CallCx, ToolError, VolumeId, fault_point};
use hivekeep_runtime::log::{self, Decision, Log, LogError};
use hivekeep_store::NewEvent;
use serde_json::json;

use crate::{
    held::{VolumeResult, in_use, not_found},
    images::VolumeImages,
    tools::{VolumeCreate, VolumeDelete, VolumeDeleted, VolumeRow},
    volume::{Record, Volume},
    volumes::{VolumeService, lost},
};

/// Sizes are multiples of it.
const SIZE_UNIT: u64 = 1 << 20;
/// A smaller file system would hold little but its own journal.
const LEAST_BYTES: u64 = 16 << 20;

impl VolumeService {
    pub(crate) async fn create(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeCreate,
    ) -> VolumeResult<VolumeRow> {
        let owner = self.owner(cx.session)?;
        self.supported()?;
        self.room.admit(self.images.root())?;
        let limits = self.limits(owner);
        let size_bytes = rounded(input.size_limit_bytes);
        let (id, at) = (VolumeId::new(), Utc::now());
        let expires_at = input.ttl_hours.map(|hours| at + TimeDelta::hours(hours.into()));
        let label = input.label;
        let (log, written) = {
            let mut held = self.held();
            held.admit(owner, &label, size_bytes, &limits)?;
            let stream = log::stream::<Volume>(id)
                .map_err(|error| ToolError::internal(error.to_string()))?;
            let log = Log::of(self.journal.clone(), stream, None);
            let wanted = Record::Wanted { owner, label, size_bytes, at, expires_at };
            let written = log.decide(|_| Ok::<_, ToolError>(Decision::record(wanted)))?;
            held.logs.insert(id, log.clone());
            (log, written)
        };
        // To its end, whether or not anybody waits.
        let made = tokio::spawn(self.clone().make(id, size_bytes, log, written));
        made.await.map_err(lost)??;
        self.row_of(id)
    }

    async fn make(
        self: Arc<Self>,
        id: VolumeId,
        size_bytes: u64,
        log: Log<Volume>,
        wanted: BoxFuture<'static, Result<(), LogError>>,
    ) -> VolumeResult<()> {
        let made = async {
            wanted.await?;
            fault_point!("volume.after_wanted");
            let make = move |images: &VolumeImages| {
                images.make(id, size_bytes)?;
                fault_point!("volume.after_image");
                VolumeImages::empty(&images.mount(id)?)
            };
            self.on_mount(id, make).await?;
            fault_point!("volume.before_made");
            let made = Decision::record(Record::Made).event(event("volume.created", id));
            log.decide(|_| Ok::<_, ToolError>(made))?.await?;
            fault_point!("volume.after_made");
            Ok(())
        };
        let made: VolumeResult<()> = made.await;
        if made.is_err()
            && let Err(error) = self.forget(id, &log).await
        {
            // Its label stays taken until the next start, which undoes it.
            tracing::error!(volume = %id, %error, "a volume that was not made could not be removed");
        }
        made
    }

    /// Removes what there is of a volume, then its records.
    async fn forget(&self, id: VolumeId, log: &Log<Volume>) -> VolumeResult<()> {
        let remove = move |images: &VolumeImages| images.remove(&id.to_string());
        self.on_mount(id, remove).await?;
        fault_point!("volume.after_remove");
        log.forget().await?;
        self.held().drop_volume(id);
        Ok(())
    }

    pub(crate) async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeDelete,
    ) -> VolumeResult<VolumeDeleted> {
        let owner = self.owner(cx.session)?;
        // An earlier daemon's workspaces have told what they have.
        let _sender_is_ours = self.all_set.subscribe().wait_for(|told| *told).await.is_ok();
        let (id, volume) = self.held().usable(owner, &input.volume_id, Utc::now())?;
        self.remove(id, "volume.deleted").await?;
        Ok(VolumeDeleted { volume_id: id, label: volume.label, deleted: true })
    }

    /// Removes a volume that no workspace has.
    pub(crate) async fn remove(self: &Arc<Self>, id: VolumeId, kind: &str) -> VolumeResult<()> {
        let (log, written) = {
            let held = self.held();
            let users = held.users(id);
            if !users.is_empty() {
                return Err(in_use(id, &users));
            }
            let there = held.logs.get(&id).filter(|_| held.is_there(id));
            let log = there.cloned().ok_or_else(|| not_found(&id.to_string()))?;
            let wanted = Decision::record(Record::DeleteWanted).event(event(kind, id));
            let written = log.decide(|_| Ok::<_, ToolError>(wanted))?;
            (log, written)
        };
        let this = self.clone();
        let removed = tokio::spawn(async move {
            written.await?;
            fault_point!("volume.after_delete_wanted");
            this.forget(id, &log).await
        });
        removed.await.map_err(lost)?
    }
}

/// Size of a volume for a size that is asked for.
pub(crate) fn rounded(asked_bytes: u64) -> u64 {
    asked_bytes.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT).max(LEAST_BYTES)
}

fn event(kind: &str, id: VolumeId) -> NewEvent {
    NewEvent { kind: kind.to_owned(), subject: id.to_string(), data: json!({}) }
}
