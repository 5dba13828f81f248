//! Remembered approvals over HTTP: listed and revoked, as `hivekeep approvals grants` and `revoke` do.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use hivekeep_door_server::codes;
use hivekeep_policy::Grant;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    approvals::approver,
    error::ApiError,
    extract::{OperatorOnly, PathOf},
    published::{PlainErrorBody, ToolErrorBody},
    state::Api,
};

/// A remembered approval: calls that match need no person while it lasts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Grant)]
pub(super) struct GrantPayload {
    id: String,
    /// Tools that it is for: a name, or a beginning with `*`.
    tools: String,
    /// The user that it is for.
    user: String,
    /// The only session that it is for.
    session_id: Option<String>,
    /// When it is over.
    #[schema(value_type = String, format = DateTime)]
    until: DateTime<Utc>,
    /// User and door that gave it, as `decided_by` of an approval has them.
    granted_by: String,
    #[schema(value_type = String, format = DateTime)]
    granted_at: DateTime<Utc>,
}

/// Remembered approvals that hold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GrantList)]
pub(super) struct GrantsBody {
    grants: Vec<GrantPayload>,
}

impl From<Grant> for GrantPayload {
    fn from(grant: Grant) -> Self {
        let Grant { id, tools, user, session, until, by, at } = grant;
        Self {
            id: id.to_string(),
            tools: tools.to_string(),
            user: user.to_string(),
            session_id: session.map(|id| id.to_string()),
            until,
            granted_by: by,
            granted_at: at,
        }
    }
}

/// List remembered approvals.
#[utoipa::path(
    get, path = "/api/grants", tag = "hivekeep", operation_id = "listGrants",
    responses((status = 200, description = "Those that hold, the oldest first.", body = GrantsBody)),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    OperatorOnly(_): OperatorOnly,
) -> Json<GrantsBody> {
    let grants = api.core.dispatcher.policy().approvals().grants();
    Json(GrantsBody { grants: grants.into_iter().map(GrantPayload::from).collect() })
}

/// Revoke a remembered approval. The next call that it was for asks again.
#[utoipa::path(
    delete, path = "/api/grants/{id}", tag = "hivekeep", operation_id = "revokeGrant",
    params(("id" = String, Path, description = "Grant")),
    responses(
        (status = 204, description = "It is over."),
        (status = 404, description = "No such grant.", body = PlainErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn revoke(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    PathOf(id): PathOf,
) -> Result<StatusCode, ApiError> {
    let none = || ApiError::not_there("grant", &id);
    let grant = id.parse().map_err(|_| none())?;
    let approvals = api.core.dispatcher.policy().approvals();
    match approvals.revoke_grant(grant, &approver(&caller)).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) if error.is(codes::GRANT_NOT_FOUND) => Err(none()),
        Err(error) => Err(error.into()),
    }
}
