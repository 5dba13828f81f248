//! Snapshots of a workspace, and forks of them.

pub(crate) mod api;
pub(crate) mod create;
pub(crate) mod deleting;
pub(crate) mod fork;
pub(crate) mod listing;
pub(crate) mod merge;
pub(crate) mod quiet;
pub(crate) mod requests;
pub(crate) mod restore;

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use self::api::{Forked, Snapshot, SnapshotAction, SnapshotResult, WorkspaceBranch, WorkspaceFork};
use crate::{manager::Workspaces, state::Workspace};

tools! { pub ONE: "snapshots & forking" for Workspace, addressed workspace by workspace_id;
    snapshot: Snapshot => SnapshotResult = on_snapshot {
        title: "Snapshots of a workspace", effect: Destroy, risk: Risk::Medium, timeout_secs: 600,
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
            create::snapshot_create(state, cx, name, include_memory.unwrap_or(false))
        }
        SnapshotAction::Restore { name, discard_newer } => {
            restore::snapshot_restore(state, cx, &name, discard_newer.unwrap_or(false))
        }
        SnapshotAction::List => Ok(listing::snapshot_list(state)),
        SnapshotAction::Delete { name } => deleting::snapshot_delete(state, &name),
    }
}
