//! Making, starting, stopping, looking at and removing workspaces.

use hivekeep_kernel::tools;

use crate::{
    api::lifecycle::{
        WorkspaceCreate, WorkspaceCreated, WorkspaceDestroy, WorkspaceDestroyed, WorkspaceDetails,
        WorkspaceInfo, WorkspaceList, WorkspaceListed, WorkspaceStart, WorkspaceStarted,
        WorkspaceStop, WorkspaceStopped,
    },
    api::lifetime::{LifetimeSet, WorkspaceLifetime},
    workspace::{Workspace, describe, destroy, lifetime, start, take_down},
    workspaces::Workspaces,
};

tools! { pub ALL: "workspace lifecycle" for Workspaces, singleton workspaces;
    workspace_create: WorkspaceCreate => WorkspaceCreated = Workspaces::create {
        title: "Create a workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 300,
        told_by: Some("workspace_list"),
    };
    workspace_list: WorkspaceList => WorkspaceListed = Workspaces::list {
        title: "List workspaces", effect: Read,
    };
}

tools! { pub ONE: "workspace lifecycle" for Workspace, addressed workspace by workspace_id;
    workspace_destroy: WorkspaceDestroy => WorkspaceDestroyed = destroy::destroy {
        title: "Destroy a workspace", effect: Destroy, risk: Risk::High, timeout_secs: 120,
        told_by: Some("workspace_list"),
    };
    workspace_start: WorkspaceStart => WorkspaceStarted = start::start_again {
        title: "Start a workspace", timeout_secs: 300, told_by: Some("workspace_info"),
    };
    workspace_stop: WorkspaceStop => WorkspaceStopped = take_down::stop_in_order {
        title: "Stop a workspace", timeout_secs: 120, told_by: Some("workspace_info"),
    };
    workspace_lifetime: WorkspaceLifetime => LifetimeSet = lifetime::set_lifetime {
        title: "Set when a workspace ends", told_by: Some("workspace_info"),
    };
    workspace_info: WorkspaceInfo => WorkspaceDetails = describe::describe {
        title: "Describe a workspace", effect: Read,
    };
}
