//! A view of workspaces as their tools answer it: the fields that orchestrators read.

use hivekeep_kernel::{Resources, ToolError, WorkspaceId, codes};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

use super::{OnBehalfOf, Origin, ToolClient};

/// A workspace in the list.
#[derive(Debug, Deserialize)]
pub struct ListedWorkspace {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its unique name.
    pub name: String,
    /// Whether it is the caller's.
    pub owned: bool,
}

/// The state of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedWorkspace {
    /// `running`, `stopped` and so on.
    pub state: String,
    /// Why it failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its address in the network.
    #[serde(default)]
    pub ip: Option<String>,
    /// Machine of a workspace that runs.
    #[serde(default)]
    pub machine: Option<InspectedMachine>,
    /// Its snapshots.
    #[serde(default)]
    pub snapshots: Vec<InspectedSnapshot>,
}

/// The machine of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedMachine {
    /// `up` when its guest answers.
    pub link: String,
}

/// A snapshot of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedSnapshot {
    /// Its name, unique in the workspace.
    pub name: String,
}

impl<O: Origin> ToolClient<O> {
    /// The workspaces that there are, as the session sees them.
    ///
    /// # Errors
    /// As `workspace_list`.
    pub async fn workspaces(
        &self,
        origin: O,
        caller: &OnBehalfOf,
    ) -> Result<Vec<ListedWorkspace>, ToolError> {
        #[derive(Deserialize)]
        struct Listed {
            workspaces: Vec<ListedWorkspace>,
        }
        let listed: Listed = self.call(origin, caller, "workspace_list", json!({})).await?;
        Ok(listed.workspaces)
    }

    /// State of a workspace now.
    ///
    /// # Errors
    /// As `workspace_info`.
    pub async fn look(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
    ) -> Result<InspectedWorkspace, ToolError> {
        let args = json!({ "workspace_id": id_or_name });
        self.call(origin, caller, "workspace_info", args).await
    }

    /// Memory and disk of a workspace, which a fork of it takes of its session's quota, too.
    ///
    /// # Errors
    /// As `workspace_info`.
    pub async fn size(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
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
        let args = json!({ "workspace_id": id_or_name });
        let Sized { resources } = self.call(origin, caller, "workspace_info", args).await?;
        Ok(Resources::workspace(resources.memory_mb, resources.disk_gb))
    }

    /// Removes a workspace; one that is not there is no error. One that is being made or removed
    /// is waited for. While the workspaces are being taken up at a start none is found: that one is
    /// not there is believed only of a list, which is answered after that.
    ///
    /// # Errors
    /// As `workspace_destroy`, after the last attempt.
    pub async fn remove(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
    ) -> Result<(), ToolError> {
        loop {
            let args = json!({ "workspace_id": id_or_name });
            let removed: Result<IgnoredAny, _> =
                self.call_idempotent(origin, caller, "workspace_destroy", args).await;
            let (error, passing) = match removed {
                Ok(_) => return Ok(()),
                Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => {
                    let is_it = |row: &ListedWorkspace| {
                        row.name == id_or_name || row.workspace_id.to_string() == id_or_name
                    };
                    if !self.workspaces(origin, caller).await?.iter().any(is_it) {
                        return Ok(());
                    }
                    (error, true)
                }
                Err(error) => {
                    let changing = error.is_any(&[codes::WORKSPACE_BUSY, codes::WORKSPACE_STATE]);
                    (error, changing)
                }
            };
            caller.wait_or(error, passing).await?;
        }
    }
}
