//! Who operates a team, and how its members are now.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream};
use hivekeep_kernel::{Address, SessionId, ToolError};

use super::{Card, Msg, Takeover};
use crate::{
    codes,
    desk::{self, Load},
    errands::{Details, Row},
    records::State,
    refuse,
    shared::{OnBehalfOf, TeamShared},
    tools::team::TeamMember,
};

/// For a team to say what it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a look at what a session owns.
const LOOK: Duration = Duration::from_secs(30);

/// The team, for a session that operates it. One that owns every workspace of its members, having
/// adopted them, takes it over by asking.
///
/// # Errors
/// `not_owner`; `team_state` while it is made or removed for another session.
pub(crate) async fn authorize(
    house: &Arc<TeamShared>,
    team: &Address<Msg>,
    session: SessionId,
) -> Result<Card, ToolError> {
    let card = team.ask(PATIENCE, Msg::Look).await?;
    let from = card.state.owner;
    if from == session {
        return Ok(card);
    }
    let rows = house.workspaces(card.plan().id, &OnBehalfOf::own(session, LOOK)).await?;
    let over = house.sessions.standing(from).await.ended;
    if !holds(&card.state, &rows, over) {
        return Err(refuse::not_owner(&card.plan().name));
    }
    // What was looked at may be another's meanwhile.
    let take = Takeover { by: session, from };
    team.ask(PATIENCE + LOOK, |reply| Msg::Own(take, reply)).await??;
    Ok(team.ask(PATIENCE, Msg::Look).await?)
}

/// Whether whoever sees these rows owns every member that there is. Of a team without any, it is
/// enough that its own session is over.
fn holds(state: &State, rows: &[Row], over: bool) -> bool {
    let Some(ids) = &state.workspaces else {
        let names = state.plan.members.iter().map(|member| &member.workspace);
        let mut there = names.filter_map(|name| rows.iter().find(|row| row.name == *name));
        return over && there.all(|row| row.owned);
    };
    let there: Vec<_> =
        ids.iter().filter_map(|id| rows.iter().find(|row| row.workspace_id == *id)).collect();
    there.iter().all(|row| row.owned) && (over || !there.is_empty())
}

/// The members as they are now. For nobody, their workspaces are not asked; without desks, nothing
/// is said of their tasks.
pub(crate) async fn members(
    house: &Arc<TeamShared>,
    whom: Option<&OnBehalfOf>,
    state: &State,
    desks: &[Address<desk::Msg>],
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
            let seen = match whom {
                None => seen,
                Some(whom) => match house.look(state.plan.id, whom, &key).await {
                    Ok(details) => told(seen, details),
                    Err(error) => not_told(seen, &error, making),
                },
            };
            match desks.get(number) {
                Some(desk) => with_load(seen, desk).await,
                None => seen,
            }
        }
    });
    stream::iter(looks).buffered(house.options.max_parallel).collect().await
}

/// Members that were looked at before, with their tasks as they are now.
pub(crate) async fn with_loads(
    seen: Vec<TeamMember>,
    desks: &[Address<desk::Msg>],
) -> Vec<TeamMember> {
    if desks.is_empty() {
        return seen;
    }
    join_all(seen.into_iter().zip(desks).map(|(seen, desk)| with_load(seen, desk))).await
}

async fn with_load(seen: TeamMember, desk: &Address<desk::Msg>) -> TeamMember {
    match desk.ask(PATIENCE, desk::Msg::Look).await {
        Ok(load) => loaded(seen, load),
        // It is being started again: nothing is known of its tasks.
        Err(_) => seen,
    }
}

fn told(seen: TeamMember, details: Details) -> TeamMember {
    let link = details.machine.as_ref().map_or("absent", |machine| machine.link.as_str());
    // The link's first word is what it is, the rest why.
    let (status, why) = match (details.state.as_str(), link.split(' ').next()) {
        ("running", Some("up")) => ("ready", None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errands::Machine;

    fn status(state: &str, link: Option<&str>) -> (String, bool) {
        let machine = link.map(|link| Machine { link: link.to_owned() });
        let details = Details {
            state: state.to_owned(),
            reason: None,
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
        of("starting", None, "initializing", false);
        of("stopped", None, "failed", true);
        of("crashed", None, "failed", true);
        of("paused", Some("up"), "failed", true);
    }
}
