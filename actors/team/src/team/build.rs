//! Making the members, side by side, all of them or none, and putting them into one network.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use hivekeep_kernel::{CallCx, TeamId, ToolError, WorkspaceId, fault_point};
use hivekeep_ports::{GroupChange, NetworkMode, NetworkRequest};
use hivekeep_runtime::log::{Decision, Log};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::{Msg, NotBuilt, TeamActor, TeamView, member};
use crate::{
    cards::{
        self,
        keep::{CardFeed, CardsStatus},
    },
    codes,
    records::{GoldenSnapshot, MemberPlan, Plan, Record, State},
    refuse,
    shared::{OnBehalfOf, TeamShared},
    status,
};

/// Time that cancelled work may take to stop: a machine that is booting is not asked.
const GRACE: Duration = Duration::from_secs(120);

/// Members that are made, which is recorded.
pub(crate) struct BuiltMembers {
    cards: CardFeed,
}

/// Members that were not made, and why.
pub(crate) struct BuildFailure {
    error: ToolError,
    /// Numbers of those of which nothing was.
    nothing: BTreeSet<usize>,
}

impl From<ToolError> for BuildFailure {
    fn from(error: ToolError) -> Self {
        Self { error, nothing: BTreeSet::new() }
    }
}

impl TeamActor {
    pub(super) fn build(&mut self, cx: CallCx, reply: oneshot::Sender<Result<TeamView, NotBuilt>>) {
        if !std::mem::take(&mut self.unbuilt) {
            // Its first incarnation ended before it was told to; this one undoes the plan.
            let error = refuse::destroying(&self.state.plan.name);
            return drop(reply.send(Err(NotBuilt { error, gone: false })));
        }
        self.building = Some(reply);
        let (shared, log, state) = (self.args.shared.clone(), self.log.clone(), self.state.clone());
        let (cards, team) = (self.cards.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let built = build(&shared, &log, &state, &cx, &cards).await;
            // A team that is gone is followed by one that undoes the plan.
            let _ = team.send(Msg::Built(built));
        });
    }

    pub(super) fn built(&mut self, outcome: Result<BuiltMembers, BuildFailure>) {
        match outcome {
            Ok(BuiltMembers { cards }) => {
                self.refresh();
                let (shared, id) = (&self.args.shared, self.args.id);
                let numbers = 0..self.state.plan.members.len();
                let logs = numbers.map(|number| member::MemberLogs::begin(shared, id, number));
                self.open_members(logs.collect());
                self.keep_cards(Some(cards));
                let view = self.view();
                if let Some(reply) = self.building.take() {
                    // Whoever asked may have gone; the team stays.
                    drop(reply.send(Ok(view)));
                }
            }
            Err(BuildFailure { error, nothing }) => {
                self.failed = Some(error);
                self.unmade = nothing;
                self.end(None);
            }
        }
    }
}

async fn build(
    shared: &Arc<TeamShared>,
    log: &Log<State>,
    state: &State,
    cx: &CallCx,
    cards: &CardsStatus,
) -> Result<BuiltMembers, BuildFailure> {
    fault_point!("team.after_plan");
    let plan = &state.plan;
    // The first that fails stops the others.
    let stop = cx.cancel.child_token();
    // At the call's own deadline they are told to stop, and are waited for a little longer.
    let deadline = cx.deadline + GRACE;
    let caller = OnBehalfOf { cancel: stop.clone(), deadline, ..OnBehalfOf::call(cx) };
    let total = plan.members.len();
    let makes = (0..total).map(|number| {
        let (member, caller) = (&plan.members[number], &caller);
        async move {
            if caller.cancel.is_cancelled() {
                return (number, None);
            }
            let made = make(shared, plan, caller, member).await;
            (number, Some(made))
        }
    });
    let mut makes = stream::iter(makes).buffer_unordered(shared.options.max_parallel);
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
        return Err(BuildFailure { error, nothing });
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::cancelled().into());
    }
    let workspaces: Vec<_> = made.into_iter().flatten().collect();
    join_group(shared, plan.id, &workspaces).await?;
    let ready = State { workspaces: Some(workspaces.clone()), ..state.clone() };
    let mut begun = CardFeed::new(shared);
    cards.set(cards::first(shared, &caller, &ready, &mut begun.known).await);
    fault_point!("team.before_ready");
    let data = json!({ "owner": plan.owner, "workspaces": workspaces });
    let ready = Decision::record(Record::Ready { workspaces });
    let ready = ready.event(state.event("team.created", data));
    let recorded = log.decide::<ToolError>(|_| Ok(ready))?;
    recorded.await.map_err(ToolError::from)?;
    fault_point!("team.after_ready");
    Ok(BuiltMembers { cards: begun })
}

/// Makes a member's workspace.
async fn make(
    shared: &TeamShared,
    plan: &Plan,
    caller: &OnBehalfOf,
    member: &MemberPlan,
) -> Result<WorkspaceId, ToolError> {
    #[derive(Deserialize)]
    struct Answer {
        workspace_id: WorkspaceId,
    }
    let name = &member.workspace;
    let (tool, args) = match &plan.source {
        Some(GoldenSnapshot { golden, snapshot }) => (
            "workspace_fork",
            json!({ "workspace_id": golden, "snapshot_name": snapshot, "new_name": name }),
        ),
        None => ("workspace_create", json!({ "name": name })),
    };
    let Answer { workspace_id } = shared.tools.call(plan.id, caller, tool, args).await?;
    Ok(workspace_id)
}

/// Puts the members into their group: in force when this returns. Where machines are not on a
/// bridge, or a member has no place in the network, there is nothing to join; [`status::network`] says
/// so.
///
/// # Errors
/// When a member that has a place cannot be put into the group.
async fn join_group(
    shared: &Arc<TeamShared>,
    team: TeamId,
    members: &[WorkspaceId],
) -> Result<(), ToolError> {
    if shared.network.mode().await? != NetworkMode::Bridge {
        return Ok(());
    }
    let request = NetworkRequest {
        group: Some(GroupChange::Join(status::group(team))),
        // Others are not let in by what a member was made of, or by a default.
        allow_inter_vm: Some(false),
        ..NetworkRequest::default()
    };
    let has_place = |id: &WorkspaceId| shared.network.view(*id).is_some();
    let placed: Vec<_> = members.iter().copied().filter(has_place).collect();
    let joins = placed.into_iter().map(|id| {
        let request = request.clone();
        async move {
            shared.network.set_policy(id, request).await?;
            fault_point!("team.after_join");
            Ok(())
        }
    });
    stream::iter(joins).buffer_unordered(shared.options.max_parallel).try_collect().await
}

/// True when a refusal says that nothing was made in the member's name. After any other error that
/// is not known, and a workspace of the name is taken for the member's.
fn nothing_was_made(error: &ToolError) -> bool {
    error.is(codes::NAME_TAKEN)
        || error.details.get("outcome").is_some_and(|outcome| outcome == "nothing_done")
}
