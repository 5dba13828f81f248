//! Artifacts over HTTP: results that were too large for their answers, listed and looked at by their owners, and
//! downloaded, whole or a range of bytes (RFC 9110, section 14).

use std::{ops::RangeInclusive, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::{TryStreamExt as _, stream};
use hivekeep_artifact::{ArtifactAccess, ArtifactInfo, Artifacts, MIME_TYPE, OpenArtifact};
use hivekeep_door_server::{credentials::CredentialScope, http::caller::HttpCaller};
use hivekeep_kernel::ArtifactId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    error::ApiError,
    extract::{PathOf, QueryOf, Reader},
    published::{PlainErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};

/// Artifacts of a page.
const PAGE: usize = 50;
/// Artifacts of a page at most.
const MOST: usize = 200;

/// The page that is wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ArtifactsQuery {
    /// Go on behind this artifact: the `next` of the page before.
    after: Option<String>,
    /// Most artifacts, from 1 to 200; 50 without it.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// A result that is kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Artifact)]
pub(super) struct ArtifactPayload {
    id: String,
    /// Path to download it from.
    uri: String,
    /// URI of the same as a resource of MCP.
    resource_uri: String,
    /// Tool whose result it is.
    tool_id: String,
    session_id: String,
    call_id: String,
    /// The user that it belongs to, as `credential:cred_...`.
    user: String,
    mime_type: &'static str,
    bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    sha256: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: DateTime<Utc>,
    /// When it is removed.
    #[schema(value_type = String, format = DateTime)]
    expires_at: DateTime<Utc>,
}

/// A page of artifacts, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ArtifactList)]
pub(super) struct ArtifactsBody {
    artifacts: Vec<ArtifactPayload>,
    /// How many there are on all pages.
    total: usize,
    /// Value of `after` for the next page; `null` at the end.
    next: Option<String>,
}

/// Response with an artifact.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ArtifactResponse)]
pub(super) struct ArtifactBody {
    artifact: ArtifactPayload,
}

/// Path that an artifact is downloaded from.
pub(super) fn download_path(id: ArtifactId) -> String {
    format!("/api/artifacts/{id}")
}

impl From<ArtifactInfo> for ArtifactPayload {
    fn from(info: ArtifactInfo) -> Self {
        let resource_uri = info.uri();
        Self {
            id: info.id.to_string(),
            uri: download_path(info.id),
            resource_uri,
            tool_id: info.tool.replace('.', "_"),
            session_id: info.session.to_string(),
            call_id: info.call.to_string(),
            user: info.user.to_string(),
            mime_type: MIME_TYPE,
            bytes: info.bytes,
            sha256: info.sha256,
            created_at: info.created_at,
            expires_at: info.expires_at,
        }
    }
}

/// Artifacts that a caller may see: its own, or all for operators and readers.
fn access(caller: &HttpCaller) -> ArtifactAccess {
    match caller.scope {
        CredentialScope::Session | CredentialScope::Webhook => ArtifactAccess::User(caller.user),
        CredentialScope::Operator | CredentialScope::ReadOnly => ArtifactAccess::Operator,
    }
}

impl Api {
    fn artifacts(&self) -> Result<Arc<Artifacts>, ApiError> {
        Ok(self.core.ports.need::<Artifacts>()?)
    }

    /// An artifact within the caller's reach; any other one, and an invalid id, are not found.
    fn artifact(&self, caller: &HttpCaller, id: &str) -> Result<ArtifactInfo, ApiError> {
        let none = || ApiError::not_there("artifact", id);
        let parsed = id.parse().map_err(|_| none())?;
        match self.artifacts()?.find(parsed, access(caller)) {
            Err(error) if error.is(hivekeep_artifact::codes::ARTIFACT_NOT_FOUND) => Err(none()),
            found => Ok(found?),
        }
    }
}

/// List results that were too large for their answers: the caller's own, or all for operators and readers.
#[utoipa::path(
    get, path = "/api/artifacts", tag = "hivekeep", operation_id = "listArtifacts",
    params(ArtifactsQuery),
    responses(
        (status = 200, description = "Artifacts, the newest first.", body = ArtifactsBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(ArtifactsQuery { after, limit }): QueryOf<ArtifactsQuery>,
) -> Result<Json<ArtifactsBody>, ApiError> {
    let invalid = |why: String| ApiError::invalid(ToolReason::SchemaInvalid, why);
    let limit = limit.unwrap_or(PAGE);
    if !(1..=MOST).contains(&limit) {
        return Err(invalid(format!("`limit` should be from 1 to {MOST}")));
    }
    let mut all = api.artifacts()?.list(access(&caller));
    let total = all.len();
    if let Some(after) = after {
        let none = || invalid("`after` should be the id of an artifact".to_owned());
        let after: ArtifactId = after.parse().map_err(|_| none())?;
        all.retain(|info| info.id < after);
    }
    let more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(|info| info.id.to_string());
    let artifacts = all.into_iter().map(ArtifactPayload::from).collect();
    Ok(Json(ArtifactsBody { artifacts, total, next }))
}

/// Look at what is known of an artifact.
#[utoipa::path(
    get, path = "/api/artifacts/{id}/info", tag = "hivekeep", operation_id = "getArtifact",
    params(("id" = String, Path, description = "Artifact")),
    responses(
        (status = 200, description = "The artifact.", body = ArtifactBody),
        (status = 404, description = "No such artifact of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn info(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
) -> Result<Json<ArtifactBody>, ApiError> {
    Ok(Json(ArtifactBody { artifact: api.artifact(&caller, &id)?.into() }))
}

/// Bytes that are read at once.
const PART_BYTES: usize = OpenArtifact::MOST_BYTES / 4;

/// Bytes of a file that a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum WantedBytes {
    Whole,
    Range(RangeInclusive<u64>),
    /// None of the ranges is in the file.
    Nothing,
}

/// Several ranges at once, and a header that is none, are answered with the whole, as RFC 9110 lets a
/// server do; so is a range of what another version of the file was.
fn wanted(headers: &HeaderMap, bytes: u64, etag: &str) -> WantedBytes {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(range) = text(header::RANGE) else { return WantedBytes::Whole };
    if headers.contains_key(header::IF_RANGE) && text(header::IF_RANGE) != Some(etag) {
        return WantedBytes::Whole;
    }
    let Ok(parsed) = http_range_header::parse_range_header(range) else {
        return WantedBytes::Whole;
    };
    match parsed.validate(bytes).as_deref() {
        Ok([range]) => WantedBytes::Range(range.clone()),
        Ok(_) => WantedBytes::Whole,
        Err(_) => WantedBytes::Nothing,
    }
}

/// Download an artifact, or a range of its bytes. A session's credential has its own; a read-only one has
/// none, for a result may say what its caller alone should read.
#[utoipa::path(
    get, path = "/api/artifacts/{id}", tag = "hivekeep", operation_id = "downloadArtifact",
    params(
        ("id" = String, Path, description = "Artifact"),
        ("Range" = Option<String>, Header, description = "A range, as `bytes=0-1023`."),
    ),
    responses(
        (status = 200, description = "All of it.", body = serde_json::Value, content_type = "application/json"),
        (status = 206, description = "The range.", body = String, content_type = "application/json"),
        (status = 404, description = "No such artifact of the caller.", body = PlainErrorBody),
        (status = 416, description = "The range is not in it.", body = PlainErrorBody),
    ),
)]
pub(super) async fn download(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let info = api.artifact(&caller, &id)?;
    if caller.scope == CredentialScope::ReadOnly {
        let why = "an artifact is downloaded by its owner, or with a credential of scope operator";
        return Err(ApiError::Scope(why));
    }
    let (bytes, etag) = (info.bytes, format!("\"{}\"", info.sha256));
    let wanted = wanted(&headers, bytes, &etag);
    if wanted == WantedBytes::Nothing {
        let why = format!("the range is not in the artifact, which has {bytes} bytes");
        let refused = ApiError::plain(StatusCode::RANGE_NOT_SATISFIABLE, why);
        return Ok(([(header::CONTENT_RANGE, format!("bytes */{bytes}"))], refused).into_response());
    }
    let open = api.artifacts()?.open(info.id, access(&caller)).await?;
    let named = format!("attachment; filename=\"{}.json\"", info.id);
    let common = [
        (header::CONTENT_TYPE, MIME_TYPE.to_owned()),
        (header::CONTENT_DISPOSITION, named),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, etag),
    ];
    Ok(match wanted {
        WantedBytes::Range(range) => {
            let (first, last) = (*range.start(), *range.end());
            let told = [
                (header::CONTENT_RANGE, format!("bytes {first}-{last}/{bytes}")),
                (header::CONTENT_LENGTH, (last - first + 1).to_string()),
            ];
            (StatusCode::PARTIAL_CONTENT, common, told, body(open, first, last + 1)).into_response()
        }
        _ => {
            let length = [(header::CONTENT_LENGTH, bytes.to_string())];
            (common, length, body(open, 0, bytes)).into_response()
        }
    })
}

/// Bytes of the file from one position to another, read as the client reads. A failure breaks the
/// connection: a body that ends early would look whole.
fn body(open: OpenArtifact, first: u64, end: u64) -> Body {
    let parts = stream::try_unfold(first, move |at| {
        let open = open.clone();
        async move {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(None);
            }
            let part = open.bytes(at, left.min(PART_BYTES)).await?;
            let next = at + part.len() as u64;
            Ok(Some((Bytes::from(part), next)))
        }
    });
    let told = |error: hivekeep_kernel::ToolError| {
        tracing::error!(%error, "a download of an artifact was cut");
        std::io::Error::other(error.to_text())
    };
    Body::from_stream(parts.map_err(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_the_header_says_of_this_very_file() {
        let of = |headers: &[(HeaderName, &str)]| {
            let pairs =
                headers.iter().map(|(name, text)| (name.clone(), text.parse().expect("a value")));
            wanted(&pairs.collect(), 100, "\"e\"")
        };
        let range = |text: &str| of(&[(header::RANGE, text)]);
        assert_eq!(of(&[]), WantedBytes::Whole);
        assert_eq!(range("bytes=0-9"), WantedBytes::Range(0..=9));
        assert_eq!(range("bytes=90-"), WantedBytes::Range(90..=99));
        assert_eq!(range("bytes=-5"), WantedBytes::Range(95..=99));
        assert_eq!(range("bytes=90-1000"), WantedBytes::Range(90..=99), "to the end");
        for none in ["bytes=100-", "bytes=100-200", "bytes=1000-2000"] {
            assert_eq!(range(none), WantedBytes::Nothing, "{none}");
        }
        for whole in ["bytes=0-1,5-6", "lines=1-2", "bytes", "", "bytes=a-b"] {
            assert_eq!(range(whole), WantedBytes::Whole, "{whole}");
        }
        let with = |etag| of(&[(header::RANGE, "bytes=0-9"), (header::IF_RANGE, etag)]);
        assert_eq!((with("\"e\""), with("\"f\"")), (WantedBytes::Range(0..=9), WantedBytes::Whole));
    }
}
