//! `destroy`: a team and all below it, the deepest first.
//!
//! [`Removals`] knows who keeps a team closed, which removals run, and which teams wait for those
//! below them.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use hivekeep_kernel::{
    Address, CallCx, Layer, Reply, SessionId, TeamId, ToolError, workers::Workers,
};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::{Cascade, Inner, Msg, Teams, ids};
use crate::{
    api::{TeamAction, TeamMember, TeamResult},
    codes, refuse,
    team::{self, RemovalOutcome, TeamView, operate},
};

/// Time limit of questions that only decide or write a record.
const PATIENCE: Duration = Duration::from_secs(45);

/// Calls that wait for one removal. They hold no place among the calls that teams work on, so they
/// are bounded here.
const MOST_WAITING: usize = 16;

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
    let (reply, answer) = oneshot::channel();
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

type Outcome = Result<TeamResult, ToolError>;

/// Table of the removals that run, and of the calls that wait.
#[derive(Default)]
pub(super) struct Removals {
    /// Calls and records that keep a team closed.
    closers: HashMap<TeamId, usize>,
    /// The last removal of each topmost team.
    last: HashMap<TeamId, Arc<watch::Sender<Option<Outcome>>>>,
    waiting: Vec<(TeamId, oneshot::Sender<()>)>,
}

/// A removal, for one call that waits for it. Dropping this does not stop the removal.
pub(crate) struct Removal(watch::Receiver<Option<Outcome>>);

impl Removal {
    pub(super) async fn outcome(mut self) -> Outcome {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().expect("it was waited for"),
            Err(_) => Err(ToolError::internal("the manager of teams ended; the removal goes on")),
        }
    }
}

impl Removals {
    /// Marks these teams as closed, once more for each caller.
    pub(super) fn close(&mut self, ids: &[TeamId]) {
        for id in ids {
            *self.closers.entry(*id).or_default() += 1;
        }
    }

    /// Withdraws a caller's [`Self::close`]. Teams that nobody else wants removed are open again.
    pub(super) fn reopen(&mut self, ids: Vec<TeamId>) {
        for id in ids {
            let Some(closers) = self.closers.get_mut(&id) else { continue };
            *closers -= 1;
            if *closers == 0 {
                self.closers.remove(&id);
            }
        }
    }

    /// True while a team is being removed: nothing is put below it any more.
    pub(super) fn is_closed(&self, id: TeamId) -> bool {
        self.closers.contains_key(&id)
    }

    /// Begins a removal of a team and those below it, or joins the one that runs.
    ///
    /// # Errors
    /// `too_many_waiting`.
    pub(super) fn run(
        &mut self,
        id: TeamId,
        workers: &Workers,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Result<Removal, ToolError> {
        if let Some(last) = self.last.get(&id).filter(|last| last.borrow().is_none()) {
            if last.receiver_count() >= MOST_WAITING {
                return Err(refuse::too_many_removers(MOST_WAITING));
            }
            return Ok(Removal(last.subscribe()));
        }
        let (last, removal) = watch::channel(None);
        let last = Arc::new(last);
        self.last.insert(id, last.clone());
        let _detached = workers.spawn(async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let panicked = |_| Err(ToolError::internal("the removal panicked"));
            last.send_replace(Some(outcome.unwrap_or_else(panicked)));
        });
        Ok(Removal(removal))
    }

    /// A team waits until nothing is below it.
    pub(super) fn wait(&mut self, id: TeamId, free: oneshot::Sender<()>) {
        self.waiting.push((id, free));
    }

    /// A team is no more.
    pub(super) fn gone(&mut self, id: TeamId) {
        self.closers.remove(&id);
        self.last.remove(&id);
    }

    /// Tells those that wait and that have nothing below them.
    pub(super) fn tell(&mut self, has_below: impl Fn(TeamId) -> bool) {
        for (id, free) in std::mem::take(&mut self.waiting) {
            match has_below(id) {
                // An incarnation that is gone is followed by one that asks again.
                true if free.is_closed() => {}
                true => self.waiting.push((id, free)),
                false => drop(free.send(())),
            }
        }
    }
}
