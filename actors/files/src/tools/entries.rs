//! The tools `fs.stat`, `fs.get` and `fs.put`: entries of a place with all that is known of them, and bytes
//! of any file.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use chrono::{DateTime, Utc};
use hivekeep_file_engine::{
    GetBytes, MAX_METADATA, MAX_STAT_ENTRIES, PutBytes, StatEntry, StatKind, StatPath,
};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files, fs::MAX_READ_BYTES};
use crate::{codes, place::PlacedPath};

/// Most bytes of one piece.
const MAX_PIECE_BYTES: u64 = MAX_READ_BYTES;
/// The same as base64, and some breaks of lines.
const MAX_PIECE_CHARS: u64 = MAX_PIECE_BYTES / 3 * 4 + 256 * 1024;
/// Largest permission bits: those that lend an owner's rights are refused.
const MAX_MODE: u32 = 0o1777;

/// Tell kind, size, mode, owner, times, link and metadata of a path of a place, or of what is below it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsStat {
    /// Path from the place's root.
    path: String,
    /// 0 is the path itself; n lists n levels below it, without it.
    #[serde(default)]
    #[schemars(range(max = 64))]
    depth: u32,
    /// True tells of what a link leads to.
    #[serde(default)]
    follow: bool,
    /// Most entries; default 1000.
    #[schemars(range(min = 1, max = MAX_STAT_ENTRIES))]
    #[serde(default = "default_entries")]
    limit: usize,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    place: Option<String>,
}

fn default_entries() -> usize {
    1000
}

/// Attributes of files and folders.
#[derive(Debug, Serialize, JsonSchema)]
struct FsStats {
    /// Place.
    place: String,
    /// Each folder before what is in it, by name.
    entries: Vec<FsStatEntry>,
    /// True if there are more.
    truncated: bool,
}

/// Attributes of a file, folder or link.
#[derive(Debug, Serialize, JsonSchema)]
struct FsStatEntry {
    /// Path.
    path: String,
    /// Name.
    name: String,
    /// `file`, `dir`, `symlink` or `other`.
    kind: &'static str,
    /// Size.
    bytes: u64,
    /// Permission bits, as a number.
    mode: u32,
    /// User, by name in a workspace, else by number.
    owner: String,
    /// Group, likewise.
    group: String,
    /// When the content was changed.
    modified_at: DateTime<Utc>,
    /// Target of a symbolic link, as the link has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    /// Texts by name that were put with the content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// Get bytes of any file of a place as base64.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsGet {
    /// Path from the place's root.
    path: String,
    /// First byte.
    #[serde(default)]
    from: u64,
    /// Most bytes, at most 4 MiB; default 262144.
    #[schemars(range(min = 1, max = MAX_PIECE_BYTES))]
    #[serde(default = "default_piece_bytes")]
    max_bytes: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    place: Option<String>,
}

fn default_piece_bytes() -> u64 {
    256 * 1024
}

/// Bytes of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct FsGot {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// The bytes.
    content_base64: String,
    /// First byte.
    from: u64,
    /// Size of the whole file.
    bytes: u64,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Texts by name that were put with the content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// Put bytes into a file of a place: from 0 on the whole file, at once or not at all; from `at` on behind
/// what it has, and cut behind them. Missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsPut {
    /// Path from the place's root.
    path: String,
    /// The bytes, at most 4 MiB.
    #[schemars(length(max = MAX_PIECE_CHARS))]
    content_base64: String,
    /// First byte that they are put at; the file has at least as many.
    #[serde(default)]
    at: u64,
    /// Texts by name to keep with the file.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA))]
    metadata: BTreeMap<String, String>,
    /// Permission bits, as a number; default those that it has, or 420 (0644).
    #[schemars(range(max = MAX_MODE))]
    mode: Option<u32>,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    place: Option<String>,
}

/// Bytes that were put.
#[derive(Debug, Serialize, JsonSchema)]
struct FsBytesPut {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Size of the file.
    bytes: u64,
    /// Whether there was a file before.
    replaced: bool,
}

tools! { pub(crate) FAMILY: "fs" for service Files, singleton files;
    fs_stat: FsStat => FsStats = Files::stat {
        name: "fs.stat", title: "Tell about paths of a place", effect: Read, timeout_secs: 300,
        result_budget_bytes: 8 * 1024 * 1024, rate: RateClass::File,
    };
    fs_get: FsGet => FsGot = Files::get {
        name: "fs.get", title: "Get bytes of a file of a place", effect: Read,
        result_budget_bytes: 16 * 1024 * 1024, rate: RateClass::File,
    };
    fs_put: FsPut => FsBytesPut = Files::put {
        name: "fs.put", title: "Put bytes into a file of a place", effect: Idempotent,
        risk: Risk::Medium, rate: RateClass::File,
    };
}

impl Files {
    async fn stat(self: Arc<Self>, cx: CallCx, input: FsStat) -> Answer<FsStats> {
        let FsStat { path, depth, follow, limit, place } = input;
        let asked = StatPath { path, depth, follow, limit };
        let (found, PlacedPath { place, .. }) = self.run(&cx, place.as_deref(), asked).await?;
        let entries = found.entries.into_iter().map(row).collect();
        Ok(FsStats { place, entries, truncated: found.truncated })
    }

    async fn get(self: Arc<Self>, cx: CallCx, input: FsGet) -> Answer<FsGot> {
        let FsGet { path, from, max_bytes, place } = input;
        let asked = GetBytes { path, offset: from, limit: max_bytes };
        let (got, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        let next = from.saturating_add(got.bytes.len() as u64);
        Ok(FsGot {
            place,
            path,
            content_base64: BASE64.encode(&got.bytes),
            from,
            bytes: got.size_bytes,
            next: (next < got.size_bytes).then_some(next),
            metadata: got.metadata,
        })
    }

    async fn put(self: Arc<Self>, cx: CallCx, input: FsPut) -> Answer<FsBytesPut> {
        let FsPut { path, content_base64, at, metadata, mode, place } = input;
        let content = BASE64.decode(content_base64).map_err(|error| {
            ToolError::invalid(format!("`content_base64` is not valid base64: {error}"))
        })?;
        let bytes = content.len() as u64;
        if bytes > MAX_PIECE_BYTES {
            let message = format!("{bytes} bytes; {MAX_PIECE_BYTES} are put at once");
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message)
                .next("put the rest by further calls, each with `at`"));
        }
        let asked = PutBytes { path, content: content.into(), at, metadata, mode };
        let (put, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        Ok(FsBytesPut { place, path, bytes: put.size_bytes, replaced: put.existed })
    }
}

fn row(entry: StatEntry) -> FsStatEntry {
    let (seconds, nanos) = entry.modified;
    FsStatEntry {
        name: entry.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned(),
        path: entry.path,
        kind: match entry.kind {
            StatKind::File => "file",
            StatKind::Folder => "dir",
            StatKind::Link => "symlink",
            StatKind::Other => "other",
        },
        bytes: entry.size_bytes,
        mode: entry.mode,
        owner: entry.owner,
        group: entry.group,
        modified_at: DateTime::from_timestamp(seconds, nanos).unwrap_or_default(),
        symlink_target: entry.target,
        metadata: entry.metadata,
    }
}
