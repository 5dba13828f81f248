//! `destroy`: a team and all below it, the deepest first.

use std::{collections::HashMap, time::Duration};

use hivekeep_kernel::{Address, CallCx, Layer, Reply, SessionId, TeamId, ToolError};
use serde_json::json;

use super::{Cascade, Inner, Msg, Teams, ids};
use crate::{
    api::{TeamAction, TeamMember, TeamResult},
    codes, refuse,
    team::{self, RemovalOutcome, TeamView, operate},
};

/// Time limit of questions that only decide or write a record.
const PATIENCE: Duration = Duration::from_secs(45);

impl Teams {
    pub(crate) fn destroy(
        &mut self,
        cx: &CallCx,
        name: &str,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, _) = self.find(name)?;
        let (manager, cx) = (self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move { destroy(&manager, &cx, id).await }))
    }
}

/// Returns with the removal's outcome. That goes on whatever becomes of the call.
async fn destroy(manager: &Address<Msg>, cx: &CallCx, id: TeamId) -> Result<TeamResult, ToolError> {
    let cascade = manager.ask(PATIENCE, |reply| Msg(Inner::Close(id, reply))).await??;
    let name = match may_end(&cascade, cx.session).await {
        Ok(name) => name,
        Err(error) => {
            // A manager that is gone is followed by one that asks the records.
            let _ = manager.send(Msg(Inner::Reopen(ids(&cascade))));
            return Err(error);
        }
    };
    for (_, team) in &cascade {
        team.ask(PATIENCE, team::Msg::WantEnd).await??;
    }
    let remove = |reply| Msg(Inner::Remove(id, name, cascade, reply));
    let removal = manager.ask(PATIENCE, remove).await??;
    // Bounded by the manager, and not by the admission of all teams.
    cx.slot.give_back();
    cx.guard(removal.outcome()).await
}

/// Removes teams, each after those below it, and says what is left.
pub(super) async fn remove(
    manager: &Address<Msg>,
    name: &str,
    cascade: Cascade,
) -> Result<TeamResult, ToolError> {
    let (mut members, mut left, mut cards) = (Vec::new(), Vec::new(), None);
    // Teams that have something below them, and what.
    let mut kept: HashMap<TeamId, String> = HashMap::new();
    for (id, team) in cascade {
        let ended = match kept.get(&id) {
            // A team stays as long as anything below it does.
            Some(below) => {
                RemovalOutcome::not_begun(look(&team).await?.state, &refuse::kept_by(below))
            }
            None => end(&team).await?,
        };
        members.extend(rows(&ended, name));
        cards = cards.or(ended.cards.clone());
        if ended.all() {
            manager.ask(PATIENCE, |done| Msg(Inner::Gone(id, Some(done)))).await?;
        } else {
            let plan = &ended.state.plan;
            kept.extend(plan.parent.map(|parent| (parent, plan.name.clone())));
            left.push(ended);
        }
    }
    if left.is_empty() {
        return Ok(TeamResult {
            action: Some(TeamAction::Destroy),
            name: Some(name.to_owned()),
            success: Some(true),
            members: Some(members),
            cards,
            ..TeamResult::default()
        });
    }
    Err(incomplete(name, &left, members))
}

async fn look(team: &Address<team::Msg>) -> Result<TeamView, ToolError> {
    Ok(team.ask(PATIENCE, team::Msg::Look).await?)
}

/// Checks that all of the tree may be removed, before any of it is. Returns the topmost team's
/// name.
async fn may_end(cascade: &Cascade, session: SessionId) -> Result<String, ToolError> {
    let mut name = String::new();
    for (_, team) in cascade {
        let state = operate(team, session).await?.state;
        name.clone_from(&state.plan.name);
        if state.word() == "creating" {
            return Err(refuse::creating(&name));
        }
    }
    Ok(name)
}

/// The team answers when its members are gone or were given up.
async fn end(team: &Address<team::Msg>) -> Result<RemovalOutcome, ToolError> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    team.send(team::Msg::End(reply))?;
    answer.await.map_err(|_| {
        ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, "the team's actor ended; it goes on")
            .next("team with action `status` shows what is left")
            .retryable()
    })
}

fn rows(ended: &RemovalOutcome, name: &str) -> Vec<TeamMember> {
    let plan = &ended.state.plan;
    let below = (plan.name != name).then(|| plan.name.clone());
    let rows = ended.members.iter().map(|gone| {
        let member = &plan.members[gone.number];
        TeamMember {
            name: member.name.clone(),
            role: member.role.clone(),
            team: below.clone(),
            workspace_id: gone.workspace,
            workspace_name: member.workspace.clone(),
            destroyed: Some(gone.outcome.is_ok()),
            error: gone.outcome.as_ref().err().map(ToolError::to_text),
            ..TeamMember::default()
        }
    });
    rows.collect()
}

fn incomplete(name: &str, left: &[RemovalOutcome], members: Vec<TeamMember>) -> ToolError {
    let workspaces: Vec<_> = left.iter().flat_map(RemovalOutcome::left).collect();
    let why: Vec<_> = left.iter().filter_map(|ended| ended.error.as_ref()).collect();
    let message = match workspaces.as_slice() {
        [] => {
            format!("`{name}`: {}", why.first().map_or_else(String::new, |error| error.to_text()))
        }
        some => format!("of `{name}` these workspaces are left: {}", some.join(", ")),
    };
    ToolError::new(Layer::Actor, codes::TEAM_NOT_DESTROYED, message)
        .next("details.members says why; call again to go on with it")
        .retryable()
        .detail("left", workspaces)
        .detail("members", json!(members))
}
