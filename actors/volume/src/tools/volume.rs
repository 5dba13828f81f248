//! Volumes of a user.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{VolumeId, WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::volumes::VolumeService;

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
pub(crate) struct VolumeDelete {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
}

/// Show how much storage your volumes take and may take.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeQuota {}

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
pub(crate) struct VolumeDeleted {
    /// Its former id.
    pub(crate) volume_id: VolumeId,
    /// Its former label, free again.
    pub(crate) label: String,
    /// Always true: a removal that left anything behind is an error.
    pub(crate) deleted: bool,
}

/// Storage of a user.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeUsage {
    /// Number of volumes.
    pub(crate) volume_count: usize,
    /// Most volumes.
    pub(crate) max_volumes: usize,
    /// Room that they take on the host now.
    pub(crate) total_bytes_used: u64,
    /// Their sizes together, which count against the limit.
    pub(crate) total_allocated_bytes: u64,
    /// Limit of their sizes together.
    pub(crate) total_storage_bytes: u64,
    /// Largest file that `aegis.file.write` takes.
    pub(crate) max_file_size_bytes: u64,
}

tools! { pub(crate) FAMILY: "volumes" for service VolumeService, singleton volumes;
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
