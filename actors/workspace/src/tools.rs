//! A listing of the tools of this crate: one file per family, with rows and the handlers that choose
//! by the input. Their types are in [`crate::api`].

pub mod diagnostics;
pub mod execution;
pub mod files;
pub mod git;
pub mod lifecycle;
pub mod merge;
pub mod network;
pub mod parallel;
pub mod pool;
pub mod prepare;
pub mod session;
pub mod snapshots;

use hivekeep_kernel::ToolInfo;

/// Families served by one workspace.
pub(crate) const OF_WORKSPACE: &[&hivekeep_kernel::ToolGroup<crate::workspace::Workspace>] = &[
    &lifecycle::ONE,
    &execution::FAMILY,
    &files::FAMILY,
    &git::FAMILY,
    &snapshots::ONE,
    &network::FAMILY,
    &diagnostics::FAMILY,
];

/// Families served by the manager of all workspaces.
pub(crate) const OF_WORKSPACES: &[&hivekeep_kernel::ToolGroup<crate::workspaces::Workspaces>] = &[
    &lifecycle::ALL,
    &parallel::FAMILY,
    &snapshots::FORKS,
    &prepare::FAMILY,
    &merge::FAMILY,
    &session::FAMILY,
    &pool::FAMILY,
];

/// Whether a tool of one workspace asks something of its guest.
pub(crate) fn wants_guest(name: &str) -> bool {
    let guests = [&execution::FAMILY, &files::FAMILY, &git::FAMILY];
    let mut rows = guests.iter().flat_map(|family| family.rows);
    name != "set_env" && rows.any(|row| row.0.spec.name == name)
}

/// Every tool of this crate.
pub fn catalogue() -> Vec<&'static ToolInfo> {
    let one = OF_WORKSPACE.iter().flat_map(|family| family.rows).map(|row| &row.0);
    let all = OF_WORKSPACES.iter().flat_map(|family| family.rows).map(|row| &row.0);
    all.chain(one).collect()
}
