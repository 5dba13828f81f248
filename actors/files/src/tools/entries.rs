//! Entries of a place with all that is known of them, and bytes of any file.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_file_engine::{MAX_METADATA, MAX_STAT_ENTRIES};
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fs::MAX_READ_BYTES;
use crate::files::Files;

/// Most bytes of one piece.
pub(crate) const MAX_PIECE_BYTES: u64 = MAX_READ_BYTES;
/// The same as base64, and some breaks of lines.
const MAX_PIECE_CHARS: u64 = MAX_PIECE_BYTES / 3 * 4 + 256 * 1024;
/// Largest permission bits: those that lend an owner's rights are refused.
const MAX_MODE: u32 = 0o1777;

/// Tell kind, size, mode, owner, times, link and metadata of a path of a place, or of what is below it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsStat {
    /// Path from the place's root.
    pub(crate) path: String,
    /// 0 is the path itself; n lists n levels below it, without it.
    #[serde(default)]
    #[schemars(range(max = 64))]
    pub(crate) depth: u32,
    /// True tells of what a link leads to.
    #[serde(default)]
    pub(crate) follow: bool,
    /// Most entries; default 1000.
    #[schemars(range(min = 1, max = MAX_STAT_ENTRIES))]
    #[serde(default = "default_entries")]
    pub(crate) limit: usize,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    pub(crate) place: Option<String>,
}

fn default_entries() -> usize {
    1000
}

/// What is known of paths.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsStats {
    /// Place.
    pub(crate) place: String,
    /// Each folder before what is in it, by name.
    pub(crate) entries: Vec<FsStatEntry>,
    /// True if there are more.
    pub(crate) truncated: bool,
}

/// What is known of a path.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsStatEntry {
    /// Path.
    pub(crate) path: String,
    /// Name.
    pub(crate) name: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub(crate) kind: &'static str,
    /// Size.
    pub(crate) bytes: u64,
    /// Permission bits, as a number.
    pub(crate) mode: u32,
    /// User, by name in a workspace, else by number.
    pub(crate) owner: String,
    /// Group, likewise.
    pub(crate) group: String,
    /// When the content was changed.
    pub(crate) modified_at: DateTime<Utc>,
    /// What a link says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) symlink_target: Option<String>,
    /// Texts by name that were put with the content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Get bytes of any file of a place as base64.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsGet {
    /// Path from the place's root.
    pub(crate) path: String,
    /// First byte.
    #[serde(default)]
    pub(crate) from: u64,
    /// Most bytes, at most 4 MiB; default 262144.
    #[schemars(range(min = 1, max = MAX_PIECE_BYTES))]
    #[serde(default = "default_piece_bytes")]
    pub(crate) max_bytes: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    pub(crate) place: Option<String>,
}

fn default_piece_bytes() -> u64 {
    256 * 1024
}

/// Bytes of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsGot {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// The bytes.
    pub(crate) content_base64: String,
    /// First byte.
    pub(crate) from: u64,
    /// Size of the whole file.
    pub(crate) bytes: u64,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// Texts by name that were put with the content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Put bytes into a file of a place: from 0 on the whole file, at once or not at all; from `at` on behind
/// what it has, and cut behind them. Missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsPut {
    /// Path from the place's root.
    pub(crate) path: String,
    /// The bytes, at most 4 MiB.
    #[schemars(length(max = MAX_PIECE_CHARS))]
    pub(crate) content_base64: String,
    /// First byte that they are put at; the file has at least as many.
    #[serde(default)]
    pub(crate) at: u64,
    /// Texts by name to keep with the file.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA))]
    pub(crate) metadata: BTreeMap<String, String>,
    /// Permission bits, as a number; default those that it has, or 420 (0644).
    #[schemars(range(max = MAX_MODE))]
    pub(crate) mode: Option<u32>,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    pub(crate) place: Option<String>,
}

/// Bytes that were put.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsBytesPut {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
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
