//! Contents of files, over HTTP: `/files` of the published data plane.

mod compose;
mod download;
mod encoding;
mod form;
mod signature;
mod upload;

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::{
    call::part_of,
    error::E2bError,
    state::{E2b, Owner},
    target::Target,
};

pub(super) use compose::compose;
pub(super) use download::download;
pub(super) use upload::upload;

/// Bytes of one read or write.
const PIECE_BYTES: usize = 1024 * 1024;

/// Query of a request about a file.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct FileQuery {
    #[serde(default)]
    path: String,
    #[serde(default)]
    username: String,
    signature: Option<String>,
    signature_expiration: Option<i64>,
}

/// A part of a file.
#[derive(Debug, Deserialize)]
struct Piece {
    content_base64: String,
    bytes: u64,
    next: Option<u64>,
}

/// A file of a sandbox.
#[derive(Clone)]
pub(super) struct SandboxFile {
    e2b: Arc<E2b>,
    owner: Owner,
    place: String,
    path: String,
}

impl SandboxFile {
    pub(super) fn new(e2b: Arc<E2b>, target: &Target, path: &str) -> Self {
        let (owner, place) = (target.owner.clone(), target.place("/"));
        Self { e2b, owner, place, path: path.to_owned() }
    }

    /// Bytes from a cursor on, the size of the whole, and where to go on.
    pub(super) async fn read(&self, from: u64) -> Result<(Bytes, u64, Option<u64>), E2bError> {
        let asked = json!({
            "place": self.place, "path": self.path, "from": from, "max_bytes": PIECE_BYTES,
        });
        let piece = self.e2b.call_in_turn(&self.owner, "fs.get", asked).await?;
        let Piece { content_base64, bytes, next } = part_of("fs.get", piece)?;
        let content = STANDARD.decode(content_base64);
        let content = content.map_err(|_| E2bError::invalid("the file could not be read"))?;
        Ok((content.into(), bytes, next))
    }
}
