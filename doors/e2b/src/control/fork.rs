//! Forks of a sandbox as it is: a snapshot, and workspaces that begin with it.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use chrono::{DateTime, Utc};
use hivekeep_kernel::{ToolError, fault_point};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BodyOf, create::new_name, sandbox::Sandbox, snapshots::OF_FORKS};
use crate::{
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
    // To its end also without the client, whose leaving would leave the snapshot.
    let work = async move { e2b.forked(&owner, &sandbox, count, lifetime_secs).await };
    let outcomes = tokio::spawn(work).await;
    let outcomes = outcomes.map_err(|error| E2bError::from(ToolError::internal(error.to_string())));
    Ok((StatusCode::CREATED, Json(outcomes??.into())))
}

impl E2b {
    /// Forks by way of a snapshot, which is removed again.
    async fn forked(
        &self,
        owner: &Owner,
        sandbox: &Sandbox,
        count: u32,
        lifetime_secs: u64,
    ) -> Result<Vec<Value>, E2bError> {
        let (begun, under_way) = (Utc::now(), self.forking.clone());
        // Those of forks that have ended; with no other fork under way, all from before are.
        if Arc::strong_count(&under_way) == 2
            && let Err(error) = self.forget_forks_of(owner, &sandbox.name, begun).await
        {
            tracing::warn!(why = error.message, sandbox = sandbox.name, "snapshots of forks stay");
        }
        let name = new_name(owner, None)?;
        let snapshot = format!("{OF_FORKS}{name}");
        self.snap(owner, sandbox, &snapshot, true).await?;
        fault_point!("e2b.fork.after_snapshot");
        let asked = json!({
            "workspace_id": sandbox.name, "snapshot_name": snapshot, "count": count,
            "new_name": (count == 1).then_some(&name), "name_prefix": (count > 1).then_some(&name),
            "lifetime_secs": lifetime_secs, "at_end": sandbox.at_end(),
            "labels": sandbox.labels,
        });
        let forked: Result<Forked, _> = self.ask(owner, "workspace_fork", asked).await;
        if let Err(error) = self.forget(owner, &sandbox.name, &snapshot).await {
            tracing::warn!(%error, sandbox = sandbox.name, snapshot, "the snapshot of a fork stays");
        }
        let forked = forked?;
        let names = forked.name.into_iter().chain(forked.workers.into_iter().map(|it| it.name));
        let made = names.map(|name| match self.reached(owner, &name, sandbox.template()) {
            Ok(reached) => json!({ "sandbox": reached }),
            Err(error) => json!({ "error": { "code": 500, "message": error.message } }),
        });
        let failed = forked.failures.iter().map(|failure| {
            let why = failure["error"]["message"].as_str().or(failure["message"].as_str());
            let why = why.unwrap_or("the fork could not be made");
            json!({ "error": { "code": 500, "message": why } })
        });
        Ok(made.chain(failed).collect())
    }

    /// Removes the snapshot of a fork, unless there are forks that begin with its memory: then the next fork does, or
    /// the next start.
    async fn forget(&self, owner: &Owner, sandbox: &str, snapshot: &str) -> Result<(), ToolError> {
        let asked = json!({ "workspace_id": sandbox, "action": "delete", "name": snapshot });
        match self.call(owner, "snapshot", asked).await {
            Err(error) if !error.is(hivekeep_workspace::codes::SNAPSHOT_HAS_DEPENDENTS) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Removes the snapshots of forks that nobody needs: those from before a time.
    ///
    /// # Errors
    /// Those of the tools, as of a sandbox that is taken up again just now.
    pub(in super::super) async fn forget_forks(
        &self,
        owner: &Owner,
        before: DateTime<Utc>,
    ) -> Result<(), E2bError> {
        for sandbox in self.all_names(owner).await? {
            self.forget_forks_of(owner, &sandbox, before).await?;
        }
        Ok(())
    }

    async fn forget_forks_of(
        &self,
        owner: &Owner,
        sandbox: &str,
        before: DateTime<Utc>,
    ) -> Result<(), E2bError> {
        #[derive(Deserialize)]
        struct Row {
            name: String,
            created_at: DateTime<Utc>,
        }
        #[derive(Deserialize)]
        struct Listed {
            #[serde(default)]
            snapshots: Vec<Row>,
        }
        let asked = json!({ "workspace_id": sandbox, "action": "list" });
        let Listed { snapshots } = self.ask(owner, "snapshot", asked).await?;
        for row in snapshots {
            if row.name.starts_with(OF_FORKS) && row.created_at < before {
                self.forget(owner, sandbox, &row.name).await?;
            }
        }
        Ok(())
    }
}
