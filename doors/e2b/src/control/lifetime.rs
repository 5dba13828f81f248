//! Lifetimes of sandboxes: set anew or prolonged, paused and going on.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use chrono::Utc;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BodyOf, gone_is_not_found, sandbox::Sandbox};
use crate::{
    error::{E2bError, Kind},
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

#[derive(Debug, Deserialize)]
pub(in super::super) struct PauseBody {
    /// False stops the machine and keeps its disk.
    memory: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct ConnectBody {
    timeout: Option<u64>,
}

/// `POST /sandboxes/{id}/pause`.
pub(in super::super) async fn pause(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(PauseBody { memory }): BodyOf<PauseBody>,
) -> Result<StatusCode, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    if !sandbox.is_running() {
        let why = format!("sandbox {id} is already paused");
        return Err(E2bError::new(Kind::AlreadyExists, why));
    }
    let (tool, end) = match memory {
        Some(false) => ("workspace_stop", EndAsked::PausedOnDisk),
        _ => ("workspace_park", EndAsked::Never),
    };
    // First: what stands still has no end, also if the daemon is killed in the middle.
    e2b.set_end(&owner, &sandbox, end).await.map_err(plain)?;
    let asked = json!({ "workspace_id": sandbox.name });
    let paused = e2b.call(&owner, tool, asked).await;
    if let Err(error) = paused {
        let left = sandbox.ends_at.map(|at| (at - Utc::now()).num_seconds().max(0).unsigned_abs());
        if let Some(secs) = left {
            e2b.set_end(&owner, &sandbox, EndAsked::In(secs)).await?;
        }
        return Err(plain(gone_is_not_found(&id)(error.into())));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The SDKs take a conflict for a sandbox that is paused already.
fn plain(error: E2bError) -> E2bError {
    match error.kind {
        Kind::FailedPrecondition | Kind::AlreadyExists => E2bError::invalid(error.message),
        _ => error,
    }
}

impl E2b {
    /// Lets a sandbox run; false if it did already.
    pub(super) async fn wake(&self, owner: &Owner, sandbox: &Sandbox) -> Result<bool, E2bError> {
        if sandbox.is_running() {
            return Ok(false);
        }
        let tool = match &*sandbox.state {
            "stopped" | "crashed" | "parked" => "workspace_start",
            _ => "workspace_resume",
        };
        let asked = json!({ "workspace_id": sandbox.name });
        let woken = self.call(owner, tool, asked).await.map_err(E2bError::from);
        woken.map(|_| true).map_err(gone_is_not_found(&sandbox.name))
    }

    async fn connected(
        &self,
        owner: &Owner,
        id: &str,
        timeout: Option<u64>,
    ) -> Result<(StatusCode, Json<Value>), E2bError> {
        let sandbox = self.sandbox(owner, id).await?;
        let secs = self.lifetime(timeout)?;
        let (status, end) = match self.wake(owner, &sandbox).await? {
            true => (StatusCode::CREATED, EndAsked::In(secs)),
            false if sandbox.awaits_a_client() => (StatusCode::OK, EndAsked::In(secs)),
            false => (StatusCode::OK, EndAsked::NotBefore(secs)),
        };
        self.set_end(owner, &sandbox, end).await?;
        Ok((status, Json(self.reached(owner, &sandbox.name, sandbox.template())?)))
    }
}

/// `POST /sandboxes/{id}/connect`: it runs afterwards, for no shorter than it would have.
pub(in super::super) async fn connect(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(ConnectBody { timeout }): BodyOf<ConnectBody>,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    e2b.connected(&owner, &id, timeout).await
}

/// `POST /sandboxes/{id}/resume`, of older SDKs.
pub(in super::super) async fn resume(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(ConnectBody { timeout }): BodyOf<ConnectBody>,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    let (_, answer) = e2b.connected(&owner, &id, timeout).await?;
    Ok((StatusCode::CREATED, answer))
}
