//! Tool declarations of repositories.

mod binding;
mod tree;

pub(crate) use binding::{
    BindingRow, BindingsListed, RemoteCredential, RepositoryClone, RepositoryDelete,
    RepositoryDeleted, RepositoryList, RepositoryRefresh, RepositoryRefreshed, RepositoryStatus,
};
pub(crate) use tree::{
    RepositoryCommit, RepositoryCommitted, RepositoryDiff, RepositoryDiffed, RepositoryPush,
    RepositoryPushed,
};

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::repositories::Repositories;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Repositories>>] =
    &[&binding::FAMILY, &tree::FAMILY];
