//! A listing of the tools of this crate, whose rows stand with their types and handlers in the rooms of
//! their features.

use hivekeep_kernel::{ToolGroup, ToolInfo};

use crate::{
    commands::{self, parallel},
    files,
    git::{self, merge},
    lifecycle::{self, describe},
    manager::Workspaces,
    network, ownership, parking,
    pool::claim,
    prepare, snapshot,
    state::Workspace,
};

/// Families served by one workspace.
pub(crate) const OF_WORKSPACE: &[&ToolGroup<Workspace>] = &[
    &lifecycle::ONE,
    &commands::FAMILY,
    &files::FAMILY,
    &git::FAMILY,
    &snapshot::ONE,
    &parking::FAMILY,
    &network::FAMILY,
    &describe::FAMILY,
];

/// Families served by the manager of all workspaces.
pub(crate) const OF_WORKSPACES: &[&ToolGroup<Workspaces>] = &[
    &lifecycle::ALL,
    &parallel::FAMILY,
    &snapshot::FORKS,
    &prepare::FAMILY,
    &merge::FAMILY,
    &ownership::FAMILY,
    &claim::FAMILY,
];

/// Whether a tool of one workspace asks something of its guest.
pub(crate) fn wants_guest(name: &str) -> bool {
    let guests = [&commands::FAMILY, &files::FAMILY, &git::FAMILY];
    let mut rows = guests.iter().flat_map(|family| family.rows);
    name != "set_env" && rows.any(|row| row.0.spec.name == name)
}

/// Every tool of this crate.
pub fn catalogue() -> Vec<&'static ToolInfo> {
    let one = OF_WORKSPACE.iter().flat_map(|family| family.rows).map(|row| &row.0);
    let all = OF_WORKSPACES.iter().flat_map(|family| family.rows).map(|row| &row.0);
    all.chain(one).collect()
}
