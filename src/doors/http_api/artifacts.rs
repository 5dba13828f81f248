//! Artifacts over HTTP: results that were too large for their answers, listed and looked at by their
//! owners.

pub(super) mod download;

use std::sync::Arc;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use hivekeep_artifact::{ArtifactAccess, ArtifactInfo, Artifacts, MIME_TYPE};
use hivekeep_kernel::ArtifactId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    error::ApiError,
    extract::{PathOf, QueryOf, Reader},
    published::{PlainErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};
use crate::{credentials::CredentialScope, doors::http::caller::HttpCaller};

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
    /// What to pass as `after` for the next page; `null` at the end.
    next: Option<String>,
}

/// One artifact.
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
        CredentialScope::Session => ArtifactAccess::User(caller.user),
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
