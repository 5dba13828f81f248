//! Calls of the daemon's other tools for teams.

use hivekeep_kernel::{Resources, TeamId, ToolError, WorkspaceId};
#[cfg(test)]
pub(crate) use hivekeep_runtime::MachineDetails as Machine;
pub(crate) use hivekeep_runtime::{WorkspaceDetails as Details, WorkspaceRow as Row};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    records::{GoldenSnapshot, Member},
    shared::{OnBehalfOf, TeamShared},
};

#[derive(Deserialize)]
struct Made {
    workspace_id: WorkspaceId,
}

impl TeamShared {
    /// The workspaces that there are, as the session sees them.
    pub(crate) async fn workspaces(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
    ) -> Result<Vec<Row>, ToolError> {
        self.tools.workspaces(team, whom).await
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

    /// The workspace's present state.
    pub(crate) async fn look(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<Details, ToolError> {
        self.tools.look(team, whom, workspace).await
    }

    /// Memory and disk of a workspace.
    pub(crate) async fn size(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<Resources, ToolError> {
        self.tools.size(team, whom, workspace).await
    }

    /// Removes a workspace; one that is not there is no error.
    pub(crate) async fn remove(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
        workspace: &str,
    ) -> Result<(), ToolError> {
        self.tools.remove(team, whom, workspace).await
    }

    /// Calls until the target has room, for as long as it makes sense.
    pub(crate) async fn insist<A: Serialize, T: DeserializeOwned>(
        &self,
        team: TeamId,
        whom: &OnBehalfOf,
        tool: &'static str,
        args: A,
    ) -> Result<T, ToolError> {
        self.tools.call(team, whom, tool, args).await
    }

    /// Waits until nothing is being done for a team, by incarnations before this one either.
    pub(crate) async fn quiet(&self, team: TeamId) {
        self.tools.quiet(team).await;
    }

    /// For how many teams something is being done.
    #[cfg(test)]
    pub(crate) fn parties(&self) -> usize {
        self.tools.origins()
    }
}
