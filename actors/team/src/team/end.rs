//! Removing the members and then the team's own records; also what undoes a plan.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use hivekeep_kernel::{ToolError, WorkspaceId, fault_point};
use hivekeep_runtime::log::{Decision, Log};
use serde_json::json;
use tokio::sync::oneshot;

use super::{AnswerSender, Msg, NotBuilt, TeamActor, member::LiveMember};
use crate::{
    api::TeamCards,
    cards::{self, keep::CardWorker},
    inbox,
    records::{self, Record, State},
    refuse,
    shared::{OnBehalfOf, TeamShared},
    tasks::ledger,
};

/// Time limit of removing one member: a machine may be starting, or stopping, and others come
/// first.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause before an actor that is being started is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// A member that was to be removed.
#[derive(Debug, Clone)]
pub(crate) struct RemovedMember {
    pub(crate) number: usize,
    pub(crate) workspace: Option<WorkspaceId>,
    pub(crate) outcome: Result<(), ToolError>,
}

/// The outcome of a removal.
#[derive(Debug, Clone)]
pub(crate) struct RemovalOutcome {
    pub(crate) state: Arc<State>,
    /// Members in the plan's order.
    pub(crate) members: Vec<RemovedMember>,
    /// Any other obstacle.
    pub(crate) error: Option<ToolError>,
    /// Set when cards could not be removed.
    pub(crate) cards: Option<TeamCards>,
}

impl RemovalOutcome {
    /// True when nothing is left.
    pub(crate) fn all(&self) -> bool {
        self.error.is_none() && self.members.iter().all(|member| member.outcome.is_ok())
    }

    /// Outcome of a removal that was not begun: all is left, for this reason.
    pub(crate) fn not_begun(state: Arc<State>, why: &ToolError) -> Self {
        let left = |number| RemovedMember {
            number,
            workspace: state.workspaces.as_ref().map(|ids| ids[number]),
            outcome: Err(why.clone()),
        };
        let members = (0..state.plan.members.len()).map(left).collect();
        Self { members, error: Some(why.clone()), cards: None, state }
    }

    /// Names of the workspaces that are left.
    pub(crate) fn left(&self) -> Vec<String> {
        let left = self.members.iter().filter(|member| member.outcome.is_err());
        left.map(|member| self.state.plan.members[member.number].workspace.clone()).collect()
    }
}

impl TeamActor {
    /// Goes on with a removal, or undoes a plan, once nothing is below the team any more. Those
    /// below go on by themselves.
    pub(super) fn go_on(&self) {
        let (id, manager, team) =
            (self.args.id, self.args.manager.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            loop {
                let (free, childless) = oneshot::channel();
                if manager.when_childless(id, free).is_ok() && childless.await.is_ok() {
                    break;
                }
                // The manager is being started, and this team with it.
                tokio::time::sleep(AGAIN).await;
            }
            let _ = team.send(Msg::GoOn);
        });
    }

    /// Records that the team is to be removed.
    pub(super) fn want_end(&mut self, reply: AnswerSender<()>) {
        if self.unbuilt || self.building.is_some() {
            return drop(reply.send(Err(refuse::creating(&self.state.plan.name))));
        }
        if self.gone.is_some() {
            return drop(reply.send(Ok(())));
        }
        let recorded = self.record_end().map(|recorded| async {
            recorded.await?;
            fault_point!("team.after_destroy_wanted");
            Ok(())
        });
        self.recorded(recorded, reply);
    }

    fn record_end(
        &self,
    ) -> Result<impl Future<Output = Result<(), ToolError>> + Send + use<>, ToolError> {
        let written = self.log.decide::<ToolError>(|state| match state {
            Some(state) if state.ending => Ok(Decision::nothing()),
            _ => Ok(Decision::record(Record::Ending { unmade: self.unmade.clone() })),
        })?;
        Ok(async { Ok(written.await?) })
    }

    /// Begins to remove everything, or joins whoever did. A record comes before the first removal:
    /// a start finds no team without its members.
    pub(super) fn end(&mut self, reply: Option<oneshot::Sender<RemovalOutcome>>) {
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
        let recorded = self.record_end();
        self.ending = Some(reply.into_iter().collect());
        Arc::make_mut(&mut self.state).ending = true;
        self.members.iter_mut().for_each(LiveMember::retire);
        self.show();
        let (shared, log, state) = (self.args.shared.clone(), self.log.clone(), self.state.clone());
        let (keeping, team) = (self.keeping.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let recorded = match recorded {
                Ok(recorded) => recorded.await,
                Err(error) => Err(error),
            };
            let ended = match recorded {
                Ok(()) => end(&shared, &log, state, keeping).await,
                Err(error) => RemovalOutcome::not_begun(state, &error),
            };
            // A team that is gone is followed by one that goes on.
            let _ = team.send(Msg::Done(ended));
        });
    }

    /// Answers those that wait, who then release the team's name; if nobody waits, it is released here.
    pub(super) fn done(&mut self, ended: RemovalOutcome) {
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
            self.args.manager.gone(self.args.id);
        }
    }
}

async fn end(
    shared: &Arc<TeamShared>,
    log: &Log<State>,
    state: Arc<State>,
    keeping: Option<CardWorker>,
) -> RemovalOutcome {
    // State as recorded by now: the team is removed in the name of its present owner.
    let state = log.state().map_or(state, Arc::new);
    let id = state.plan.id;
    // Waits for calls of earlier incarnations, which may still make workspaces.
    shared.tools.quiet(id).await;
    let caller = OnBehalfOf::own(state.owner, PATIENCE);
    let removes = (0..state.plan.members.len()).map(|number| {
        let member = &state.plan.members[number];
        let workspace = state.workspaces.as_ref().map(|ids| ids[number]);
        let key = workspace.map_or(member.workspace.clone(), |id| id.to_string());
        let (caller, unmade) = (&caller, state.unmade.contains(&number));
        async move {
            if unmade {
                return RemovedMember { number, workspace, outcome: Ok(()) };
            }
            let outcome = shared.tools.remove(id, caller, &key).await;
            if outcome.is_ok() {
                fault_point!("team.after_member_destroyed");
            }
            RemovedMember { number, workspace, outcome }
        }
    });
    let removes = stream::iter(removes).buffered(shared.options.max_parallel);
    let members: Vec<_> = removes.collect().await;
    let mut ended = RemovalOutcome { members, error: None, cards: None, state };
    if ended.all() {
        if let Some(keeping) = keeping {
            keeping.stop().await;
        }
        let plan = &ended.state.plan;
        // A team does not stay for its cards: what is left of them goes at a next start.
        ended.cards = cards::remove(shared, plan).await.err().as_ref().and_then(cards::left);
        ended.error = forget(shared, &ended.state).await.err();
    }
    ended
}

/// Removes all records, the team's own last.
async fn forget(shared: &TeamShared, state: &State) -> Result<(), ToolError> {
    fault_point!("team.before_forget");
    let id = state.plan.id;
    for number in 0..state.plan.members.len() {
        shared.inboxes.forget(&inbox::stream(id, number)).await?;
        shared.ledgers.forget(&ledger::stream(id, number)).await?;
    }
    shared.teams.forget(&records::stream(id)).await?;
    let kind = if state.workspaces.is_some() { "team.destroyed" } else { "team.undone" };
    let _lost_is_counted = shared.events.publish_later(state.event(kind, json!({})));
    Ok(())
}
