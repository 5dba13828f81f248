//! Files of volumes.

use chrono::{DateTime, Utc};
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::volumes::VolumeService;

/// Size of a file that one call writes at most, in bytes as they land on the volume.
pub(crate) const MAX_FILE_BYTES: usize = 12 * 1024 * 1024;
/// Size of `content`: the same in base64.
const MAX_CONTENT_CHARS: usize = 16 * 1024 * 1024;
/// Size of what one call reads at most.
const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// How bytes are a text in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Encoding {
    /// Text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Any bytes: base64 with padding.
    #[serde(rename = "base64")]
    Base64,
}

/// List a folder of a volume by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeFileList {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
    /// Folder, from the volume's root: `/` is the root.
    pub(crate) path: String,
    /// Continue after this name: the `next` of the page before.
    pub(crate) after: Option<String>,
    /// Most entries, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(default = "default_entries")]
    pub(crate) limit: usize,
}

fn default_entries() -> usize {
    200
}

/// Read a file of a volume, or a range of it: as text where it is UTF-8, else as base64; `encoding` says which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeFileRead {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
    /// File, from the volume's root.
    pub(crate) path: String,
    /// First byte to read.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Most bytes to read, at most 4 MiB.
    #[schemars(range(min = 8, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    pub(crate) limit: u64,
    /// VolumeResult in this encoding; `utf-8` refuses what is not text.
    pub(crate) encoding: Option<Encoding>,
}

fn default_read_bytes() -> u64 {
    256 * 1024
}

/// Write a file in a volume, whole: it is replaced at once or not at all. Missing folders are made. Refused
/// with `volume_full` where the volume has no room.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeFileWrite {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
    /// File, from the volume's root.
    pub(crate) path: String,
    /// The whole content; at most 12 MiB once it is decoded.
    #[schemars(length(max = MAX_CONTENT_CHARS))]
    pub(crate) content: String,
    /// What `content` is written in: `base64` for any bytes.
    #[serde(default = "text")]
    pub(crate) encoding: Encoding,
}

fn text() -> Encoding {
    Encoding::Utf8
}

/// Delete a file of a volume, or a folder with everything in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeFileDelete {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
    /// File or folder, from the volume's root.
    pub(crate) path: String,
}

/// Make a folder in a volume, with those that it is in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeFileMkdir {
    /// Id or label of the volume.
    pub(crate) volume_id: String,
    /// Folder, from the volume's root.
    pub(crate) path: String,
}

/// Entries of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileListed {
    /// Folder.
    pub(crate) path: String,
    /// Sorted by name.
    pub(crate) entries: Vec<VolumeFileEntry>,
    /// How many the folder has, or at least, with `more_than_counted`.
    pub(crate) total: usize,
    /// Set where the folder has more entries than are looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more_than_counted: bool,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileEntry {
    /// Name; bytes that are not UTF-8 are replaced.
    pub(crate) name: String,
    /// Whether it is a folder.
    pub(crate) is_dir: bool,
    /// `file`, `folder`, `link` or `other`.
    pub(crate) kind: &'static str,
    /// Size.
    pub(crate) size_bytes: u64,
    /// Time of its last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modified_at: Option<DateTime<Utc>>,
}

/// Content of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileText {
    /// Path.
    pub(crate) path: String,
    /// The range that was asked for.
    pub(crate) content: String,
    /// What `content` is written in.
    pub(crate) encoding: Encoding,
    /// Media type, by the name's extension.
    pub(crate) content_type: String,
    /// Size of the whole file.
    pub(crate) size_bytes: u64,
    /// Where to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileWritten {
    /// Path.
    pub(crate) path: String,
    /// Size of the file.
    pub(crate) bytes_written: u64,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
    /// Room that is left in the volume.
    pub(crate) free_bytes: u64,
}

/// What was deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileDeleted {
    /// Path.
    pub(crate) path: String,
    /// Always true.
    pub(crate) deleted: bool,
}

/// A folder that is there.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VolumeFileMade {
    /// Path.
    pub(crate) path: String,
    /// Whether it was made by this call.
    pub(crate) created: bool,
}

tools! { pub(crate) FAMILY: "volume files" for service VolumeService, singleton volumes;
    volume_file_list: VolumeFileList => VolumeFileListed = VolumeService::file_list {
        name: "aegis.file.list", title: "List a folder of a volume", effect: Read,
        rate: RateClass::File,
    };
    volume_file_read: VolumeFileRead => VolumeFileText = VolumeService::file_read {
        name: "aegis.file.read", title: "Read a file of a volume", effect: Read,
        result_budget_bytes: 32 * 1024 * 1024, rate: RateClass::File,
    };
    volume_file_write: VolumeFileWrite => VolumeFileWritten = VolumeService::file_write {
        name: "aegis.file.write", title: "Write a file of a volume", rate: RateClass::File,
    };
    volume_file_delete: VolumeFileDelete => VolumeFileDeleted = VolumeService::file_delete {
        name: "aegis.file.delete", title: "Delete a file of a volume", effect: Destroy,
        rate: RateClass::File,
    };
    volume_file_mkdir: VolumeFileMkdir => VolumeFileMade = VolumeService::file_mkdir {
        name: "aegis.file.mkdir", title: "Make a folder in a volume", rate: RateClass::File,
    };
}
