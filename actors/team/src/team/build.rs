//! Making the members: side by side, all of them or none.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use hivekeep_kernel::{CallCx, Fault, ToolError, WorkspaceId, fault_point};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Card, Msg, NotBuilt, Team, commit};
use crate::{
    cards::{self, keep::Told},
    group,
    house::{For, House},
    records::{Record, State},
};

/// For what was told to stop to do so: a machine that is booting is not asked.
const GRACE: Duration = Duration::from_secs(120);

impl Team {
    pub(super) fn build(&mut self, cx: CallCx, reply: oneshot::Sender<Result<Card, NotBuilt>>) {
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

    pub(super) fn built(
        &mut self,
        outcome: Result<Vec<WorkspaceId>, ToolError>,
    ) -> Result<(), Fault> {
        match outcome {
            Ok(workspaces) => {
                self.change(|state| state.workspaces = Some(workspaces));
                self.open_mailboxes()?;
                self.keep_cards();
                let card = self.card();
                if let Some(reply) = self.building.take() {
                    // Whoever asked may have gone; the team stays.
                    drop(reply.send(Ok(card)));
                }
            }
            Err(error) => {
                self.failed = Some(error);
                self.change(|state| state.ending = true);
                self.end(None);
            }
        }
        Ok(())
    }
}

async fn build(
    house: &Arc<House>,
    state: &State,
    cx: &CallCx,
    cards: &Told,
) -> Result<Vec<WorkspaceId>, ToolError> {
    fault_point!("team.after_plan");
    let plan = &state.plan;
    // The first that fails stops the others.
    let stop = cx.cancel.child_token();
    // At the call's own deadline they are told to stop, and are waited for a little longer.
    let deadline = cx.deadline + GRACE;
    let whom = For { cancel: stop.clone(), deadline, ..For::call(cx) };
    let total = plan.members.len();
    let makes = (0..total).map(|number| {
        let (member, whom) = (&plan.members[number], &whom);
        async move {
            if whom.cancel.is_cancelled() {
                return (number, Err(ToolError::cancelled()));
            }
            let made = house.make(plan.id, whom, member, plan.stem.as_ref()).await;
            (number, made)
        }
    });
    let mut makes = stream::iter(makes).buffer_unordered(house.options.max_parallel);
    let mut made = vec![None; total];
    let mut failed: Option<ToolError> = None;
    while let Some((number, outcome)) = makes.next().await {
        match outcome {
            Ok(id) => {
                fault_point!("team.after_member");
                made[number] = Some(id);
                let done = made.iter().flatten().count();
                let message = format!("{done} of {total} members are made");
                cx.progress.report(done as f64, Some(total as f64), message);
            }
            Err(error) => {
                stop.cancel();
                let member = plan.members[number].name.as_str();
                failed.get_or_insert_with(|| error.detail("member", member));
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let workspaces: Vec<_> = made.into_iter().flatten().collect();
    group::join(house, plan.id, &workspaces).await?;
    let ready = State { workspaces: Some(workspaces.clone()), ..state.clone() };
    cards.set(cards::first(house, &whom, &ready).await);
    fault_point!("team.before_ready");
    let event = ("team.created", json!({ "owner": plan.owner, "workspaces": workspaces }));
    let record = Record::Ready { workspaces: workspaces.clone() };
    commit(house.clone(), state, record, Some(event)).await?;
    fault_point!("team.after_ready");
    Ok(workspaces)
}
