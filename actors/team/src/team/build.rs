//! Making the members: side by side, all of them or none.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use hivekeep_kernel::{CallCx, Fault, ToolError, WorkspaceId, fault_point};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Card, Msg, NotBuilt, Team, turn::commit};
use crate::{
    cards::{
        self,
        keep::{Begun, Told},
    },
    codes, group,
    records::{Record, State},
    refuse,
    shared::{OnBehalfOf, TeamShared},
};

/// For what was told to stop to do so: a machine that is booting is not asked.
const GRACE: Duration = Duration::from_secs(120);

/// The members, of which it is recorded that they are made.
pub(crate) struct Made {
    workspaces: Vec<WorkspaceId>,
    cards: Begun,
}

/// Why members were not made.
pub(crate) struct Unmade {
    error: ToolError,
    /// Numbers of those of which nothing was.
    nothing: BTreeSet<usize>,
}

impl From<ToolError> for Unmade {
    fn from(error: ToolError) -> Self {
        Self { error, nothing: BTreeSet::new() }
    }
}

impl Team {
    pub(super) fn build(&mut self, cx: CallCx, reply: oneshot::Sender<Result<Card, NotBuilt>>) {
        if !std::mem::take(&mut self.unbuilt) {
            // Its first incarnation ended before it was told to; this one undoes the plan.
            let error = refuse::destroying(&self.state.plan.name);
            return drop(reply.send(Err(NotBuilt { error, gone: false })));
        }
        self.building = Some(reply);
        let (house, state, team) =
            (self.seed.house.clone(), self.state.clone(), self.me.address.clone());
        let cards = self.cards.clone();
        let _detached = self.me.workers.spawn(async move {
            let built = build(&house, &state, &cx, &cards).await;
            // A team that is gone is followed by one that undoes the plan.
            let _ = team.send(Msg::Built(built));
        });
    }

    pub(super) fn built(&mut self, outcome: Result<Made, Unmade>) -> Result<(), Fault> {
        match outcome {
            Ok(Made { workspaces, cards }) => {
                self.change(|state| state.workspaces = Some(workspaces));
                self.open_mailboxes()?;
                self.keep_cards(Some(cards));
                let card = self.card();
                if let Some(reply) = self.building.take() {
                    // Whoever asked may have gone; the team stays.
                    drop(reply.send(Ok(card)));
                }
            }
            Err(Unmade { error, nothing }) => {
                self.failed = Some(error);
                self.change(|state| state.unmade = nothing);
                self.end(None);
            }
        }
        Ok(())
    }
}

async fn build(
    house: &Arc<TeamShared>,
    state: &State,
    cx: &CallCx,
    cards: &Told,
) -> Result<Made, Unmade> {
    fault_point!("team.after_plan");
    let plan = &state.plan;
    // The first that fails stops the others.
    let stop = cx.cancel.child_token();
    // At the call's own deadline they are told to stop, and are waited for a little longer.
    let deadline = cx.deadline + GRACE;
    let whom = OnBehalfOf { cancel: stop.clone(), deadline, ..OnBehalfOf::call(cx) };
    let total = plan.members.len();
    let makes = (0..total).map(|number| {
        let (member, whom) = (&plan.members[number], &whom);
        async move {
            if whom.cancel.is_cancelled() {
                return (number, None);
            }
            let made = house.make(plan.id, whom, member, plan.stem.as_ref()).await;
            (number, Some(made))
        }
    });
    let mut makes = stream::iter(makes).buffer_unordered(house.options.max_parallel);
    let mut made = vec![None; total];
    let (mut failed, mut nothing) = (None, BTreeSet::new());
    while let Some((number, outcome)) = makes.next().await {
        match outcome {
            Some(Ok(id)) => {
                fault_point!("team.after_member");
                made[number] = Some(id);
                let done = made.iter().flatten().count();
                let message = format!("{done} of {total} members are made");
                cx.progress.report(done as f64, Some(total as f64), message);
            }
            Some(Err(error)) => {
                stop.cancel();
                if nothing_was_made(&error) {
                    nothing.insert(number);
                }
                let member = plan.members[number].name.as_str();
                failed.get_or_insert_with(|| error.detail("member", member));
            }
            None => {
                nothing.insert(number);
                failed.get_or_insert_with(ToolError::cancelled);
            }
        }
    }
    if let Some(error) = failed {
        return Err(Unmade { error, nothing });
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::cancelled().into());
    }
    let workspaces: Vec<_> = made.into_iter().flatten().collect();
    group::join(house, plan.id, &workspaces).await?;
    let ready = State { workspaces: Some(workspaces.clone()), ..state.clone() };
    let mut begun = Begun::new(house);
    cards.set(cards::first(house, &whom, &ready, &mut begun.known).await);
    fault_point!("team.before_ready");
    let event = ("team.created", json!({ "owner": plan.owner, "workspaces": workspaces }));
    let record = Record::Ready { workspaces: workspaces.clone() };
    commit(house, state, record, Some(event)).await?;
    fault_point!("team.after_ready");
    Ok(Made { workspaces, cards: begun })
}

/// Whether a refusal says that what has the name, if anything does, is another's. Of any other
/// error it is not known, and what has the name is taken for the member's.
fn nothing_was_made(error: &ToolError) -> bool {
    error.is(codes::NAME_TAKEN)
        || error.details.get("outcome").is_some_and(|outcome| outcome == "nothing_done")
}
