//! Making, starting, stopping, looking at and removing workspaces.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::api::lifecycle::{
    WorkspaceCreate, WorkspaceCreated, WorkspaceDestroy, WorkspaceDestroyed, WorkspaceDetails,
    WorkspaceInfo, WorkspaceList, WorkspaceListed, WorkspaceStart, WorkspaceStarted, WorkspaceStop,
    WorkspaceStopped,
};
use crate::{phase::Want, workspace::Workspace, workspaces::Workspaces};

tools! { pub ALL: "workspace lifecycle" for Workspaces, singleton workspaces;
    workspace_create: WorkspaceCreate => WorkspaceCreated = Workspaces::create {
        title: "Create a workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 300,
    };
    workspace_list: WorkspaceList => WorkspaceListed = Workspaces::on_workspace_list {
        title: "List workspaces", effect: Read,
    };
}

tools! { pub ONE: "workspace lifecycle" for Workspace, addressed workspace by workspace_id;
    workspace_destroy: WorkspaceDestroy => WorkspaceDestroyed = Workspace::on_workspace_destroy {
        title: "Destroy a workspace", effect: Destroy, risk: Risk::High, timeout_secs: 120,
    };
    workspace_start: WorkspaceStart => WorkspaceStarted = Workspace::on_workspace_start {
        title: "Start a workspace", timeout_secs: 300,
    };
    workspace_stop: WorkspaceStop => WorkspaceStopped = Workspace::on_workspace_stop {
        title: "Stop a workspace", timeout_secs: 120,
    };
    workspace_info: WorkspaceInfo => WorkspaceDetails = Workspace::on_workspace_info {
        title: "Describe a workspace", effect: Read,
    };
}

impl Workspaces {
    fn on_workspace_list(
        &mut self,
        cx: &CallCx,
        input: WorkspaceList,
    ) -> Result<Reply<WorkspaceListed>, ToolError> {
        let workspaces = self.rows(cx.session, input.state_filter);
        Ok(Reply::Now(WorkspaceListed { count: workspaces.len(), workspaces }))
    }
}

impl Workspace {
    fn on_workspace_destroy(
        &mut self,
        cx: &CallCx,
        _: WorkspaceDestroy,
    ) -> Result<Reply<WorkspaceDestroyed>, ToolError> {
        let next = self.on(Want::Destroy)?;
        Ok(self.destroy(cx, next))
    }

    fn on_workspace_start(
        &mut self,
        cx: &CallCx,
        _: WorkspaceStart,
    ) -> Result<Reply<WorkspaceStarted>, ToolError> {
        let next = self.on(Want::Start)?;
        self.may_start()?;
        Ok(self.start_again(cx, next))
    }

    fn on_workspace_stop(
        &mut self,
        _: &CallCx,
        _: WorkspaceStop,
    ) -> Result<Reply<WorkspaceStopped>, ToolError> {
        let next = self.on(Want::Stop)?;
        Ok(self.stop_machine(next))
    }

    fn on_workspace_info(
        &mut self,
        cx: &CallCx,
        _: WorkspaceInfo,
    ) -> Result<Reply<WorkspaceDetails>, ToolError> {
        Ok(self.describe(cx))
    }
}
