//! Calls of the daemon's other tools for teams and swarms.

use hivekeep_kernel::{Resources, TeamId, ToolError, WorkspaceId};
#[cfg(test)]
pub(crate) use hivekeep_runtime::MachineDetails as Machine;
pub(crate) use hivekeep_runtime::{WorkspaceDetails as Details, WorkspaceRow as Row};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    codes,
    records::{GoldenSnapshot, Member},
    shared::{OnBehalfOf, RunId, TeamShared},
};

#[derive(Deserialize)]
struct Made {
    workspace_id: WorkspaceId,
}

impl TeamShared {
    /// The workspaces that there are, as the session sees them.
    pub(crate) async fn workspaces(
        &self,
        run: impl Into<RunId>,
        whom: &OnBehalfOf,
    ) -> Result<Vec<Row>, ToolError> {
        self.tools.workspaces(run.into(), whom).await
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
        let made: Made = self.insist(team, whom, tool, args).await?;
        Ok(made.workspace_id)
    }

    /// What a workspace is doing now.
    pub(crate) async fn look(
        &self,
        run: impl Into<RunId>,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<Details, ToolError> {
        self.tools.look(run.into(), whom, workspace).await
    }

    /// What a fork of a workspace takes of its session's quota.
    pub(crate) async fn size(
        &self,
        run: impl Into<RunId>,
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
        let args = json!({ "workspace_id": workspace });
        let Sized { resources } = self.insist(run, whom, "workspace_info", args).await?;
        Ok(Resources::workspace(resources.memory_mb, resources.disk_gb))
    }

    /// Removes a workspace; one that is not there is no error.
    pub(crate) async fn remove(
        &self,
        run: impl Into<RunId>,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<(), ToolError> {
        self.tools.remove(run.into(), whom, workspace).await
    }

    /// Calls until the target has room, for as long as it makes sense.
    pub(crate) async fn insist<A: Serialize, T: DeserializeOwned>(
        &self,
        run: impl Into<RunId>,
        whom: &OnBehalfOf,
        tool: &'static str,
        args: A,
    ) -> Result<T, ToolError> {
        self.tools.call(run.into(), whom, tool, args).await
    }

    /// Waits until nothing is being done for a run, by incarnations before this one either.
    pub(crate) async fn quiet(&self, run: impl Into<RunId>) {
        self.tools.quiet(run.into()).await;
    }

    /// For how many runs something is being done.
    #[cfg(test)]
    pub(crate) fn parties(&self) -> usize {
        self.tools.origins()
    }

    /// A run that was never planned, or is gone.
    pub(crate) fn forget_idle(&self, run: impl Into<RunId>) {
        self.tools.forget_idle(run.into());
    }

    /// A run is no more.
    pub(crate) fn forget(&self, run: impl Into<RunId>) {
        self.tools.forget(run.into());
    }
}
