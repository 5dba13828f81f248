//! Lifetimes of sandboxes, set anew or prolonged.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::json;

use super::{BodyOf, of};
use crate::doors::e2b::{
    error::E2bError,
    state::{E2b, Owner},
};

/// Seconds of a refresh for which a client names none.
const REFRESH_SECS: u64 = 60;

#[derive(Debug, Deserialize)]
pub(in super::super) struct TimeoutBody {
    timeout: u64,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct RefreshBody {
    duration: Option<u64>,
}

impl E2b {
    /// Lets a sandbox live so long from now on; with `at_least`, no shorter than it would.
    pub(super) async fn live_on(
        &self,
        owner: &Owner,
        id: &str,
        secs: u64,
        at_least: bool,
    ) -> Result<(), E2bError> {
        let asked = json!({ "workspace_id": id, "lifetime_secs": secs, "at_least": at_least });
        let set = self.call(owner, "workspace_lifetime", asked).await;
        set.map(drop).map_err(E2bError::from).map_err(of(id))
    }
}

/// `POST /sandboxes/{id}/timeout`.
pub(in super::super) async fn set_timeout(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(TimeoutBody { timeout }): BodyOf<TimeoutBody>,
) -> Result<StatusCode, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    e2b.live_on(&owner, &sandbox.name, e2b.lifetime(Some(timeout))?, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/refreshes`.
pub(in super::super) async fn refresh(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(RefreshBody { duration }): BodyOf<RefreshBody>,
) -> Result<StatusCode, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    let secs = e2b.lifetime(Some(duration.unwrap_or(REFRESH_SECS)))?;
    e2b.live_on(&owner, &sandbox.name, secs, true).await?;
    Ok(StatusCode::NO_CONTENT)
}
