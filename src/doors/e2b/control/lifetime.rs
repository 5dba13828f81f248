//! Lifetimes of sandboxes, set anew or prolonged.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BodyOf, gone_is_not_found, sandbox::Sandbox};
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

/// A change of a sandbox's end.
#[derive(Debug, Clone, Copy)]
pub(super) enum EndAsked {
    /// The given number of seconds from now.
    In(u64),
    /// Not sooner than that many seconds from now. A sandbox without an end keeps none.
    NotBefore(u64),
    /// Never: a paused sandbox is not lost. One that is woken for a while is paused again when it is idle.
    Never,
    /// In a year, when the sandbox stays as it is: the mark of one that is paused without its memory.
    PausedOnDisk,
    /// In a year: the mark of a sandbox that was killed and is kept for its snapshots.
    PutAway,
}

impl E2b {
    /// Changes the end of a sandbox, at which happens what it was made for.
    pub(super) async fn set_end(
        &self,
        owner: &Owner,
        sandbox: &Sandbox,
        end: EndAsked,
    ) -> Result<(), E2bError> {
        /// Longest lifetime.
        const LONGEST_SECS: u64 = 366 * 86_400;
        let id = &sandbox.name;
        let asked = match end {
            EndAsked::In(secs) => {
                let mut asked = json!({
                    "workspace_id": id, "lifetime_secs": secs, "at_end": sandbox.at_end(),
                });
                if sandbox.is_vm() {
                    asked["idle_park_secs"] = Value::Null;
                }
                asked
            }
            EndAsked::NotBefore(secs) => {
                json!({ "workspace_id": id, "lifetime_secs": secs, "at_least": true })
            }
            EndAsked::Never => {
                let idle = self.options.lifetime_secs;
                json!({ "workspace_id": id, "lifetime_secs": null, "idle_park_secs": idle })
            }
            EndAsked::PausedOnDisk => {
                json!({ "workspace_id": id, "lifetime_secs": LONGEST_SECS, "at_end": "stop" })
            }
            EndAsked::PutAway => {
                json!({ "workspace_id": id, "lifetime_secs": LONGEST_SECS, "at_end": "destroy" })
            }
        };
        let set = self.call(owner, "workspace_lifetime", asked).await;
        set.map(drop).map_err(E2bError::from).map_err(gone_is_not_found(id))
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
    e2b.set_end(&owner, &sandbox, EndAsked::In(e2b.lifetime(Some(timeout))?)).await?;
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
    e2b.set_end(&owner, &sandbox, EndAsked::NotBefore(secs)).await?;
    Ok(StatusCode::NO_CONTENT)
}
