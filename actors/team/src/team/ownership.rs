//! Ownership of a team: its owner operates it, and whoever has adopted all of its members'
//! workspaces, who becomes its owner by asking.
//!
//! Other actors are asked whether a session has become the owner, once for all calls of that session
//! which come meanwhile: these wait here, in their order, as many as the calls that are admitted.

use std::{collections::HashMap, time::Duration};

use hivekeep_kernel::{Address, SessionId, ToolError};
use hivekeep_runtime::{ListedWorkspace, log::Decision};
use serde_json::json;

use super::{AnswerSender, Msg, Outgoing, Sent, TeamActor, TeamView};
use crate::{
    records::{Record, State},
    refuse,
    shared::{OnBehalfOf, TeamShared},
};

/// Time limit of a team's answer about itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of a look at the workspaces that a session owns.
const LOOK: Duration = Duration::from_secs(30);

/// A session that owns the members' workspaces wants the team.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takeover {
    pub(crate) by: SessionId,
    /// The owner at the time of the check.
    pub(crate) from: SessionId,
}

/// A call that only the owner may make.
pub(super) enum Call {
    View(AnswerSender<TeamView>),
    Send(Box<Outgoing>, AnswerSender<Sent>),
}

/// Calls of sessions that are not the owner, behind the question whether they are.
pub(super) type Checks = HashMap<SessionId, Vec<Call>>;

/// The team, for a session that operates it.
///
/// # Errors
/// `not_owner`; `team_state` while it is made or removed for another session.
pub(crate) async fn operate(
    team: &Address<Msg>,
    session: SessionId,
) -> Result<TeamView, ToolError> {
    team.ask(2 * (PATIENCE + LOOK), |reply| Msg::Operate(session, reply)).await?
}

/// Makes a session the owner of a team of which it has all workspaces.
async fn take_over(
    shared: &TeamShared,
    team: &Address<Msg>,
    state: &State,
    by: SessionId,
) -> Result<(), ToolError> {
    let from = state.owner;
    let rows = shared.tools.workspaces(state.plan.id, &OnBehalfOf::own(by, LOOK)).await?;
    let over = shared.sessions.standing(from).await.ended
        && shared.sessions.is_of_user(by, state.user, Some(from));
    if !holds(state, &rows, over) {
        return Err(refuse::not_owner(&state.plan.name));
    }
    // The team may have another owner meanwhile.
    let take = Takeover { by, from };
    team.ask(PATIENCE + LOOK, |reply| Msg::Own(take, reply)).await?
}

/// True when the caller who sees these rows owns every member that there is. For a team without
/// members, it is enough that the session which had it is `over` and was of the caller's user.
fn holds(state: &State, rows: &[ListedWorkspace], over: bool) -> bool {
    let Some(ids) = &state.workspaces else {
        let names = state.plan.members.iter().map(|member| &member.workspace);
        let mut there = names.filter_map(|name| rows.iter().find(|row| row.name == *name));
        return over && there.all(|row| row.owned);
    };
    let there: Vec<_> =
        ids.iter().filter_map(|id| rows.iter().find(|row| row.workspace_id == *id)).collect();
    there.iter().all(|row| row.owned) && (over || !there.is_empty())
}

impl TeamActor {
    /// Serves a call of the owner's, at once or when it is known that it is one.
    pub(super) fn operate(&mut self, session: SessionId, call: Call) {
        if let Some(behind) = self.checks.get_mut(&session) {
            return behind.push(call);
        }
        if session == self.state.owner {
            return self.serve(call, Ok(()));
        }
        self.checks.insert(session, vec![call]);
        let (shared, state, team) =
            (self.args.shared.clone(), self.state.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let outcome = take_over(&shared, &team, &state, session).await;
            // A dropped reply reports to its caller that the team is gone.
            let _ = team.send(Msg::Checked(session, outcome));
        });
    }

    pub(super) fn checked(&mut self, session: SessionId, outcome: &Result<(), ToolError>) {
        for call in self.checks.remove(&session).unwrap_or_default() {
            let may = outcome.clone().and_then(|()| match session == self.state.owner {
                true => Ok(()),
                // Taken over by another since.
                false => Err(refuse::not_owner(&self.state.plan.name)),
            });
            self.serve(call, may);
        }
    }

    fn serve(&mut self, call: Call, may: Result<(), ToolError>) {
        // Whoever asked may have gone.
        match call {
            Call::View(reply) => drop(reply.send(may.map(|()| self.view()))),
            Call::Send(message, reply) => drop(reply.send(may.and_then(|()| self.send(*message)))),
        }
    }

    pub(super) fn own(&mut self, take: Takeover, reply: AnswerSender<()>) {
        let Takeover { by, from } = take;
        let name = &self.state.plan.name;
        let user = self.args.shared.sessions.user(by);
        let decided = if self.state.owner == by {
            // Whoever asked may have gone.
            return drop(reply.send(Ok(())));
        } else if self.unbuilt || self.building.is_some() {
            Err(refuse::creating(name))
        } else if self.ending.is_some() || self.gone.is_some() {
            // The members are being removed in the name of the present owner, or are gone.
            Err(refuse::destroying(name).retryable())
        } else {
            self.log.decide(|state| match state {
                Some(state) if state.owner == by => Ok(Decision::nothing()),
                Some(state) if state.owner == from => {
                    let adopted = State { owner: by, user, ..state.clone() };
                    let event = adopted.event("team.adopted", json!({ "by": by, "from": from }));
                    Ok(Decision::record(Record::Owned { by, user }).event(event))
                }
                _ => Err(refuse::not_owner(name)),
            })
        };
        let written = decided.map(|written| async { Ok(written.await?) });
        self.recorded(written, reply);
    }
}
