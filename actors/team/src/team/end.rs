//! Removing the members and then the team's own records; also what undoes a plan.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use hivekeep_kernel::{Address, AskError, ToolError, WorkspaceId, fault_point};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::{sync::oneshot, time::Instant};

use super::{Card, Msg, NotBuilt, Team, turn::commit};
use crate::{
    cards::{self, TeamCards, keep::Keeping},
    desk, mailbox,
    records::{self, Record, State},
    refuse,
    shared::{OnBehalfOf, TeamShared},
    teams,
};

/// For removing one member: a machine may be starting, or stopping, and others come first.
const PATIENCE: Duration = Duration::from_secs(300);
/// Before an actor that is being started is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// For what an inbox is writing.
const CLOSING: Duration = Duration::from_secs(40);

/// What became of a member.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    pub(crate) number: usize,
    pub(crate) workspace: Option<WorkspaceId>,
    pub(crate) outcome: Result<(), ToolError>,
}

/// What came of a removal.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) state: Arc<State>,
    /// In the plan's order.
    pub(crate) members: Vec<Gone>,
    /// What else stands in the way.
    pub(crate) error: Option<ToolError>,
    /// Set when cards could not be removed.
    pub(crate) cards: Option<TeamCards>,
    /// Whether it is durable that it is to be removed. Nothing was removed if not.
    recorded: bool,
}

impl Ended {
    /// Whether nothing is left.
    pub(crate) fn all(&self) -> bool {
        self.error.is_none() && self.members.iter().all(|member| member.outcome.is_ok())
    }

    /// All of it is left, for this reason.
    pub(crate) fn not_begun(state: Arc<State>, why: &ToolError) -> Self {
        let left = |number| Gone {
            number,
            workspace: state.workspaces.as_ref().map(|ids| ids[number]),
            outcome: Err(why.clone()),
        };
        let members = (0..state.plan.members.len()).map(left).collect();
        Self { members, error: Some(why.clone()), cards: None, recorded: false, state }
    }

    /// Names of the workspaces that are left.
    pub(crate) fn left(&self) -> Vec<String> {
        let left = self.members.iter().filter(|member| member.outcome.is_err());
        left.map(|member| self.state.plan.members[member.number].workspace.clone()).collect()
    }
}

impl Team {
    /// Goes on with a removal, or undoes a plan, once nothing is below the team any more. Those
    /// below go on by themselves.
    pub(super) fn go_on(&self) {
        let (id, teams, team) = (self.seed.id, self.seed.teams.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            loop {
                let (free, childless) = oneshot::channel();
                if teams.send(teams::Msg::when_childless(id, free)).is_ok()
                    && childless.await.is_ok()
                {
                    break;
                }
                // The keeper is being started, and this team with it.
                tokio::time::sleep(AGAIN).await;
            }
            let _ = team.send(Msg::GoOn);
        });
    }

    /// Begins to remove everything, or joins whoever did. A record comes before the first removal:
    /// a start finds no team without its members.
    pub(super) fn end(&mut self, reply: Option<oneshot::Sender<Ended>>) {
        if let Some(ended) = &self.gone {
            if let Some(reply) = reply {
                // Whoever asked may have gone.
                drop(reply.send(ended.clone()));
            }
            return;
        }
        if let Some(waiting) = &mut self.ending {
            waiting.retain(|waiting| !waiting.is_closed());
            return waiting.extend(reply);
        }
        self.ending = Some(reply.into_iter().collect());
        self.change(|state| state.ending = true);
        let (house, state) = (self.seed.house.clone(), self.state.clone());
        let (card, team) = (self.card(), self.me.address.clone());
        let keeping = self.keeping.clone();
        let record = (!self.end_recorded).then(|| Record::Ending { unmade: state.unmade.clone() });
        let _detached = self.me.workers.spawn(async move {
            let recorded = match record {
                Some(record) => commit(&house, &state, record, None).await,
                None => Ok(()),
            };
            let ended = match recorded {
                Ok(()) => end(&house, state, &card, keeping).await,
                Err(error) => Ended::not_begun(state, &error),
            };
            // A team that is gone is followed by one that goes on.
            let _ = team.send(Msg::Done(ended));
        });
    }

    /// Whoever waited lets the name go; if nobody did, that is done from here.
    pub(super) fn done(&mut self, ended: Ended) {
        self.end_recorded |= ended.recorded;
        let gone = ended.all();
        if gone {
            self.gone = Some(ended.clone());
        } else {
            tracing::warn!(team = %ended.state.plan.name, left = ?ended.left(), "is not gone");
        }
        let mut told = false;
        if let (Some(reply), Some(error)) = (self.building.take(), self.failed.take()) {
            let error = if gone { error } else { error.detail("left", ended.left()) };
            told |= reply.send(Err(NotBuilt { error, gone })).is_ok();
        }
        for reply in self.ending.take().unwrap_or_default() {
            told |= reply.send(ended.clone()).is_ok();
        }
        if gone && !told {
            // A keeper that is gone reads the journal, in which the team is no more.
            let _ = self.seed.teams.send(teams::Msg::gone(self.seed.id));
        }
    }
}

async fn end(
    house: &Arc<TeamShared>,
    state: Arc<State>,
    card: &Card,
    keeping: Option<Keeping>,
) -> Ended {
    let id = state.plan.id;
    // What an earlier incarnation began to make would come to light afterwards.
    house.quiet(id).await;
    let whom = OnBehalfOf::own(state.owner, PATIENCE);
    let removes = (0..state.plan.members.len()).map(|number| {
        let member = &state.plan.members[number];
        let workspace = state.workspaces.as_ref().map(|ids| ids[number]);
        let key = workspace.map_or(member.workspace.clone(), |id| id.to_string());
        let (whom, unmade) = (&whom, state.unmade.contains(&number));
        async move {
            if unmade {
                return Gone { number, workspace, outcome: Ok(()) };
            }
            let outcome = house.remove(id, whom, &key).await;
            if outcome.is_ok() {
                fault_point!("team.after_member_destroyed");
            }
            Gone { number, workspace, outcome }
        }
    });
    let removes = stream::iter(removes).buffered(house.options.max_parallel);
    let members: Vec<_> = removes.collect().await;
    let mut ended = Ended { members, error: None, cards: None, recorded: true, state };
    if ended.all() {
        if let Some(keeping) = keeping {
            keeping.stop().await;
        }
        let plan = &ended.state.plan;
        // A team does not stay for its cards: what is left of them goes at a next start.
        ended.cards = cards::remove(house, plan).await.err().as_ref().and_then(cards::left);
        ended.error = forget(house, &ended.state, card).await.err();
    }
    ended
}

/// Closes the inboxes and desks, and removes all records, the team's own last.
async fn forget(house: &Arc<TeamShared>, state: &State, card: &Card) -> Result<(), ToolError> {
    for mailbox in &card.mailboxes {
        close(mailbox, mailbox::Msg::Close).await?;
    }
    for desk in &card.desks {
        close(desk, desk::Msg::Close).await?;
    }
    fault_point!("team.before_forget");
    let id = state.plan.id;
    for number in 0..state.plan.members.len() {
        for stream in [mailbox::records::stream(id, number), desk::records::stream(id, number)] {
            house.journal.forget(&stream).await.map_err(|error| refuse::store(&error))?;
        }
    }
    let stream = records::stream(id);
    house.journal.forget(&stream).await.map_err(|error| refuse::store(&error))?;
    let kind = if state.workspaces.is_some() { "team.destroyed" } else { "team.undone" };
    let data = json!({ "name": state.plan.name });
    let event = NewEvent { kind: kind.to_owned(), subject: id.to_string(), data };
    let _lost_is_counted = house.events.publish_later(event);
    Ok(())
}

/// Returns when an inbox or a desk takes no more and writes nothing: one that was given up does not,
/// one that is being started again is asked then.
async fn close<M: Send + 'static>(
    address: &Address<M>,
    message: impl Fn(oneshot::Sender<()>) -> M,
) -> Result<(), ToolError> {
    let deadline = Instant::now() + CLOSING;
    loop {
        match address.ask(CLOSING, &message).await {
            Ok(()) => return Ok(()),
            Err(AskError::Unavailable(_)) if address.probe().gave_up() => return Ok(()),
            Err(AskError::Unavailable(_) | AskError::Dropped(_)) if Instant::now() < deadline => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
