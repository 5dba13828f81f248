//! The tools `aegis.volume.*`. Making and removing a volume is an intent, its effect, and the record of its
//! end; each runs to its end, whether or not anybody waits.

mod file;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Service, ServiceActor, ToolError, ToolGroup, VolumeId, WorkspaceId, fault_point, tools,
};
use hivekeep_runtime::log::{self, Decision, Log, LogError};
use hivekeep_store::NewEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    images::VolumeImages,
    volume::{Held, Record, Volume, VolumeResult, in_use, not_found},
    volumes::{VolumeService, lost},
};

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<VolumeService>>] = &[&FAMILY, &file::FAMILY];

/// Size of a label in characters.
const MAX_LABEL_CHARS: usize = 128;

/// Make a volume: storage that outlives workspaces and sessions, to be mounted into one or several of them.
/// Its size is enforced on every byte, whoever writes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeCreate {
    /// Name that no other volume of yours has, without `/`, `\` and control characters.
    #[schemars(length(min = 1, max = MAX_LABEL_CHARS), regex(pattern = r"^[^/\\\p{Cc}]+$"))]
    pub(crate) label: String,
    /// Its size in bytes, rounded up to whole MiB and to 16 MiB. The file system's own tables take 2 to 10 % of it.
    #[schemars(range(min = 1))]
    pub(crate) size_limit_bytes: u64,
    /// Remove it after so many hours, once no workspace has it. Default: keep it until it is deleted.
    #[schemars(range(min = 1, max = 87_600))]
    pub(crate) ttl_hours: Option<u32>,
}

/// List your volumes, oldest first, and which workspaces have them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeList {}

/// Delete a volume with everything in it. Refused while a workspace has it, whether that runs or not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeDelete {
    /// Id or label of the volume.
    volume_id: String,
}

/// Show how much storage your volumes take and may take.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeQuota {}

/// A volume.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeRow {
    /// Id.
    pub(crate) id: VolumeId,
    /// The id again.
    pub(crate) volume_id: VolumeId,
    /// Label.
    pub(crate) label: String,
    /// The label again.
    pub(crate) name: String,
    /// `persistent`, or `ephemeral` for one that expires.
    pub(crate) status: &'static str,
    /// Its size, which is enforced.
    pub(crate) size_limit_bytes: u64,
    /// Room that it takes on the host now.
    pub(crate) used_bytes: u64,
    /// Time of its creation.
    pub(crate) created_at: DateTime<Utc>,
    /// Time after which it is removed, once no workspace has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// Workspaces that have it.
    pub(crate) workspaces: Vec<WorkspaceId>,
}

/// Your volumes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeListed {
    /// Oldest first.
    pub(crate) volumes: Vec<VolumeRow>,
    /// How many.
    pub(crate) count: usize,
}

/// A volume that is gone.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeDeleted {
    /// Its former id.
    volume_id: VolumeId,
    /// Its former label, free again.
    label: String,
    /// Always true: a removal that left anything behind is an error.
    deleted: bool,
}

/// Storage of a user.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeUsage {
    /// Number of volumes.
    volume_count: usize,
    /// Most volumes.
    max_volumes: usize,
    /// Room that they take on the host now.
    total_bytes_used: u64,
    /// Their sizes together, which count against the limit.
    total_allocated_bytes: u64,
    /// Limit of their sizes together.
    total_storage_bytes: u64,
    /// Largest file that `aegis.file.write` takes.
    max_file_size_bytes: u64,
}

tools! { FAMILY: "volumes" for service VolumeService, singleton volumes;
    volume_create: VolumeCreate => VolumeRow = VolumeService::create {
        name: "aegis.volume.create", title: "Make a volume",
    };
    volume_list: VolumeList => VolumeListed = VolumeService::list {
        name: "aegis.volume.list", title: "List volumes", effect: Read,
    };
    volume_delete: VolumeDelete => VolumeDeleted = VolumeService::delete {
        name: "aegis.volume.delete", title: "Delete a volume", effect: Destroy,
    };
    volume_quota: VolumeQuota => VolumeUsage = VolumeService::quota {
        name: "aegis.volume.quota", title: "Show the storage of volumes", effect: Read,
    };
}

/// Sizes are multiples of it.
const SIZE_UNIT: u64 = 1 << 20;
/// A smaller file system would hold little but its own journal.
const LEAST_BYTES: u64 = 16 << 20;

impl Service for VolumeService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = FAMILIES;
}

impl VolumeService {
    pub(crate) async fn list(
        self: Arc<Self>,
        cx: CallCx,
        _: VolumeList,
    ) -> VolumeResult<VolumeListed> {
        let owner = self.sessions.caller(cx.session)?;
        let held = self.held();
        let durable = held.logs.iter().filter_map(|(id, log)| Some((*id, log.state()?)));
        let own = durable.filter(|(_, volume)| volume.is_ready(owner));
        let volumes: Vec<_> = own.map(|(id, volume)| self.row(&held, id, volume)).collect();
        Ok(VolumeListed { count: volumes.len(), volumes })
    }

    async fn quota(self: Arc<Self>, cx: CallCx, _: VolumeQuota) -> VolumeResult<VolumeUsage> {
        let owner = self.sessions.caller(cx.session)?;
        let limits = self.limits(owner);
        let held = self.held();
        let own: Vec<_> = held.decided().filter(|(_, volume)| volume.owner == owner).collect();
        Ok(VolumeUsage {
            volume_count: own.len(),
            max_volumes: limits.max_volumes,
            total_bytes_used: own.iter().map(|(id, _)| self.images.held_bytes(*id)).sum(),
            total_allocated_bytes: own.iter().map(|(_, volume)| volume.size_bytes).sum(),
            total_storage_bytes: limits.max_total_bytes(),
            max_file_size_bytes: file::MAX_FILE_BYTES as u64,
        })
    }

    pub(crate) async fn create(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeCreate,
    ) -> VolumeResult<VolumeRow> {
        let owner = self.sessions.caller(cx.session)?;
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

    async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeDelete,
    ) -> VolumeResult<VolumeDeleted> {
        let owner = self.sessions.caller(cx.session)?;
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

    fn row_of(&self, id: VolumeId) -> VolumeResult<VolumeRow> {
        let held = self.held();
        let volume = held.logs.get(&id).and_then(Log::state);
        volume.map(|volume| self.row(&held, id, volume)).ok_or_else(|| not_found(&id.to_string()))
    }

    fn row(&self, held: &Held, id: VolumeId, volume: Volume) -> VolumeRow {
        VolumeRow {
            id,
            volume_id: id,
            name: volume.label.clone(),
            label: volume.label,
            status: if volume.expires_at.is_some() { "ephemeral" } else { "persistent" },
            size_limit_bytes: volume.size_bytes,
            used_bytes: self.images.held_bytes(id),
            created_at: volume.created_at,
            expires_at: volume.expires_at,
            workspaces: held.users(id),
        }
    }
}

/// Size of a volume for a size that is asked for.
pub(crate) fn rounded(asked_bytes: u64) -> u64 {
    asked_bytes.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT).max(LEAST_BYTES)
}

fn event(kind: &str, id: VolumeId) -> NewEvent {
    NewEvent { kind: kind.to_owned(), subject: id.to_string(), data: json!({}) }
}
