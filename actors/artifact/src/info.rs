//! Metadata of an artifact, and their place: the last line of its file.

use std::{fs::File, io, os::unix::fs::FileExt};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ArtifactId, CallId, SessionId, User, ports::KeptResult};
use serde::{Deserialize, Serialize};

use crate::uri::artifact_uri;

/// MIME type of every artifact: a result as compact JSON.
pub const MIME_TYPE: &str = "application/json";

/// The longest last line that is read. Everything in it is bounded and short.
const LONGEST: usize = 4 * 1024;

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactInfo {
    /// Id.
    pub id: ArtifactId,
    /// Owner.
    pub user: User,
    /// Session of the call that made it.
    pub session: SessionId,
    /// Call that made it.
    pub call: CallId,
    /// Tool that was called.
    pub tool: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// Time at which it was kept.
    pub created_at: DateTime<Utc>,
    /// Time at which it is removed.
    pub expires_at: DateTime<Utc>,
}

impl ArtifactInfo {
    /// URI.
    pub fn uri(&self) -> String {
        artifact_uri(self.id)
    }

    /// Result for the caller of the tool.
    pub(crate) fn kept(&self) -> KeptResult {
        KeptResult {
            uri: self.uri(),
            bytes: self.bytes,
            mime_type: MIME_TYPE,
            sha256: self.sha256.clone(),
            expires_at: self.expires_at,
        }
    }

    /// The end of its file, behind the result.
    pub(crate) fn last_line(&self) -> io::Result<Vec<u8>> {
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads it back; `None` for a file that does not end as one of this id does.
    pub(crate) fn read(file: &File, id: ArtifactId) -> io::Result<Option<Self>> {
        let size = file.metadata()?.len();
        let length = size.min(LONGEST as u64);
        let mut end = vec![0; usize::try_from(length).unwrap_or(LONGEST)];
        file.read_exact_at(&mut end, size - length)?;
        let Some(end) = end.strip_suffix(b"\n") else { return Ok(None) };
        let Some(newline) = end.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
        let line = &end[newline + 1..];
        let Ok(info) = serde_json::from_slice::<Self>(line) else { return Ok(None) };
        let whole = info.bytes.checked_add(line.len() as u64 + 2) == Some(size);
        Ok(Some(info).filter(|info| info.id == id && whole))
    }
}
