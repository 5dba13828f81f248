//! Forks of a sandbox as it is: a snapshot, and workspaces that begin with it.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BodyOf, create::new_name, snapshots::OF_FORKS};
use crate::doors::e2b::{
    error::E2bError,
    state::{E2b, Owner},
};

/// Forks at a time.
const MOST: u32 = 20;

#[derive(Debug, Deserialize)]
pub(in super::super) struct ForkBody {
    timeout: Option<u64>,
    count: Option<u32>,
}

/// Forks as their tool tells them: one, or several.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Forked {
    name: Option<String>,
    workers: Vec<Worker>,
    failures: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    name: String,
}

/// `POST /sandboxes/{id}/fork`: an outcome for each fork.
pub(in super::super) async fn fork(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(ForkBody { timeout, count }): BodyOf<ForkBody>,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    let count = count.unwrap_or(1);
    if !(1..=MOST).contains(&count) {
        return Err(E2bError::invalid(format!("`count` should be from 1 to {MOST}")));
    }
    let lifetime_secs = e2b.lifetime(timeout)?.max(1);
    let name = new_name(&owner, None)?;
    let snapshot = format!("{OF_FORKS}{name}");
    e2b.snap(&owner, &sandbox, &snapshot, true).await?;
    let asked = json!({
        "workspace_id": sandbox.name, "snapshot_name": snapshot, "count": count,
        "new_name": (count == 1).then_some(&name), "name_prefix": (count > 1).then_some(&name),
        "lifetime_secs": lifetime_secs, "at_end": sandbox.at_end(),
        "labels": sandbox.labels,
    });
    let forked: Result<Forked, _> = e2b.ask(&owner, "workspace_fork", asked).await;
    // What forks share of it stays for as long as they need it.
    let asked = json!({ "workspace_id": sandbox.name, "action": "delete", "name": snapshot });
    if let Err(error) = e2b.call(&owner, "snapshot", asked).await {
        tracing::debug!(%error, "the snapshot of a fork stays");
    }
    let forked = forked?;
    let names = forked.name.into_iter().chain(forked.workers.into_iter().map(|it| it.name));
    let made =
        names.map(|name| json!({ "sandbox": e2b.reached(&owner, &name, sandbox.template()) }));
    let failed = forked.failures.iter().map(|failure| {
        let why = failure["error"]["message"].as_str().or(failure["message"].as_str());
        json!({ "error": { "code": 500, "message": why.unwrap_or("the fork could not be made") } })
    });
    let outcomes: Vec<Value> = made.chain(failed).collect();
    Ok((StatusCode::CREATED, Json(outcomes.into())))
}
