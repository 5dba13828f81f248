//! Snapshots of a workspace, and forks of them.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::{
    api::park::{Parked, WorkspacePark},
    api::snapshots::{
        Forked, Halted, Snapshot, SnapshotAction, SnapshotResult, WorkspaceBranch, WorkspaceFork,
        WorkspacePause, WorkspaceResume,
    },
    workspace::{
        Workspace, halt, park, rewind,
        snapshot::{self, deleting, listing},
    },
    workspaces::Workspaces,
};

tools! { pub ONE: "snapshots & forking" for Workspace, addressed workspace by workspace_id;
    snapshot: Snapshot => SnapshotResult = on_snapshot {
        title: "Snapshots of a workspace", effect: Destroy, risk: Risk::Medium, timeout_secs: 600,
    };
    workspace_park: WorkspacePark => Parked = park::park {
        title: "Park a workspace", timeout_secs: 300, told_by: Some("workspace_info"),
    };
    workspace_pause: WorkspacePause => Halted = halt::pause {
        title: "Pause a workspace",
    };
    workspace_resume: WorkspaceResume => Halted = halt::resume {
        title: "Resume a workspace", timeout_secs: 300,
    };
}

tools! { pub FORKS: "snapshots & forking" for Workspaces, singleton workspaces;
    workspace_fork: WorkspaceFork => Forked = Workspaces::fork {
        title: "Fork a workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 600,
        told_by: Some("workspace_list"),
    };
    workspace_branch: WorkspaceBranch => Forked = Workspaces::branch {
        title: "Branch a running workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 600,
        told_by: Some("workspace_list"),
    };
}

fn on_snapshot(
    state: &mut Workspace,
    cx: &CallCx,
    input: Snapshot,
) -> Result<Reply<SnapshotResult>, ToolError> {
    match input.action {
        SnapshotAction::Create { name, include_memory } => {
            snapshot::snapshot_create(state, cx, name, include_memory.unwrap_or(false))
        }
        SnapshotAction::Restore { name, discard_newer } => {
            rewind::snapshot_restore(state, cx, &name, discard_newer.unwrap_or(false))
        }
        SnapshotAction::List => Ok(listing::snapshot_list(state)),
        SnapshotAction::Delete { name } => deleting::snapshot_delete(state, &name),
    }
}
