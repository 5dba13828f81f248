//! State of the manager of all workspaces.

use std::sync::Arc;

use hivekeep_git::merge::Merges;
use hivekeep_kernel::{Address, Children, Context, WorkspaceId};
use hivekeep_runtime::collection::{Collection, CollectionMember};

use super::{messages::Msg, prepare::Preparing};
use crate::{pool, shared::Shared, workspace::Workspace};

/// Arguments of one incarnation of the manager.
pub type Seed = Arc<Shared>;

/// Manager of all workspaces.
pub struct Workspaces {
    pub(super) me: Context<Msg>,
    pub(super) shared: Arc<Shared>,
    pub(super) workspaces: Collection<WorkspaceMember>,
    /// Child actors: the pool.
    pub(super) children: Children,
    pub(super) preparing: Preparing,
    pub(super) merges: Merges,
    pub(super) pool: Address<pool::Msg>,
}

/// A workspace that has its actor. Its name and slot are in the shared directory: calls claim them
/// there before the plan is written, without asking the manager.
pub(super) struct WorkspaceMember;

impl CollectionMember for WorkspaceMember {
    type Id = WorkspaceId;
    type Actor = Workspace;
    const KIND: &'static str = "workspace";
}
