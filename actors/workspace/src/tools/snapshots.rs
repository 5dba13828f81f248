//! Snapshots of a workspace, and forks of them.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::{
    api::park::{Parked, WorkspacePark},
    api::snapshots::{
        Forked, Halted, Snapshot, SnapshotAction, SnapshotResult, WorkspaceBranch, WorkspaceFork,
        WorkspacePause, WorkspaceResume,
    },
    workspace::Workspace,
    workspaces::Workspaces,
};

tools! { pub ONE: "snapshots & forking" for Workspace, addressed workspace by workspace_id;
    snapshot: Snapshot => SnapshotResult = Workspace::on_snapshot {
        title: "Snapshots of a workspace", effect: Destroy, risk: Risk::Medium, timeout_secs: 600,
    };
    workspace_park: WorkspacePark => Parked = Workspace::park {
        title: "Park a workspace", timeout_secs: 300, told_by: Some("workspace_info"),
    };
    workspace_pause: WorkspacePause => Halted = Workspace::pause {
        title: "Pause a workspace",
    };
    workspace_resume: WorkspaceResume => Halted = Workspace::resume {
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

impl Workspace {
    fn on_snapshot(
        &mut self,
        cx: &CallCx,
        input: Snapshot,
    ) -> Result<Reply<SnapshotResult>, ToolError> {
        match input.action {
            SnapshotAction::Create { name, include_memory } => {
                self.snapshot_create(cx, name, include_memory.unwrap_or(false))
            }
            SnapshotAction::Restore { name, discard_newer } => {
                self.snapshot_restore(cx, &name, discard_newer.unwrap_or(false))
            }
            SnapshotAction::List => Ok(self.snapshot_list()),
            SnapshotAction::Delete { name } => self.snapshot_delete(&name),
        }
    }
}
