//! `GET /api/health`: whether the daemon serves. Needs no credential, and says no more than that.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

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
