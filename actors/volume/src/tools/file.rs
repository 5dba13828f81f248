//! The tools `aegis.file.*`: a thin layer over the file engine, for the volumes of the session's user.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use cap_std::fs::Metadata;
use chrono::{DateTime, Utc};
use hivekeep_file_engine::{
    ByteRange, FileRoot, ListedFolder, PlacePath, RemovePath, list_folder, make_folder, read_bytes,
    run, write_bytes,
};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    codes,
    images::free_bytes,
    ports::{refused, refused_in},
    volume::VolumeResult,
    volumes::{VolumeService, failed},
};

/// Size of a file that one call writes at most, in bytes as they land on the volume.
pub(crate) const MAX_FILE_BYTES: usize = 12 * 1024 * 1024;
/// Size of `content`: the same in base64.
const MAX_CONTENT_CHARS: usize = 16 * 1024 * 1024;
/// Size of what one call reads at most.
const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// How bytes are a text in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum Encoding {
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
struct VolumeFileList {
    /// Id or label of the volume.
    volume_id: String,
    /// Folder, from the volume's root: `/` is the root.
    path: String,
    /// Continue after this name: the `next` of the page before.
    after: Option<String>,
    /// Most entries, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(default = "default_entries")]
    limit: usize,
}

fn default_entries() -> usize {
    200
}

/// Read a file of a volume, or a range of it: as text where it is UTF-8, else as base64; `encoding` says which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeFileRead {
    /// Id or label of the volume.
    volume_id: String,
    /// File, from the volume's root.
    path: String,
    /// First byte to read.
    #[serde(default)]
    offset: u64,
    /// Most bytes to read, at most 4 MiB.
    #[schemars(range(min = 8, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    limit: u64,
    /// VolumeResult in this encoding; `utf-8` refuses what is not text.
    encoding: Option<Encoding>,
}

fn default_read_bytes() -> u64 {
    256 * 1024
}

/// Write a file in a volume, whole: it is replaced at once or not at all. Missing folders are made. Refused
/// with `volume_full` where the volume has no room.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeFileWrite {
    /// Id or label of the volume.
    volume_id: String,
    /// File, from the volume's root.
    path: String,
    /// The whole content; at most 12 MiB once it is decoded.
    #[schemars(length(max = MAX_CONTENT_CHARS))]
    content: String,
    /// Encoding of `content`: `base64` for any bytes.
    #[serde(default = "text")]
    encoding: Encoding,
}

fn text() -> Encoding {
    Encoding::Utf8
}

/// Delete a file of a volume, or a folder with everything in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeFileDelete {
    /// Id or label of the volume.
    volume_id: String,
    /// File or folder, from the volume's root.
    path: String,
}

/// Make a folder in a volume, with those that it is in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VolumeFileMkdir {
    /// Id or label of the volume.
    volume_id: String,
    /// Folder, from the volume's root.
    path: String,
}

/// Entries of a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileListed {
    /// Folder.
    path: String,
    /// Sorted by name.
    entries: Vec<VolumeFileEntry>,
    /// How many the folder has, or at least, with `more_than_counted`.
    total: usize,
    /// Set where the folder has more entries than are looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more_than_counted: bool,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileEntry {
    /// Name; bytes that are not UTF-8 are replaced.
    name: String,
    /// Whether it is a folder.
    is_dir: bool,
    /// `file`, `folder`, `link` or `other`.
    kind: &'static str,
    /// Size.
    size_bytes: u64,
    /// Time of its last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<DateTime<Utc>>,
}

/// Content of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileText {
    /// Path.
    path: String,
    /// The range that was asked for.
    content: String,
    /// Encoding of `content`.
    encoding: Encoding,
    /// Media type, by the name's extension.
    content_type: String,
    /// Size of the whole file.
    size_bytes: u64,
    /// Where to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileWritten {
    /// Path.
    path: String,
    /// Size of the file.
    bytes_written: u64,
    /// Whether there was a file before.
    replaced: bool,
    /// Room that is left in the volume.
    free_bytes: u64,
}

/// A file or folder that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileDeleted {
    /// Path.
    path: String,
    /// Always true.
    deleted: bool,
}

/// A folder that is there.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeFileMade {
    /// Path.
    path: String,
    /// Whether it was made by this call.
    created: bool,
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

/// Names of one folder that are looked at; a hostile one has more.
const MAX_NAMES: u64 = 100_000;

impl VolumeService {
    async fn file_list(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileList,
    ) -> VolumeResult<VolumeFileListed> {
        let VolumeFileList { volume_id, path, after, limit } = input;
        let list = move |root: &FileRoot, path: &PlacePath| {
            let listed = list_folder(root, path, after.as_deref(), limit, MAX_NAMES);
            let ListedFolder { entries, total, more, more_than_counted } =
                listed.map_err(refused)?;
            let next = entries.last_key_value().filter(|_| more).map(|(name, _)| name.clone());
            Ok(VolumeFileListed {
                path: path.to_string(),
                entries: entries
                    .into_iter()
                    .map(|(name, metadata)| entry(name, &metadata))
                    .collect(),
                total: total as usize,
                more_than_counted,
                next,
            })
        };
        self.at(&cx, &volume_id, &path, list).await
    }

    async fn file_read(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileRead,
    ) -> VolumeResult<VolumeFileText> {
        let VolumeFileRead { volume_id, path, offset, limit, encoding } = input;
        let read = move |root: &FileRoot, path: &PlacePath| {
            let range = read_bytes(root, path, offset, limit).map_err(refused)?;
            shown(path, range, offset, encoding)
        };
        self.at(&cx, &volume_id, &path, read).await
    }

    async fn file_write(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileWrite,
    ) -> VolumeResult<VolumeFileWritten> {
        let VolumeFileWrite { volume_id, path, content, encoding } = input;
        let content = match encoding {
            Encoding::Utf8 => content.into_bytes(),
            Encoding::Base64 => BASE64_STANDARD.decode(content).map_err(|error| {
                ToolError::invalid(format!("`content` is not valid base64: {error}"))
            })?,
        };
        if content.len() > MAX_FILE_BYTES {
            let message =
                format!("the content has {} bytes, {MAX_FILE_BYTES} are allowed", content.len());
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message));
        }
        let write = move |root: &FileRoot, path: &PlacePath| {
            if path.split().is_none() {
                return Err(rootless());
            }
            let written = write_bytes(root, path, &content);
            let replaced = written.map_err(|error| refused_in(error, root.dir()))?;
            let free = free_bytes(root.dir()).map_err(|error| failed("look at", &error))?;
            Ok(VolumeFileWritten {
                path: path.to_string(),
                bytes_written: content.len() as u64,
                replaced: replaced.existed,
                free_bytes: free,
            })
        };
        self.at(&cx, &volume_id, &path, write).await
    }

    async fn file_delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileDelete,
    ) -> VolumeResult<VolumeFileDeleted> {
        let remove = |root: &FileRoot, path: &PlacePath| {
            if path.split().is_none() {
                return Err(rootless());
            }
            let asked = RemovePath { path: path.to_string(), recursive: true };
            run(root, &asked.into(), &|| false).map_err(refused)?;
            Ok(VolumeFileDeleted { path: path.to_string(), deleted: true })
        };
        self.at(&cx, &input.volume_id, &input.path, remove).await
    }

    async fn file_mkdir(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileMkdir,
    ) -> VolumeResult<VolumeFileMade> {
        let make = |root: &FileRoot, path: &PlacePath| {
            let made = make_folder(root, path);
            let created = made.map_err(|error| refused_in(error, root.dir()))?;
            Ok(VolumeFileMade { path: path.to_string(), created })
        };
        self.at(&cx, &input.volume_id, &input.path, make).await
    }
}

fn rootless() -> ToolError {
    let message = "the root of a volume cannot be written or deleted";
    ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
        .next("name a path relative to the volume's root, with `/` between folders")
}

fn entry(name: String, metadata: &Metadata) -> VolumeFileEntry {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "link",
        _ => "other",
    };
    let modified_at = metadata.modified().ok().map(|at| at.into_std().into());
    VolumeFileEntry {
        name,
        is_dir: kind == "folder",
        kind,
        size_bytes: metadata.len(),
        modified_at,
    }
}

/// A range as text where it is, in the encoding that was asked for.
fn shown(
    path: &PlacePath,
    range: ByteRange,
    offset: u64,
    asked: Option<Encoding>,
) -> VolumeResult<VolumeFileText> {
    let ByteRange { mut bytes, size_bytes } = range;
    let whole = offset.saturating_add(bytes.len() as u64) >= size_bytes;
    if let (Err(error), true) = (std::str::from_utf8(&bytes), asked != Some(Encoding::Base64))
        && !whole
        && error.error_len().is_none()
    {
        // A character that the end cuts.
        let text = error.valid_up_to();
        bytes.truncate(text);
    }
    let next_offset = (!whole).then_some(offset + bytes.len() as u64);
    let (content, encoding) = match (asked, String::from_utf8(bytes)) {
        (None | Some(Encoding::Utf8), Ok(text)) => (text, Encoding::Utf8),
        (Some(Encoding::Utf8), Err(_)) => {
            let message = format!("`{path}` is not UTF-8 text in this range");
            return Err(ToolError::new(Layer::Actor, codes::NOT_UTF8, message)
                .next("read it with `encoding` base64"));
        }
        (_, Ok(text)) => (BASE64_STANDARD.encode(text), Encoding::Base64),
        (_, Err(error)) => (BASE64_STANDARD.encode(error.as_bytes()), Encoding::Base64),
    };
    Ok(VolumeFileText {
        path: path.to_string(),
        content,
        encoding,
        content_type: mime_guess::from_path(path.as_str()).first_or_octet_stream().to_string(),
        size_bytes,
        next_offset,
    })
}
