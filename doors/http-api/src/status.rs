//! State of the daemon: whether it serves, which needs no credential, and its supervision tree.

use std::sync::Arc;

use axum::{Json, extract::State};
use hivekeep_door_server::credentials::CredentialScope;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{error::ApiError, extract::Reader, state::Api};

/// The actors, each below the one that supervises it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ActorList)]
pub(super) struct ActorsBody {
    /// A row of each actor: `path`, `kind`, `state`, `restarts`, `last_error` and more, as
    /// `hivekeep ps --json` has them.
    #[schema(value_type = Vec<Object>)]
    actors: Vec<Value>,
}

/// List the actors.
#[utoipa::path(
    get, path = "/api/actors", tag = "hivekeep", operation_id = "listActors",
    responses((status = 200, description = "Actors, by their paths.", body = ActorsBody)),
)]
pub(super) async fn actors(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
) -> Result<Json<ActorsBody>, ApiError> {
    if caller.scope == CredentialScope::Session {
        // The tree names what is not the caller's.
        return Err(ApiError::Scope("this needs a credential of scope operator or read-only"));
    }
    let rows = api.core.census.rows().into_iter().map(|row| serde_json::json!(row));
    Ok(Json(ActorsBody { actors: rows.collect() }))
}

/// The daemon's answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub(super) struct HealthBody {
    /// `ok`.
    status: &'static str,
}

/// Say whether the daemon serves.
#[utoipa::path(
    get, path = "/api/health", tag = "hivekeep", operation_id = "health", security(()),
    responses((status = 200, description = "It serves.", body = HealthBody)),
)]
pub(super) async fn health() -> Json<HealthBody> {
    Json(HealthBody { status: "ok" })
}
