//! Claims: handing a machine of the pool over to a session, as the manager and as the machine.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Address, CallCx, Layer, Reply, ToolError, WorkspaceId, fault_point, tools};
use hivekeep_link::{CallTerms, Link};
use hivekeep_ports::NetworkRequest;
use hivekeep_protocol::{Argv, Exit, RunCommand};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    activity::Activity,
    claims::Claims,
    codes,
    handle::WorkspaceHandle,
    lifecycle::stop,
    link_state::LinkState,
    machine::identity,
    manager::{Msg, Workspaces},
    messages::{Claim, PooledMsg, WorkMsg},
    network::reach::{inherited, over},
    phase::{Want, not_claimable, not_the_pools},
    pool::{
        self, made_of,
        messages::{PoolReport, PoolStatus},
    },
    records::{Planned, Record},
    shared::Shared,
    state::Workspace,
};

/// Time for the pool to decide. It never waits for anything itself.
const DECISION: Duration = Duration::from_secs(2);
/// Time for the guest to take its new name; a machine that needs longer is refused.
const GUEST_PATIENCE: Duration = Duration::from_secs(3);
/// Rehearsals of a machine; after these, claims are as quick as on one that has run for a while.
const REHEARSALS: usize = 4;
/// Time for one command of a rehearsal.
const REHEARSAL: Duration = Duration::from_secs(30);
/// Command that does nothing, by the default shell and by the login shell that E2B's clients use,
/// whose profile may fail.
const NOTHING: &str = "[ ! -x /bin/bash ] || /bin/bash -l -c : || :";

tools! { pub FAMILY: "warm pool" for Workspaces, singleton workspaces;
    pool_status: PoolStatus => PoolReport = pool_report {
        title: "Show the warm pool", effect: Read,
    };
}

/// `pool_status`.
///
/// # Errors
/// None: its work brings them.
fn pool_report(
    state: &mut Workspaces,
    _: &CallCx,
    _: PoolStatus,
) -> Result<Reply<PoolReport>, ToolError> {
    let pool = state.pool.clone();
    Ok(Reply::later(async move { Ok(pool.ask(DECISION, pool::Msg::Report).await?) }))
}

/// Takes a machine that is exactly what the plan asks for; its id. Otherwise the claims come back
/// and the workspace is made in the ordinary way: whatever is wrong with a machine of the pool, the
/// caller does not hear of it.
///
/// # Errors
/// When the machine's actor ended over it, so that it is not known whether it was given away.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    claims: Claims,
) -> Result<Result<WorkspaceId, Claims>, ToolError> {
    if !claims.plan().volumes.is_empty() {
        // A machine that runs mounts no more.
        return Ok(Err(claims));
    }
    let spec = claims.plan().spec.clone();
    let options = &shared.options;
    if !options.pool.classes.iter().any(|class| class.spec(options) == spec) {
        return Ok(Err(claims));
    }
    let Ok(made_of) = made_of(shared, &spec).await else { return Ok(Err(claims)) };
    let asked = spec.clone();
    let take = |taken| Msg::Pool(pool::Msg::Take { spec: asked, made_of, taken });
    let Ok(Some((id, address))) = manager.ask(DECISION, take).await else { return Ok(Err(claims)) };
    fault_point!("pool.after_taken");
    let (reply, answer) = oneshot::channel();
    address.send(PooledMsg::Claim(Box::new(Claim { claims, reply })).into())?;
    // The actor answers on every path and sets the guest a limit.
    let lost = |_| {
        ToolError::internal("the actor of a machine of the pool ended while it was given away")
            .next("workspace_list shows whether it was")
    };
    let (claims, error) = match answer.await.map_err(lost)? {
        Ok(()) => return Ok(Ok(id)),
        Err(refused) => *refused,
    };
    let reason = error.to_text();
    let _pool_gone = manager.send(Msg::Pool(pool::Msg::Spoilt { spec, id, reason }));
    Ok(Err(claims))
}

pub(crate) fn handle(state: &mut Workspace, ask: PooledMsg) {
    match ask {
        PooledMsg::Claim(wanted) => claim(state, *wanted),
        PooledMsg::Rehearse(done) => rehearse(state, done),
        PooledMsg::Discard(done) => discard(state, done),
    }
}

fn claim(state: &mut Workspace, wanted: Claim) {
    let Claim { claims, reply } = wanted;
    let link = match claimable(state) {
        Ok(link) => link,
        Err(error) => return drop(reply.send(Err(Box::new((claims, error))))),
    };
    state.status.activity = Activity::Claiming;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    // Runs to its end whether or not the caller waits: the machine has an owner then.
    let _detached = state.ops.spawn(async move {
        let outcome = hand_over(&workspace, &plan, &link, claims).await;
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Claiming).into());
        let _caller_gone = reply.send(outcome);
    });
}

fn claimable(state: &Workspace) -> Result<Link, ToolError> {
    if state.ledger.plan.pool.is_none() {
        return Err(not_claimable("it is somebody's already"));
    }
    state.on(Want::Claim)?;
    match state.link.now() {
        LinkState::Up(link) => Ok(link),
        other => Err(not_claimable(format!("its link is {}", other.word()))),
    }
}

/// Does what a claim and a first command will do. What a guest does for the first time is
/// slow: pages of a copied memory are taken over, and under emulation all code is translated.
fn rehearse(state: &Workspace, done: oneshot::Sender<Result<(), ToolError>>) {
    let link = match claimable(state) {
        Ok(link) => link,
        Err(error) => return drop(done.send(Err(error))),
    };
    let plan = state.ledger.plan.clone();
    let _detached = state.ops.spawn(async move {
        let rehearsed = async {
            for _ in 0..REHEARSALS {
                identity::configure(&link, &plan, false).await?;
                command(&link).await?;
            }
            Ok(())
        };
        let _asker_gone = done.send(rehearsed.await);
    });
}

/// Removes a machine of the pool, unless it was claimed by now.
fn discard(state: &mut Workspace, done: oneshot::Sender<Result<(), ToolError>>) {
    let next = match state.ledger.plan.pool {
        Some(_) => state.on(Want::Discard),
        None => Err(not_the_pools()),
    };
    let next = match next {
        Ok(next) => next,
        Err(error) => return drop(done.send(Err(error))),
    };
    state.set_phase(next);
    let work = stop::destruction(state, "pool.discarded");
    let _detached = state.ops.spawn(async move { drop(done.send(work.await)) });
}

/// Runs a command that does nothing.
async fn command(link: &Link) -> Result<(), ToolError> {
    let request = RunCommand {
        argv: Argv::Shell(NOTHING.to_owned()),
        env: Vec::new(),
        workdir: None,
        timeout_ms: as_ms(REHEARSAL),
        max_output_bytes: 1024,
    };
    let output = link.exec(request, CallTerms::at_most(REHEARSAL), |_, _| {}).await;
    let done = output.map_err(hivekeep_link::link_error)?.done;
    match done.exit {
        Exit::Code(0) => Ok(()),
        exit => Err(ToolError::new(
            Layer::Guest,
            codes::GUEST_MISBEHAVES,
            format!("a command that does nothing ended with {exit:?}"),
        )),
    }
}

/// Hands a machine over in one round to the guest and one commit. Guest and network come first: a
/// machine that they refuse gets no owner.
async fn hand_over(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    link: &Link,
    mut claims: Claims,
) -> Result<(), Box<(Claims, ToolError)>> {
    let wanted = claims.plan().clone();
    let named = Planned { name: wanted.name.clone(), ..plan.clone() };
    let configured = async {
        let configured = identity::configure(link, &named, false);
        let late = |_| ToolError::deadline(Layer::Guest, as_ms(GUEST_PATIENCE));
        tokio::time::timeout(GUEST_PATIENCE, configured).await.map_err(late)?
    };
    if let Err(error) = tokio::try_join!(configured, apply_policy(workspace, plan, &wanted.network))
    {
        return Err(Box::new((claims, error)));
    }
    fault_point!("claim.after_guest");
    let (directory, name) = (&workspace.shared.directory, &wanted.name);
    directory.hand_over(name, wanted.id, workspace.id);
    // Kept before the commit: a machine that may have an owner counts as owned.
    claims.keep();
    let record = Record::Claimed {
        owner: wanted.owner,
        user: wanted.user,
        name: name.clone(),
        at: wanted.at,
        network: wanted.network,
        labels: wanted.labels,
        lifetime: wanted.lifetime.map(|it| it.from(Utc::now())),
    };
    let event = ("workspace.created", json!({ "name": name, "from_pool": true }));
    if let Err(error) = workspace.commit(vec![record], Some(event)).await {
        directory.hand_over(name, workspace.id, wanted.id);
        claims.unkeep();
        return Err(Box::new((claims, error)));
    }
    fault_point!("claim.after_claimed");
    workspace.publish("pool.claimed", json!({ "name": name, "by": wanted.owner }));
    Ok(())
}

/// Sets the network policy that the claimer asks for. A pool machine has the policy of a creation
/// without a request.
async fn apply_policy(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    wanted: &NetworkRequest,
) -> Result<(), ToolError> {
    let network = &workspace.shared.network;
    if !workspace.shared.has_network(plan.spec.isolation).await? {
        return Ok(());
    }
    if network.view(workspace.id).is_none() {
        return Err(ToolError::internal("a machine of the pool without a place in the network"));
    }
    let has = inherited(&workspace.shared, workspace.id);
    if over(wanted.clone(), has.clone()) == has {
        return Ok(());
    }
    network.set_policy(workspace.id, wanted.clone()).await.map(drop)
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
