//! The network between the members of a team.

use hivekeep_kernel::{TeamId, WorkspaceId};

/// Called when all members of a team are there and before it is ready. The network has no groups
/// yet: members reach one another as far as the policies of their workspaces allow it, which
/// `network_policy` shows and sets.
pub(crate) fn join(team: TeamId, members: &[WorkspaceId]) {
    tracing::debug!(%team, members = members.len(), "the network has no groups");
}
