//! URIs of artifacts: `hivekeep://artifacts/art_...`, with a range behind it or not.

use hivekeep_kernel::{ArtifactId, ToolError};

/// Text before the id.
const ROOT: &str = "hivekeep://artifacts/";
/// URI template (RFC 6570).
pub(crate) const TEMPLATE: &str = "hivekeep://artifacts/{id}{?offset,length}";

/// URI of an artifact.
pub(crate) fn artifact_uri(id: ArtifactId) -> String {
    format!("{ROOT}{id}")
}

/// Id in a URI without a range, or an id as it is.
///
/// # Errors
/// `invalid_input`.
pub fn artifact_id(text: &str) -> Result<ArtifactId, ToolError> {
    let id = text.strip_prefix(ROOT).unwrap_or(text);
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
pub(crate) fn parse(text: &str) -> Result<UriRange, ToolError> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let path = path.strip_prefix(ROOT).ok_or_else(|| invalid(text))?;
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
    ToolError::invalid(format!("`{shown}` is not a valid URI of an artifact: expected {TEMPLATE}"))
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
        assert_eq!(parse(&uri), range(None, None));
        assert_eq!(parse(&format!("{uri}?length=5&offset=3")), range(Some(3), Some(5)));
        for bad in ["?offset", "?offset=-1", "?offset=1&offset=1", "?limit=1", "/..", "#x"] {
            assert!(parse(&format!("{uri}{bad}")).is_err(), "{bad}");
        }
        for bad in [&id.to_string(), "hivekeep://artifacts/../x", "file:///etc/passwd"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
