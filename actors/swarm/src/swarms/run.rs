//! `swarm_run`: plans, starts, and waits for the end.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, CallCx, ErrorCode, Fault, Layer, Progress, Reply, SwarmId, ToolError, fault_point,
    ports::Reservation,
};
use hivekeep_runtime::OnBehalfOf;
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Going, Inner, Msg, Swarms, plan::Wish};
use crate::{
    refuse,
    shared::SwarmShared,
    swarm::{
        self,
        records::{self, Plan, Record, State, SwarmState},
    },
    tools::{SwarmResult, SwarmRun},
};

/// For what only decides.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a cancellation to be written down.
const CANCELLING: Duration = Duration::from_secs(60);
/// Before the call's deadline: the answer that says how to go on has to arrive.
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
        let wish = Wish::of(input)?;
        let (shared, keeper, cx) = (self.shared.clone(), self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let id = SwarmId::new();
            let plan = wish.plan(&shared, id, &cx).await?;
            let going = start(&shared, &keeper, &cx, plan).await?;
            // From here on it only waits, and there are no more of its kind than swarms that run.
            cx.slot.give_back();
            follow(id, &cx, &shared.closing, going).await
        }))
    }
}

async fn start(
    shared: &Arc<SwarmShared>,
    keeper: &Address<Msg>,
    cx: &CallCx,
    plan: Plan,
) -> Result<Going, ToolError> {
    let (id, plan) = (plan.id, Box::new(plan));
    let reserved = reserve(shared, cx, &plan).await?;
    if shared.closing.is_cancelled() {
        return Err(ToolError::daemon_stopping());
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let asked = plan.clone();
    keeper.ask(PATIENCE, |reply| Msg(Inner::Admit(asked, reply))).await??;
    let data = json!({
        "owner": plan.owner, "golden": plan.golden, "snapshot": plan.snapshot,
        "tasks": plan.tasks.iter().map(|task| &task.name).collect::<Vec<_>>(),
    });
    let event = NewEvent { kind: "swarm.planned".to_owned(), subject: id.to_string(), data };
    let pieces = records::encode(&Record::Planned(plan.clone()));
    let stream = records::stream(id);
    if let Err(error) = shared.journal.append_and_publish(&stream, pieces, vec![event]).await {
        // It may be durable all the same, or become so: what takes it back is behind it.
        let undone = shared.journal.forget(&stream).await;
        keeper.send(Msg(Inner::Drop(id)))?;
        return Err(unplanned(id, &error, undone.is_ok()));
    }
    fault_point!("swarm.after_plan");
    match keeper.ask(PATIENCE, |reply| Msg(Inner::Hatch(plan, reserved, reply))).await {
        Ok(Ok(going)) => Ok(going),
        Ok(Err(Fault(reason))) => {
            let why =
                format!("its actor could not be started before the daemon's next start ({reason})");
            Err(goes_on(id, codes::ACTOR_UNAVAILABLE, &why))
        }
        // It is in the keeper's mailbox, or was read by a keeper after that one.
        Err(error) => Err(goes_on(id, codes::ACTOR_UNAVAILABLE, &error.to_string())),
    }
}

fn unplanned(id: SwarmId, error: &hivekeep_store::Error, undone: bool) -> ToolError {
    let told = refuse::store(error).detail("swarm_id", id.to_string());
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
async fn reserve(shared: &SwarmShared, cx: &CallCx, plan: &Plan) -> Result<Reservation, ToolError> {
    let each = shared.tools.size(plan.id, &OnBehalfOf::call(cx), &plan.golden.to_string()).await?;
    let stay = plan.merge.is_some() || !plan.cleanup;
    let count = if stay { plan.tasks.len() } else { plan.tasks.len().min(plan.max_parallel) };
    Reservation::take(shared.sessions.clone(), plan.owner, each.times(count as u64)).await
}

/// Waits for the end, tells of the way there, and passes a cancellation on. A stop of the daemon
/// cancels calls too, and is none of the swarm: its call is answered before that.
async fn follow(
    id: SwarmId,
    cx: &CallCx,
    closing: &CancellationToken,
    going: Going,
) -> Result<SwarmResult, ToolError> {
    let Going { address, mut view } = going;
    let soon = cx.deadline - MARGIN.min(cx.remaining() / 10);
    let mut told = Told::default();
    loop {
        let story = view.borrow_and_update().clone();
        match story {
            SwarmState::Over(kept) if kept.result.state == "cancelled" => {
                return Err(ToolError::cancelled().detail("swarm_id", id.to_string()));
            }
            SwarmState::Over(kept) => return Ok(kept.result.clone()),
            SwarmState::Going(state) => told.tell(&state, &cx.progress),
        }
        tokio::select! {
            biased;
            changed = view.changed() => if changed.is_err() {
                return Err(goes_on(id, codes::DEADLINE_EXCEEDED, "the swarm's actor was lost"));
            },
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
                let cancelled = cancel(id, &address, &mut view);
                return match closing.run_until_cancelled(cancelled).await {
                    Some(error) => Err(error),
                    None => Err(ToolError::cancelled().detail("swarm_id", id.to_string())),
                };
            }
        }
    }
}

/// Answers when nothing of it runs any more.
async fn cancel(
    id: SwarmId,
    address: &Address<swarm::Msg>,
    view: &mut watch::Receiver<SwarmState>,
) -> ToolError {
    let asked = address.ask(CANCELLING, swarm::Msg::Cancel).await;
    if let Err(error) = asked.map_err(ToolError::from).and_then(|written| written) {
        tracing::warn!(swarm = %id, %error, "a swarm was not cancelled");
        return error.detail("swarm_id", id.to_string());
    }
    // A view that ends says that the daemon is being stopped: the next one goes on with it.
    let _ = view.wait_for(|story| matches!(story, SwarmState::Over(_))).await;
    ToolError::cancelled().detail("swarm_id", id.to_string())
}

/// Not retryable: it would be another swarm.
fn goes_on(id: SwarmId, code: &ErrorCode, why: &str) -> ToolError {
    let message = format!("{why}; the swarm {id} goes on");
    ToolError::new(Layer::Actor, code, message)
        .next("swarm_status with this swarm_id and wait_secs answers its results; swarm_cancel ends it")
        .detail("swarm_id", id.to_string())
}

/// What has been told of the way.
#[derive(Default)]
struct Told {
    steps: Vec<u8>,
    merging: bool,
}

impl Told {
    fn tell(&mut self, state: &State, progress: &Progress) {
        let total = state.tasks.len();
        self.steps.resize(total, 0);
        for (at, task) in state.tasks.iter().enumerate() {
            let now = match task {
                task if task.end.is_some() => 3,
                task if task.started => 2,
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
