//! Description of an artifact, whose place is the last line of its file, and its URI:
//! `hivekeep://artifacts/art_...`, with a range behind it or not.

use std::{fs::File, io, os::unix::fs::FileExt};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ArtifactId, CallId, SessionId, ToolError, User};
use hivekeep_ports::KeptResult;
use serde::{Deserialize, Serialize};

/// MIME type of every artifact: a result as compact JSON.
pub const MIME_TYPE: &str = "application/json";

/// The longest last line that is read. Everything in it is bounded and short.
const LONGEST_LAST_LINE: usize = 4 * 1024;

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactInfo {
    /// Id, `art_...`, which its URI ends with.
    pub id: ArtifactId,
    /// User of that session, whose other sessions see it as well.
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
    /// URI of the whole result, without a range.
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
        let length = size.min(LONGEST_LAST_LINE as u64);
        let mut end = vec![0; usize::try_from(length).unwrap_or(LONGEST_LAST_LINE)];
        file.read_exact_at(&mut end, size - length)?;
        let Some(end) = end.strip_suffix(b"\n") else { return Ok(None) };
        let Some(newline) = end.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
        let line = &end[newline + 1..];
        let Ok(info) = serde_json::from_slice::<Self>(line) else { return Ok(None) };
        let whole = info.bytes.checked_add(line.len() as u64 + 2) == Some(size);
        Ok(Some(info).filter(|info| info.id == id && whole))
    }
}

/// Text before the id.
const URI_ROOT: &str = "hivekeep://artifacts/";
/// URI template (RFC 6570).
pub(crate) const URI_TEMPLATE: &str = "hivekeep://artifacts/{id}{?offset,length}";

/// URI of an artifact.
pub(crate) fn artifact_uri(id: ArtifactId) -> String {
    format!("{URI_ROOT}{id}")
}

/// Id in a URI without a range, or an id as it is.
///
/// # Errors
/// `invalid_input`.
pub fn artifact_id(text: &str) -> Result<ArtifactId, ToolError> {
    let id = text.strip_prefix(URI_ROOT).unwrap_or(text);
    id.parse().map_err(|_| invalid(text))
}

/// Part of an artifact that a URI names; the whole of it without a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UriRange {
    pub(crate) id: ArtifactId,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
}

/// Reads a URI of the template.
pub(crate) fn range_of(text: &str) -> Result<UriRange, ToolError> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let path = path.strip_prefix(URI_ROOT).ok_or_else(|| invalid(text))?;
    let mut range = UriRange { id: artifact_id(path)?, offset: None, length: None };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| invalid(text))?;
        let value = value.parse().map_err(|_| invalid(text))?;
        let field = match key {
            "offset" => &mut range.offset,
            "length" => &mut range.length,
            _ => return Err(invalid(text)),
        };
        if field.replace(value).is_some() {
            return Err(invalid(text));
        }
    }
    Ok(range)
}

fn invalid(text: &str) -> ToolError {
    let shown: String = text.chars().take(80).collect();
    ToolError::invalid(format!(
        "`{shown}` is not a valid URI of an artifact: expected {URI_TEMPLATE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_leads_back_to_its_artifact_and_its_range() {
        let id = ArtifactId::new();
        let uri = artifact_uri(id);
        assert_eq!((artifact_id(&uri), artifact_id(&id.to_string())), (Ok(id), Ok(id)));
        let range = |offset, length| Ok(UriRange { id, offset, length });
        assert_eq!(range_of(&uri), range(None, None));
        assert_eq!(range_of(&format!("{uri}?length=5&offset=3")), range(Some(3), Some(5)));
        for bad in ["?offset", "?offset=-1", "?offset=1&offset=1", "?limit=1", "/..", "#x"] {
            assert!(range_of(&format!("{uri}{bad}")).is_err(), "{bad}");
        }
        for bad in [&id.to_string(), "hivekeep://artifacts/../x", "file:///etc/passwd"] {
            assert!(range_of(bad).is_err(), "{bad}");
        }
    }
}
