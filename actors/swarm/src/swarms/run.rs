//! The tool `swarm_run`: plans, starts, and waits for the end.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, CallCx, ErrorCode, Fault, Layer, Progress, Reply, SwarmId, ToolError, fault_point,
};
use hivekeep_ports::Reservation;
use hivekeep_runtime::{
    OnBehalfOf,
    log::{Decision, Log, LogError},
    saga::SagaHandle,
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Inner, Msg, Swarms, plan::SwarmRequest};
use crate::{
    codes,
    shared::SwarmShared,
    swarm::{
        ObservedSwarm, SwarmSaga, event,
        state::{Record, RunningSwarm, SwarmPlan, SwarmState, stream},
    },
    tools::{SwarmResult, SwarmRun},
};

/// Time limit of questions that only decide.
const PATIENCE: Duration = Duration::from_secs(10);
/// Margin before the call's deadline: the answer that says how to continue has to arrive.
const MARGIN: Duration = Duration::from_secs(1);

impl Swarms {
    pub(crate) fn run(
        &mut self,
        cx: &CallCx,
        input: SwarmRun,
    ) -> Result<Reply<SwarmResult>, ToolError> {
        if self.shared.closing.is_cancelled() {
            return Err(ToolError::daemon_stopping());
        }
        let request = SwarmRequest::of(input)?;
        let (shared, manager, cx) = (self.shared.clone(), self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let id = SwarmId::new();
            let plan = request.plan(&shared, id, &cx).await?;
            let handle = start(&shared, &manager, &cx, plan).await?;
            // The call only waits from here on, and no more calls wait so than swarms run.
            cx.slot.give_back();
            follow(id, &cx, &shared.closing, handle).await
        }))
    }
}

async fn start(
    shared: &Arc<SwarmShared>,
    manager: &Address<Msg>,
    cx: &CallCx,
    plan: SwarmPlan,
) -> Result<SagaHandle<SwarmSaga>, ToolError> {
    let (id, plan) = (plan.id, Box::new(plan));
    let reserved = reserve(shared, cx, &plan).await?;
    if shared.closing.is_cancelled() {
        return Err(ToolError::daemon_stopping());
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let asked = plan.clone();
    manager.ask(PATIENCE, |reply| Msg(Inner::Admit(asked, reply))).await??;
    let data = json!({
        "owner": plan.owner, "golden": plan.golden, "snapshot": plan.snapshot,
        "tasks": plan.tasks.iter().map(|task| &task.name).collect::<Vec<_>>(),
    });
    let planned = event(id, "swarm.planned", data);
    let log = Log::<SwarmState>::of(shared.journal.clone(), stream(id), None);
    let plan =
        |_: Option<&_>| Ok::<_, LogError>(Decision::record(Record::Planned(plan)).event(planned));
    let written = match log.decide(plan) {
        Ok(written) => written.await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        // The record may be durable all the same, or become so: its removal is written behind it.
        let undone = shared.journal.forget(&stream(id)).await;
        manager.send(Msg(Inner::Drop(id)))?;
        return Err(unplanned(id, error, undone.is_ok()));
    }
    fault_point!("swarm.after_plan");
    let handle = SagaHandle::new(log).ok_or_else(|| ToolError::internal("it was just planned"))?;
    match manager.ask(PATIENCE, |reply| Msg(Inner::Start(id, handle, reserved, reply))).await {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(Fault(reason))) => {
            let why =
                format!("its actor could not be started before the daemon's next start ({reason})");
            Err(goes_on(id, codes::ACTOR_UNAVAILABLE, &why))
        }
        // The swarm is in the manager's mailbox, or was read by a manager after that one.
        Err(error) => Err(goes_on(id, codes::ACTOR_UNAVAILABLE, &error.to_string())),
    }
}

fn unplanned(id: SwarmId, error: LogError, undone: bool) -> ToolError {
    let told = ToolError::from(error).detail("swarm_id", id.to_string());
    if undone {
        return told.next("`hivekeep logs` says more; nothing was planned");
    }
    // A second call could be a second swarm.
    ToolError { retryable: false, ..told }.next(
        "whether it was planned is not known: if so the daemon's next start runs it, and \
         swarm_status lists it",
    )
}

/// Room for all forks that are there at a time. Those that stay until a merge, or for good, are
/// all of them; otherwise one goes before the next is made, and leaves its room to it.
async fn reserve(
    shared: &SwarmShared,
    cx: &CallCx,
    plan: &SwarmPlan,
) -> Result<Reservation, ToolError> {
    let each = shared.tools.size(plan.id, &OnBehalfOf::call(cx), &plan.golden.to_string()).await?;
    let stay = plan.merge.is_some() || !plan.cleanup;
    let count = if stay { plan.tasks.len() } else { plan.tasks.len().min(plan.max_parallel) };
    Reservation::take(shared.sessions.clone(), plan.owner, each.times(count as u64)).await
}

/// Waits for the end, reports progress, and passes a cancellation on. A stop of the daemon
/// cancels calls too, and is none of the swarm: its call is answered before that.
async fn follow(
    id: SwarmId,
    cx: &CallCx,
    closing: &CancellationToken,
    handle: SagaHandle<SwarmSaga>,
) -> Result<SwarmResult, ToolError> {
    let mut view = handle.watch();
    let soon = cx.deadline - MARGIN.min(cx.remaining() / 10);
    let mut reporter = ProgressReporter::default();
    loop {
        {
            let view = view.borrow_and_update();
            match &view.state {
                SwarmState::Finished(over) if over.result.state == "cancelled" => {
                    return Err(ToolError::cancelled().detail("swarm_id", id.to_string()));
                }
                SwarmState::Finished(over) => return Ok(over.result.clone()),
                SwarmState::Running(_) if view.given_up.is_some() => {
                    return Err(goes_on(
                        id,
                        codes::DEADLINE_EXCEEDED,
                        "the swarm's actor was lost",
                    ));
                }
                SwarmState::Running(state) => reporter.tell(state, &view.live, &cx.progress),
            }
        }
        tokio::select! {
            biased;
            // The handle keeps it open.
            _ = view.changed() => {}
            () = closing.cancelled() => {
                let why = "the daemon is being stopped, and its next start goes on with the swarm";
                return Err(goes_on(id, codes::DAEMON_STOPPING, why));
            }
            () = tokio::time::sleep_until(soon) => {
                return Err(goes_on(id, codes::DEADLINE_EXCEEDED, "the call's time is over"));
            }
            () = cx.cancel.cancelled() => {
                if Instant::now() >= soon {
                    return Err(goes_on(id, codes::DEADLINE_EXCEEDED, "the call's time is over"));
                }
                return match closing.run_until_cancelled(cancel(id, &handle)).await {
                    Some(error) => Err(error),
                    None => Err(ToolError::cancelled().detail("swarm_id", id.to_string())),
                };
            }
        }
    }
}

/// Answers when nothing of it runs any more.
async fn cancel(id: SwarmId, handle: &SagaHandle<SwarmSaga>) -> ToolError {
    if let Err(error) = handle.cancel().await {
        tracing::warn!(swarm = %id, %error, "a swarm was not cancelled");
        return error.detail("swarm_id", id.to_string());
    }
    let mut view = handle.watch();
    let over = view
        .wait_for(|view| matches!(view.state, SwarmState::Finished(_)) || view.given_up.is_some());
    // The handle keeps it open.
    let _over = over.await;
    ToolError::cancelled().detail("swarm_id", id.to_string())
}

/// Not retryable: it would be another swarm.
fn goes_on(id: SwarmId, code: &ErrorCode, why: &str) -> ToolError {
    let message = format!("{why}; the swarm {id} goes on");
    ToolError::new(Layer::Actor, code, message)
        .next("swarm_status with this swarm_id and wait_secs answers its results; swarm_cancel ends it")
        .detail("swarm_id", id.to_string())
}

/// A reporter of progress: each step of each task once.
#[derive(Default)]
struct ProgressReporter {
    steps: Vec<u8>,
    merging: bool,
}

impl ProgressReporter {
    fn tell(&mut self, state: &RunningSwarm, live: &ObservedSwarm, progress: &Progress) {
        let total = state.tasks.len();
        self.steps.resize(total, 0);
        for (at, task) in state.tasks.iter().enumerate() {
            let now = match task {
                task if task.end.is_some() => 3,
                _ if live.started.contains(&at) => 2,
                task => u8::from(task.worker.is_some()),
            };
            let name = &state.plan.tasks[at].name;
            while self.steps[at] < now {
                self.steps[at] += 1;
                let done: u32 = self.steps.iter().map(|step| u32::from(*step)).sum();
                let ended = self.steps.iter().filter(|step| **step == 3).count();
                let message = match self.steps[at] {
                    1 if task.worker.is_none() => continue,
                    1 => format!("{name}: forked"),
                    2 if task.worker.is_none() => continue,
                    2 => format!("{name}: started"),
                    _ => {
                        let end = task.end.as_ref().is_some_and(|end| end.success());
                        let word = if end { "succeeded" } else { "failed" };
                        format!("{name}: {word}, {ended} of {total} are over")
                    }
                };
                progress.report(done.into(), Some(3.0 * total as f64), message);
            }
        }
        if state.merging && !self.merging {
            self.merging = true;
            progress.report(3.0 * total as f64, Some(3.0 * total as f64), "merging");
        }
    }
}
