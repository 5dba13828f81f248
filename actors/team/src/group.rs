//! The members' network: one group for each team, in which they reach one another.
//!
//! A group is named after the team's id, so that no name of a team is ever mistaken for another's
//! or for an earlier team's. A team below another is a group of its own: its members do not reach
//! those above. Members join when all are made and before the team is ready; whoever removes a
//! member's workspace takes it out of the network, and thereby out of the group.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use hivekeep_kernel::{
    TeamId, ToolError, WorkspaceId, fault_point,
    ports::{GroupChange, NetworkGroup, NetworkMode, NetworkWish},
};

use crate::{api::TeamNetwork, records::State, shared::TeamShared};

/// The group of a team.
pub(crate) fn group(team: TeamId) -> NetworkGroup {
    let name = format!("team-{}", team.uuid().simple());
    name.parse().expect("letters, digits and a hyphen inside, 37 of them")
}

/// Puts the members into their group: in force when this returns. Where machines are not on a
/// bridge, or a member has no place in the network, there is nothing to join; [`told`] says so.
///
/// # Errors
/// When a member that has a place cannot be put into the group.
pub(crate) async fn join(
    shared: &Arc<TeamShared>,
    team: TeamId,
    members: &[WorkspaceId],
) -> Result<(), ToolError> {
    if shared.network.mode().await? != NetworkMode::Bridge {
        return Ok(());
    }
    let wish = NetworkWish {
        group: Some(GroupChange::Join(group(team))),
        // Others are not let in by what a member was made of, or by a default.
        allow_inter_vm: Some(false),
        ..NetworkWish::default()
    };
    let has_place = |id: &WorkspaceId| shared.network.view(*id).is_some();
    let placed: Vec<_> = members.iter().copied().filter(has_place).collect();
    let joins = placed.into_iter().map(|id| {
        let wish = wish.clone();
        async move {
            shared.network.set_policy(id, wish).await?;
            fault_point!("team.after_join");
            Ok(())
        }
    });
    stream::iter(joins).buffer_unordered(shared.options.max_parallel).try_collect().await
}

/// The network as the members have it now.
pub(crate) async fn told(shared: &Arc<TeamShared>, state: &State) -> TeamNetwork {
    let without = |mode: &str, reason: String| TeamNetwork {
        mode: mode.to_owned(),
        members_reach_each_other: false,
        group: None,
        reason: Some(reason),
    };
    match shared.network.mode().await {
        Err(error) => without("unknown", error.to_text()),
        Ok(NetworkMode::Off { reason }) => without("off", reason),
        Ok(NetworkMode::User { reason }) => {
            without("user", format!("each machine is alone in its network: {reason}"))
        }
        Ok(NetworkMode::Bridge) => match outside(shared, state) {
            None => TeamNetwork {
                mode: "bridge".to_owned(),
                members_reach_each_other: true,
                group: Some(group(state.plan.id)),
                reason: None,
            },
            Some(reason) => without("bridge", reason),
        },
    }
}

/// The reason why not all members are in the group; `None` when they are.
fn outside(shared: &TeamShared, state: &State) -> Option<String> {
    let Some(ids) = &state.workspaces else {
        return Some("the members are not made yet".to_owned());
    };
    let group = group(state.plan.id);
    let (mut placeless, mut others) = (Vec::new(), Vec::new());
    for (member, id) in state.plan.members.iter().zip(ids) {
        match shared.network.view(*id) {
            None => placeless.push(member.name.as_str()),
            Some(view) if view.policy.group.as_ref() != Some(&group) => {
                others.push(member.name.as_str());
            }
            Some(_) => {}
        }
    }
    match (placeless.as_slice(), others.as_slice()) {
        ([], []) => None,
        ([], others) => Some(format!(
            "not in the team's group, which is joined when a team is made: {}",
            others.join(", ")
        )),
        (placeless, _) => Some(format!(
            "without a place in the network, which sandboxes never have: {}",
            placeless.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_team_has_a_group_of_its_own() {
        let (one, other) = (TeamId::new(), TeamId::new());
        assert_eq!(group(one), group(one));
        assert_ne!(group(one), group(other));
    }
}
