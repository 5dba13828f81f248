//! Members of a team as they are now: their workspaces, how much they have to do, and their network.

use std::sync::Arc;

use futures::{StreamExt, stream};
use hivekeep_kernel::{TeamId, ToolError};
use hivekeep_ports::{NetworkGroup, NetworkMode};
use hivekeep_runtime::InspectedWorkspace;

use crate::{
    api::{TeamMember, TeamNetwork},
    codes,
    records::State,
    shared::{OnBehalfOf, TeamShared},
    tasks::Load,
};

/// The members' workspaces, in somebody's name; for nobody, they are not asked.
pub(crate) async fn members(
    shared: &TeamShared,
    caller: Option<&OnBehalfOf>,
    state: &State,
) -> Vec<TeamMember> {
    let looks = (0..state.plan.members.len()).map(|number| {
        let member = &state.plan.members[number];
        let workspace_id = state.workspaces.as_ref().map(|ids| ids[number]);
        let key = workspace_id.map_or(member.workspace.clone(), |id| id.to_string());
        let making = state.word() == "creating";
        let seen = TeamMember {
            name: member.name.clone(),
            role: member.role.clone(),
            workspace_id,
            workspace_name: member.workspace.clone(),
            ..TeamMember::default()
        };
        async move {
            match caller {
                None => seen,
                Some(caller) => match shared.tools.look(state.plan.id, caller, &key).await {
                    Ok(details) => told(seen, details),
                    Err(error) => not_told(seen, &error, making),
                },
            }
        }
    });
    stream::iter(looks).buffered(shared.options.max_parallel).collect().await
}

/// Members with how much they have to do, as far as that is known.
pub(crate) fn with_loads(seen: Vec<TeamMember>, loads: Vec<Option<Load>>) -> Vec<TeamMember> {
    let loads = loads.into_iter().chain(std::iter::repeat(None));
    seen.into_iter()
        .zip(loads)
        .map(|(seen, load)| match load {
            Some(load) => loaded(seen, load),
            None => seen,
        })
        .collect()
}

fn told(seen: TeamMember, details: InspectedWorkspace) -> TeamMember {
    let link = details.machine.as_ref().map_or("absent", |machine| machine.link.as_str());
    // The link's first word is what it is, the rest why.
    let (status, why) = match (details.state.as_str(), link.split(' ').next()) {
        // A task wakes one that sleeps.
        ("running", Some("up")) | ("parked", _) => ("ready", None),
        ("creating" | "starting", _) | ("running", Some("connecting")) => ("initializing", None),
        ("running", _) => ("failed", Some(format!("its guest cannot be reached: {link}"))),
        (state, _) => ("failed", Some(format!("its workspace is {state}"))),
    };
    TeamMember {
        ip: details.ip,
        agent_status: Some(status.to_owned()),
        reason: details.reason.or(why),
        workspace_state: Some(details.state),
        ..seen
    }
}

fn loaded(seen: TeamMember, load: Load) -> TeamMember {
    let works = load.running > 0 && seen.agent_status.as_deref() == Some("ready");
    TeamMember {
        agent_status: if works { Some("working".to_owned()) } else { seen.agent_status },
        pending_tasks: Some(load.pending),
        running_tasks: Some(load.running),
        waiting_results: Some(load.results),
        tasks_held_up: load.trouble.filter(|_| load.pending > 0),
        ..seen
    }
}

fn not_told(seen: TeamMember, error: &ToolError, making: bool) -> TeamMember {
    let (status, reason) = match error.is(codes::WORKSPACE_NOT_FOUND) {
        true if making => ("initializing", None),
        true => ("failed", Some("its workspace is gone".to_owned())),
        false => ("unknown", Some(error.to_text())),
    };
    TeamMember { agent_status: Some(status.to_owned()), reason, ..seen }
}

/// The group of a team, in which its members reach one another.
///
/// A group is named after the team's id, so that no name of a team is ever mistaken for another's
/// or for an earlier team's. A team below another is a group of its own: its members do not reach
/// those above. Members join when all are made and before the team is ready; whoever removes a
/// member's workspace takes it out of the network, and thereby out of the group.
pub(crate) fn group(team: TeamId) -> NetworkGroup {
    let name = format!("team-{}", team.uuid().simple());
    name.parse().expect("letters, digits and a hyphen inside, 37 of them")
}

/// The network as the members have it now.
pub(crate) async fn network(shared: &Arc<TeamShared>, state: &State) -> TeamNetwork {
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
    use hivekeep_runtime::InspectedMachine;

    use super::*;

    fn status(state: &str, link: Option<&str>) -> (String, bool) {
        let machine = link.map(|link| InspectedMachine { link: link.to_owned() });
        let details = InspectedWorkspace {
            state: state.to_owned(),
            reason: None,
            user: None,
            ip: None,
            machine,
            snapshots: Vec::new(),
        };
        let seen = told(TeamMember::default(), details);
        (seen.agent_status.expect("told"), seen.reason.is_some())
    }

    #[test]
    fn a_member_is_ready_only_when_its_guest_answers() {
        let of = |state, link, status_word: &str, reason| {
            assert_eq!(status(state, link), (status_word.to_owned(), reason), "{state} {link:?}");
        };
        of("running", Some("up"), "ready", false);
        of("running", Some("connecting (no answer yet)"), "initializing", false);
        of("running", Some("unresponsive"), "failed", true);
        of("running", None, "failed", true);
        of("parked", None, "ready", false);
        of("starting", None, "initializing", false);
        of("stopped", None, "failed", true);
        of("crashed", None, "failed", true);
        of("paused", Some("up"), "failed", true);
    }

    #[test]
    fn each_team_has_a_group_of_its_own() {
        let (one, other) = (TeamId::new(), TeamId::new());
        assert_eq!(group(one), group(one));
        assert_ne!(group(one), group(other));
    }
}
