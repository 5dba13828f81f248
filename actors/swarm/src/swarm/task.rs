//! Task of a swarm: its fork, its files, its put, its result.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hivekeep_kernel::{Layer, ToolError, WorkspaceId, fault_point};
use hivekeep_ports::{TaskAssignment, TaskResult};
use hivekeep_runtime::{OnBehalfOf, log::LogError};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use tokio::time::Instant;

use super::{
    SwarmSaga,
    fork::Fork,
    state::{ContextFile, Record, SwarmPlan, TaskEnd},
};
use crate::codes;

/// Time limit of making a fork.
const FORKING: Duration = Duration::from_secs(600);
/// Time limit of every other request to a fork: its machine may have to be started again.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two attempts at a removal.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit of a result, beyond the task's own limit.
const GRACE: Duration = Duration::from_secs(300);
/// Time limit of the result of a cancelled task.
const STOPPING: Duration = Duration::from_secs(30);
/// Time limit of an attempt at removing a fork that nobody needs any more.
const REMOVING: Duration = Duration::from_secs(30);
/// Longest that a task on its way to its beginning keeps others from theirs.
const LONGEST_TURN: Duration = Duration::from_secs(10);
/// Longest that a task which waits is kept waiting by a fork that cannot be removed.
const HOLDING: Duration = Duration::from_secs(600);

/// The reason why a task has no result.
enum TaskFault {
    /// The swarm's log cannot record anything.
    Unrecorded(LogError),
    /// This task fails, and no other.
    Task(ToolError),
}

impl From<ToolError> for TaskFault {
    fn from(error: ToolError) -> Self {
        Self::Task(error)
    }
}

#[derive(Deserialize)]
struct Made {
    workspace_id: WorkspaceId,
}

impl SwarmSaga {
    /// Runs a task to its end.
    pub(super) async fn task(&self, task: usize) -> Result<(), LogError> {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let end = match self.outcome(task).await {
            Ok(result) => TaskEnd::Ran(Box::new(result)),
            Err(TaskFault::Task(_)) if self.is_cancelled() => {
                TaskEnd::Failed(Box::new(self.halted(task).await))
            }
            Err(TaskFault::Task(error)) => TaskEnd::Failed(Box::new(error)),
            Err(TaskFault::Unrecorded(error)) => return Err(error),
        };
        let success = end.success();
        self.handle.record(Record::TaskEnded { task, end }).await?;
        fault_point!("swarm.after_result");
        let state = self.state();
        let (plan, worker) = (&state.plan, state.tasks[task].worker);
        self.tell(
            "swarm.task_ended",
            json!({ "task": plan.tasks[task].name, "workspace_id": worker, "success": success }),
        );
        if let (true, Some(worker)) = (plan.cleanup && !(success && plan.merge.is_some()), worker) {
            self.make_room(plan, task, worker).await;
        }
        Ok(())
    }

    /// Removes the fork of a task that is over: its memory is better used by the tasks that wait.
    /// While one does, its turn comes when this has succeeded, for there is no room beside it.
    /// A removal that fails when no task waits is tried again at the end.
    async fn make_room(&self, plan: &SwarmPlan, task: usize, worker: WorkspaceId) {
        let until = Instant::now() + HOLDING;
        loop {
            let caller =
                OnBehalfOf { reserved: self.room(), ..OnBehalfOf::own(plan.owner, REMOVING) };
            let removed = self.shared.tools.remove(self.id, &caller, &worker.to_string()).await;
            let Err(error) = removed else {
                return self.handle.update(|live| {
                    live.removed.insert(task);
                });
            };
            let awaited = self.waiting.load(Ordering::Relaxed) > 0 && !self.is_cancelled();
            if !awaited || Instant::now() >= until || error.is(codes::NOT_OWNER) {
                return;
            }
            tracing::warn!(%worker, %error, "a fork is still there, and a task waits for its room");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.handle.cancelled().cancelled() => {}
            }
        }
    }

    /// The error that a task of a cancelled swarm has instead of a result. Removing its fork ends
    /// it; in a fork that stays, the task is cancelled.
    async fn halted(&self, task: usize) -> ToolError {
        let state = self.state();
        let Some(worker) = state.tasks[task].worker.filter(|_| !state.plan.cleanup) else {
            return ToolError::cancelled();
        };
        match self.halt(&Fork::of(self, state.plan.owner, worker)).await {
            Ok(()) => ToolError::cancelled(),
            Err(error) => {
                let message = format!("its guest did not say that it stopped: {}", error.to_text());
                ToolError::new(Layer::Guest, codes::MAY_STILL_RUN, message)
                    .next("look into the fork, or remove it with workspace_destroy")
            }
        }
    }

    async fn outcome(&self, task: usize) -> Result<TaskResult, TaskFault> {
        let turn = self.handle.cancelled().run_until_cancelled(self.starting.acquire()).await;
        let Some(Ok(turn)) = turn else { return Err(ToolError::cancelled().into()) };
        let mut start = std::pin::pin!(self.start(task));
        let in_turn = tokio::time::timeout(LONGEST_TURN, start.as_mut()).await;
        drop(turn);
        let (plan, fork, result) = match in_turn {
            Ok(started) => started?,
            // The start goes on; other tasks do not wait for it any longer.
            Err(_) => start.await?,
        };
        if let Some(result) = result {
            return Ok(result);
        }
        fault_point!("swarm.after_put");
        self.handle.update(|live| {
            live.started.insert(task);
        });
        Ok(self.await_result(&plan, &fork).await?)
    }

    /// Up to the beginning of a task, which may be over by then.
    async fn start(
        &self,
        task: usize,
    ) -> Result<(Arc<SwarmPlan>, Fork<'_>, Option<TaskResult>), TaskFault> {
        let before = self.state().tasks[task].worker.is_some();
        let worker = self.worker(task).await?;
        let plan = self.state().plan.clone();
        let fork = Fork::of(self, plan.owner, worker);
        if self.is_cancelled() {
            return Err(ToolError::cancelled().into());
        }
        // An earlier incarnation may have put it: then it has its files, and perhaps its result.
        if !(before && self.is_put(&plan, &fork).await?) {
            self.furnish(&plan, &fork).await?;
            let result = self.put(&plan, task, &fork).await?;
            return Ok((plan, fork, result));
        }
        Ok((plan, fork, None))
    }

    /// The task's fork: the one that is recorded, one that was made before a crash, or a new one.
    async fn worker(&self, task: usize) -> Result<WorkspaceId, TaskFault> {
        let state = self.state();
        if let Some(worker) = state.tasks[task].worker {
            return Ok(worker);
        }
        let plan = &state.plan;
        let begun = Instant::now();
        let caller = OnBehalfOf { reserved: self.room(), ..self.caller(plan, FORKING) };
        let found = if self.resumed { self.find(task, plan, &caller).await? } else { None };
        if self.is_cancelled() {
            return Err(ToolError::cancelled().into());
        }
        let workspace = match found {
            Some(id) => id,
            None => {
                let (tool, name) = ("workspace_fork", &plan.tasks[task].workspace);
                let mut args = json!({
                    "workspace_id": plan.golden, "snapshot_name": plan.snapshot, "new_name": name,
                });
                if let Some(allow) = plan.allow_internet {
                    args["allow_internet"] = json!(allow);
                }
                let made: Made = self.shared.tools.call(self.id, &caller, tool, args).await?;
                made.workspace_id
            }
        };
        fault_point!("swarm.after_fork");
        let fork_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let record = Record::WorkerMade { task, workspace, fork_ms };
        self.handle.record(record).await.map_err(TaskFault::Unrecorded)?;
        Ok(workspace)
    }

    /// A fork that an earlier daemon made and did not record. Nothing was ever asked of it, so one
    /// that does not run is made anew.
    async fn find(
        &self,
        task: usize,
        plan: &SwarmPlan,
        caller: &OnBehalfOf,
    ) -> Result<Option<WorkspaceId>, ToolError> {
        let name = &plan.tasks[task].workspace;
        loop {
            let rows = self.shared.tools.workspaces(self.id, caller).await?;
            let Some(row) = rows.into_iter().find(|row| row.name == *name) else { return Ok(None) };
            let state = match self.shared.tools.look(self.id, caller, name).await {
                Ok(details) => details.state,
                Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => continue,
                Err(error) => return Err(error),
            };
            match state.as_str() {
                "running" | "parked" => return Ok(Some(row.workspace_id)),
                "creating" | "starting" | "stopping" | "destroying" => {
                    let message = format!("the fork `{name}` stays {state}");
                    let error = ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, message);
                    caller.wait_or(error, true).await?;
                }
                _ => {
                    self.shared.tools.remove(self.id, caller, name).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Asks the guest whether it has the task or its result. The board is read first: a task that
    /// ends between the two reads is found by the second.
    async fn is_put(&self, plan: &SwarmPlan, fork: &Fork<'_>) -> Result<bool, ToolError> {
        let (caller, id) = (self.caller(plan, PATIENCE), self.id.to_string());
        let board = fork.reach(&caller, || self.shared.tasks.board(fork.worker)).await?;
        if board.queued.contains(&id) || board.running.contains(&id) {
            return Ok(true);
        }
        Ok(self.result(fork, &caller).await?.is_some())
    }

    /// Writes what every fork gets.
    async fn furnish(&self, plan: &SwarmPlan, fork: &Fork<'_>) -> Result<(), ToolError> {
        let caller = self.caller(plan, PATIENCE);
        for ContextFile { path, content } in &plan.contexts {
            let args = json!({
                "workspace_id": fork.worker, "path": path, "content": content, "mode": "0600",
            });
            let write = || self.shared.tools.call(self.id, &caller, "file_write", args.clone());
            let _written: IgnoredAny = fork.reach(&caller, write).await?;
        }
        Ok(())
    }

    /// Puts the task; one that is over already has its result.
    async fn put(
        &self,
        plan: &SwarmPlan,
        task: usize,
        fork: &Fork<'_>,
    ) -> Result<Option<TaskResult>, ToolError> {
        let job = &plan.tasks[task];
        let mut env = plan.env.clone();
        env.extend(job.env.clone());
        let assignment = TaskAssignment {
            message_id: self.id.to_string(),
            task_id: self.id.to_string(),
            command: job.command.clone(),
            workdir: job.workdir.clone(),
            env,
            timeout_secs: plan.timeout_secs,
        };
        let caller = self.caller(plan, PATIENCE);
        let put = || self.shared.tasks.put(fork.worker, assignment.clone());
        Ok(fork.reach(&caller, put).await?.result)
    }

    async fn await_result(
        &self,
        plan: &SwarmPlan,
        fork: &Fork<'_>,
    ) -> Result<TaskResult, ToolError> {
        let limit = Duration::from_secs(plan.timeout_secs) + GRACE;
        let mut until = Instant::now() + limit;
        let mut stopping = false;
        loop {
            // Once the task is being stopped, the cancellation does not end the calls.
            let patient = |stopping| match stopping {
                true => OnBehalfOf::own(plan.owner, STOPPING),
                false => self.caller(plan, PATIENCE),
            };
            let ask = || self.shared.tasks.hints(fork.worker);
            let mut hints = fork.reach(&patient(stopping), ask).await?;
            loop {
                if let Some(result) = self.result(fork, &patient(stopping)).await? {
                    return Ok(result);
                }
                tokio::select! {
                    more = hints.next() => if !more { break },
                    () = tokio::time::sleep_until(until) => {
                        return Err(no_result());
                    }
                    () = self.handle.cancelled().cancelled(), if !stopping => {
                        // The removal of the fork ends everything of the task.
                        if plan.cleanup {
                            return Err(ToolError::cancelled());
                        }
                        self.halt(fork).await?;
                        stopping = true;
                        until = Instant::now() + STOPPING;
                    }
                }
            }
        }
    }

    /// Ends a task, if its guest has it. Where no machine runs, nothing of it does.
    async fn halt(&self, fork: &Fork<'_>) -> Result<(), ToolError> {
        let until = OnBehalfOf::own(self.state().plan.owner, STOPPING);
        loop {
            let cancel = self.shared.tasks.cancel(fork.worker, self.id.to_string());
            let error = match cancel.await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(codes::UNKNOWN_TASK) => return Ok(()),
                Err(_) if fork.is_down().await => return Ok(()),
                Err(error) => error,
            };
            until.wait_or(error, true).await?;
        }
    }

    async fn result(
        &self,
        fork: &Fork<'_>,
        caller: &OnBehalfOf,
    ) -> Result<Option<TaskResult>, ToolError> {
        let id = self.id.to_string();
        let sent = BTreeMap::from([(id.clone(), id.clone())]);
        let ask = || self.shared.tasks.results(fork.worker, 0, 20, &sent);
        let page = fork.reach(caller, ask).await?;
        Ok(page.results.into_iter().find(|result| result.task_id == id))
    }

    /// Caller on behalf of the swarm's session; a cancellation is the swarm's.
    fn caller(&self, plan: &SwarmPlan, patience: Duration) -> OnBehalfOf {
        OnBehalfOf {
            cancel: self.handle.cancelled().child_token(),
            ..OnBehalfOf::own(plan.owner, patience)
        }
    }
}

fn no_result() -> ToolError {
    let message = "its guest told no result long after the task's time limit";
    ToolError::new(Layer::Guest, codes::NO_RESULT, message)
}
