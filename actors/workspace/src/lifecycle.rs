//! Making, starting, stopping, looking at and removing workspaces.

pub(crate) mod api;
pub(crate) mod create;
pub(crate) mod describe;
pub(crate) mod lifetime;
pub(crate) mod reserve;
pub(crate) mod start;
pub(crate) mod stop;

use hivekeep_kernel::tools;

use self::{
    api::{
        WorkspaceCreate, WorkspaceCreated, WorkspaceDestroy, WorkspaceDestroyed, WorkspaceDetails,
        WorkspaceInfo, WorkspaceList, WorkspaceListed, WorkspaceStart, WorkspaceStarted,
        WorkspaceStop, WorkspaceStopped,
    },
    lifetime::{LifetimeSet, WorkspaceLifetime},
};
use crate::{manager::Workspaces, state::Workspace};

tools! { pub ALL: "workspace lifecycle" for Workspaces, singleton workspaces;
    workspace_create: WorkspaceCreate => WorkspaceCreated = create::create {
        title: "Create a workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 300,
        told_by: Some("workspace_list"),
    };
    workspace_list: WorkspaceList => WorkspaceListed = describe::list {
        title: "List workspaces", effect: Read,
    };
}

tools! { pub ONE: "workspace lifecycle" for Workspace, addressed workspace by workspace_id;
    workspace_destroy: WorkspaceDestroy => WorkspaceDestroyed = stop::destroy {
        title: "Destroy a workspace", effect: Destroy, risk: Risk::High, timeout_secs: 120,
        told_by: Some("workspace_list"),
    };
    workspace_start: WorkspaceStart => WorkspaceStarted = start::start_again {
        title: "Start a workspace", timeout_secs: 300, told_by: Some("workspace_info"),
    };
    workspace_stop: WorkspaceStop => WorkspaceStopped = stop::stop_in_order {
        title: "Stop a workspace", timeout_secs: 120, told_by: Some("workspace_info"),
    };
    workspace_lifetime: WorkspaceLifetime => LifetimeSet = lifetime::set_lifetime {
        title: "Set when a workspace ends", told_by: Some("workspace_info"),
    };
    workspace_info: WorkspaceInfo => WorkspaceDetails = describe::describe {
        title: "Describe a workspace", effect: Read,
    };
}
