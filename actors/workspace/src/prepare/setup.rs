//! `workspace_prepare` in its workspace: boot, setup in the guest, snapshot; all of it or nothing.
//!
//! A preparation is one creation: until the snapshot `golden` is complete the workspace is
//! `creating`, and its record `Created` is not written. A daemon that dies in between therefore
//! undoes it at its next start, like any creation that was cut short.

use std::time::Instant;

use hivekeep_kernel::{CallCx, Layer, Progress, SnapshotId, ToolError, fault_point};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use crate::{
    activity::Activity,
    codes,
    commands::user::other_than_root,
    handle::WorkspaceHandle,
    lifecycle::stop,
    link_state::LinkState,
    machine::{
        boot::{Start, Up, bring_up},
        bring_up::fail_creation,
    },
    messages::{Golden, PrepareMsg, PrepareRequest, PreparedState, Setup, WorkMsg},
    phase::Phase,
    prepare::{
        api::{PrepareStep, StepKind},
        steps,
    },
    records::{Planned, Record},
    snapshot::create,
    snapshots::Making,
    state::Workspace,
};

/// Name of the snapshot that a prepared workspace is forked from.
pub(super) const GOLDEN: &str = "golden";

pub(crate) fn handle(state: &mut Workspace, ask: PrepareMsg) {
    match ask {
        PrepareMsg::Make(request) => begin(state, *request),
        PrepareMsg::Freeze(reply) => drop(reply.send(golden(state))),
        PrepareMsg::Undo(error, reply) => {
            state.status.finished(Activity::Preparing);
            state.set_phase(Phase::Destroying);
            let work = stop::destruction(state, "workspace.prepare_undone");
            let work = async move {
                let error = match work.await {
                    Ok(()) => error,
                    // The daemon's next start tries to undo it again.
                    Err(left) => error.detail("not_undone", left.to_text()),
                };
                let _caller_gone = reply.send(Err(error));
            };
            let _detached = state.ops.spawn(work);
        }
        PrepareMsg::PreparedState(reply) => drop(reply.send(prepared_state(state))),
    }
}

fn prepared_state(state: &Workspace) -> PreparedState {
    let plan = &state.ledger.plan;
    let there = |id: &SnapshotId| state.ledger.snapshots.get(*id).is_some();
    PreparedState {
        phase: state.status.phase,
        owner: state.ledger.owner,
        spec: plan.spec.clone(),
        recipe: plan.recipe.as_deref().cloned(),
        golden: state.ledger.golden.filter(there),
    }
}

/// Plan of the golden snapshot, while the machine runs and nothing else uses it.
fn golden(state: &Workspace) -> Making {
    let memory = state.ledger.plan.recipe.as_ref().is_some_and(|recipe| recipe.include_memory);
    create::making(state, GOLDEN.to_owned(), memory, true)
}

fn begin(state: &mut Workspace, request: PrepareRequest) {
    let PrepareRequest { cx, setup, reply } = request;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let start = Start { planned: true, ..Start::of(&state.ledger) };
    let link_state = state.link.subscribe();
    // Keeps others from destroying, starting or snapshotting the workspace; the call can be cancelled.
    state.status.activity = Activity::Preparing;
    let span = cx.span.clone();
    let work = prepare(workspace, plan, start, link_state, setup, cx, reply);
    let _detached = state.ops.spawn(tracing::Instrument::instrument(work, span));
}

async fn prepare(
    workspace: WorkspaceHandle,
    plan: Planned,
    start: Start,
    link_state: watch::Receiver<LinkState>,
    setup: Setup,
    cx: CallCx,
    reply: oneshot::Sender<Result<Golden, ToolError>>,
) {
    let mut reporter = steps::StepReporter::new(&cx, setup.len() + 2);
    reporter.begin("starting the machine");
    // Steps within a step are not reported: progress must not decrease.
    let quiet = CallCx { progress: Progress::default(), ..cx.clone() };
    let begun = Instant::now();
    let up = match cx.guard(bring_up(&workspace, &plan, start, &quiet)).await {
        Ok(up) => up,
        Err(error) => {
            // Like any failed creation: the logs of a machine that did not boot are kept.
            fail_creation(&workspace, &plan, &error).await;
            let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Preparing).into());
            let _caller_gone = reply.send(Err(error));
            return;
        }
    };
    fault_point!("prepare.after_boot");
    let boot = step(StepKind::Boot, "start the machine", begun);
    match furnish(&workspace, &plan, (up, boot), link_state, &setup, &mut reporter, &quiet).await {
        Ok(golden) => {
            let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Preparing).into());
            workspace.settle(Phase::Running, None);
            fault_point!("prepare.after_created");
            let _caller_gone = reply.send(Ok(golden));
        }
        Err(error) => {
            // The undo ends the actor and this work, so the undo gives the answer.
            let _actor_gone = workspace.actor.send(PrepareMsg::Undo(error, reply).into());
        }
    }
}

fn step(kind: StepKind, what: &str, begun: Instant) -> PrepareStep {
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    PrepareStep { kind, what: what.to_owned(), elapsed_ms }
}

/// Sets up a guest that answers, makes the golden snapshot and records it.
async fn furnish(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    (up, boot): (Up, PrepareStep),
    mut link_state: watch::Receiver<LinkState>,
    setup: &Setup,
    reporter: &mut steps::StepReporter<'_>,
    quiet: &CallCx,
) -> Result<Golden, ToolError> {
    let mut done = vec![boot];
    let network = &*workspace.shared.network;
    let opened = quiet.guard(steps::open(network, workspace.id, setup.allow_internet)).await?;
    let user = match workspace.shared.logs.state(workspace.id) {
        Some(ledger) => other_than_root(&ledger, None)?,
        None => None,
    };
    done.extend(steps::run(&mut link_state, setup, user, reporter).await?);
    fault_point!("prepare.after_setup");
    quiet.guard(steps::close(network, workspace.id, &opened)).await?;
    reporter.begin("making the snapshot `golden`");
    let begun = Instant::now();
    let patience = std::time::Duration::from_secs(10);
    let freeze = |reply| PrepareMsg::Freeze(reply).into();
    let making = quiet.guard(async { Ok(workspace.actor.ask(patience, freeze).await?) }).await?;
    // The caller does not cut this short: a save must not stop halfway.
    let made = create::make(workspace, plan, making, quiet).await?;
    done.push(step(StepKind::Snapshot, "make the snapshot `golden`", begun));
    fault_point!("prepare.before_created");
    let (snapshot, boot_time_ms) = (made.node.id, up.boot_time_ms);
    let records =
        vec![up.record(), Record::Created { boot_time_ms }, Record::Prepared { snapshot }];
    let event = json!({ "name": plan.name, "boot_time_ms": boot_time_ms, "prepared": true });
    workspace.commit(records, Some(("workspace.created", event))).await?;
    let steps::Opened { internet, why: internet_reason, .. } = opened;
    Ok(Golden { snapshot, boot_time_ms, steps: done, internet, internet_reason })
}

/// Error for a workspace that exists under the name, and that `workspace_prepare` did not make or
/// whose snapshot was deleted.
pub(crate) fn not_prepared(name: &str, what: &str) -> ToolError {
    let message = format!("a workspace `{name}` exists, and {what}");
    ToolError::new(Layer::Actor, codes::NOT_PREPARED, message)
        .next("choose another name, or call workspace_destroy first")
}
