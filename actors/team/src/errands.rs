//! Calls of the daemon's other tools, and the little of their answers that is read.

use std::time::Duration;

use hivekeep_kernel::{Resources, TeamId, ToolError, WorkspaceId};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    codes,
    records::{GoldenSnapshot, Member},
    shared::{OnBehalfOf, RunId, TeamShared},
};

/// Between two attempts, when nobody says how long to wait.
const PAUSE: Duration = Duration::from_millis(250);

/// A workspace in the list.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) name: String,
    pub(crate) owned: bool,
}

/// What there is to know of a member's workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Details {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) ip: Option<String>,
    #[serde(default)]
    pub(crate) machine: Option<Machine>,
    #[serde(default)]
    pub(crate) snapshots: Vec<Snapshot>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    pub(crate) link: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Made {
    workspace_id: WorkspaceId,
}

pub(crate) fn read<T: DeserializeOwned>(tool: &str, value: Value) -> Result<T, ToolError> {
    serde_json::from_value(value)
        .map_err(|error| ToolError::internal(format!("the answer of `{tool}`: {error}")))
}

impl TeamShared {
    /// The workspaces that there are, as the session sees them.
    pub(crate) async fn workspaces(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
    ) -> Result<Vec<Row>, ToolError> {
        #[derive(Deserialize)]
        struct Listed {
            workspaces: Vec<Row>,
        }
        let tool = "workspace_list";
        let listed: Listed = read(tool, self.insist(party, whom, tool, json!({})).await?)?;
        Ok(listed.workspaces)
    }

    /// Makes a member's workspace.
    pub(crate) async fn make(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
        member: &Member,
        stem: Option<&GoldenSnapshot>,
    ) -> Result<WorkspaceId, ToolError> {
        let (tool, args) = match stem {
            Some(GoldenSnapshot { golden, snapshot }) => (
                "workspace_fork",
                json!({ "workspace_id": golden, "snapshot_name": snapshot, "new_name": member.workspace }),
            ),
            None => ("workspace_create", json!({ "name": member.workspace })),
        };
        let made: Made = read(tool, self.insist(team, whom, tool, args).await?)?;
        Ok(made.workspace_id)
    }

    /// What a workspace is doing now.
    pub(crate) async fn look(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<Details, ToolError> {
        let tool = "workspace_info";
        let args = json!({ "workspace_id": workspace });
        read(tool, self.insist(party, whom, tool, args).await?)
    }

    /// What a fork of a workspace takes of its session's quota.
    pub(crate) async fn size(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<Resources, ToolError> {
        #[derive(Deserialize)]
        struct Sized {
            resources: Size,
        }
        #[derive(Deserialize)]
        struct Size {
            memory_mb: u64,
            disk_gb: u64,
        }
        let tool = "workspace_info";
        let args = json!({ "workspace_id": workspace });
        let Sized { resources } = read(tool, self.insist(party, whom, tool, args).await?)?;
        Ok(Resources::workspace(resources.memory_mb, resources.disk_gb))
    }

    /// Removes a workspace; one that is not there is no error. One that is being made or removed
    /// is waited for. While the workspaces are being taken up at a start none is found: that one is
    /// not there is believed only of a list, which is answered after that.
    pub(crate) async fn remove(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<(), ToolError> {
        let party = party.into();
        loop {
            let args = json!({ "workspace_id": workspace });
            match self.insist(party, whom, "workspace_destroy", args).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => {
                    let is_it = |row: &Row| {
                        row.name == workspace || row.workspace_id.to_string() == workspace
                    };
                    if !self.workspaces(party, whom).await?.iter().any(is_it) {
                        return Ok(());
                    }
                    wait_or(whom, error, true).await?;
                }
                Err(error) => {
                    let passing = error.retryable
                        || error.is_any(&[codes::WORKSPACE_BUSY, codes::WORKSPACE_STATE]);
                    wait_or(whom, error, passing).await?;
                }
            }
        }
    }

    /// Calls until the target has room, for as long as it makes sense.
    pub(crate) async fn insist(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let party = party.into();
        loop {
            match self.call(party, whom, tool, args.clone()).await {
                Ok(value) => return Ok(value),
                Err(error) => {
                    // Nothing was done: it did not get to its actor.
                    let passing = error.is_any(&[codes::BUSY, codes::ACTOR_UNAVAILABLE])
                        && error.details.get("outcome").is_none_or(|it| it == "nothing_done");
                    wait_or(whom, error, passing).await?;
                }
            }
        }
    }
}

/// Waits before another attempt.
///
/// # Errors
/// The error itself, when another attempt makes no sense.
pub(crate) async fn wait_or(
    whom: &OnBehalfOf,
    error: ToolError,
    passing: bool,
) -> Result<(), ToolError> {
    let pause = error.retry_after_ms.map_or(PAUSE, Duration::from_millis).min(4 * PAUSE);
    if !passing || whom.cancel.is_cancelled() || Instant::now() + pause >= whom.deadline {
        return Err(error);
    }
    tokio::select! {
        () = whom.cancel.cancelled() => Err(error),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
