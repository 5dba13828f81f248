//! Handlers of `fs.stat`, `fs.get` and `fs.put`.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use chrono::DateTime;
use hivekeep_file_engine::{GetBytes, PutBytes, StatEntry, StatKind, StatPath};
use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    file_place::PlacedPath,
    files::{Answer, Files},
    tools::{FsBytesPut, FsGet, FsGot, FsPut, FsStat, FsStatEntry, FsStats, MAX_PIECE_BYTES},
};

impl Files {
    pub(crate) async fn stat(self: Arc<Self>, cx: CallCx, input: FsStat) -> Answer<FsStats> {
        let FsStat { path, depth, follow, limit, place } = input;
        let asked = StatPath { path, depth, follow, limit };
        let (found, PlacedPath { place, .. }) = self.run(&cx, place.as_deref(), asked).await?;
        let entries = found.entries.into_iter().map(row).collect();
        Ok(FsStats { place, entries, truncated: found.truncated })
    }

    pub(crate) async fn get(self: Arc<Self>, cx: CallCx, input: FsGet) -> Answer<FsGot> {
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

    pub(crate) async fn put(self: Arc<Self>, cx: CallCx, input: FsPut) -> Answer<FsBytesPut> {
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
