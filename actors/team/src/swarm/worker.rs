//! One task: its fork, its files, its put, its result.

use std::{collections::BTreeMap, time::Duration};

use futures::future::try_join_all;
use hivekeep_kernel::{
    Layer, ToolError, WorkspaceId, fault_point,
    ports::{TaskAssignment, TaskResult},
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{
    records::{Context, Plan, Record, TaskEnd},
    saga::{Run, Stuck},
};
use crate::{
    errands::{read, wait_or},
    house::For,
};

/// For making a fork.
const FORKING: Duration = Duration::from_secs(600);
/// For everything else that is asked of a fork at once: its machine may have to be started again.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at something that changes by itself.
const PAUSE: Duration = Duration::from_millis(250);
/// For a result, beyond the task's own limit.
const GRACE: Duration = Duration::from_secs(300);
/// For the result of a task that was told to stop.
const STOPPING: Duration = Duration::from_secs(30);
/// For removing a fork that nobody needs any more, before the rest goes on without waiting.
const REMOVING: Duration = Duration::from_secs(30);

/// Why a task has no result.
enum Trouble {
    /// Nothing can be recorded.
    Stuck(Stuck),
    /// This task fails, and no other.
    Task(ToolError),
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        Self::Task(error)
    }
}

#[derive(Deserialize)]
struct Made {
    workspace_id: WorkspaceId,
}

impl Run {
    /// One task to its end.
    pub(super) async fn task(&self, task: usize) -> Result<(), Stuck> {
        let end = match self.outcome(task).await {
            Ok(result) => TaskEnd::Ran(Box::new(result)),
            Err(Trouble::Task(_)) if self.stop.is_cancelled() => {
                TaskEnd::Failed(Box::new(ToolError::cancelled()))
            }
            Err(Trouble::Task(error)) => TaskEnd::Failed(Box::new(error)),
            Err(Trouble::Stuck(stuck)) => return Err(stuck),
        };
        let success = end.success();
        self.note(Record::TaskEnded { task, end }).await?;
        fault_point!("swarm.after_result");
        let state = self.state();
        let (plan, worker) = (&state.plan, state.tasks[task].worker);
        self.tell(
            "swarm.task_ended",
            json!({ "task": plan.tasks[task].name, "workspace_id": worker, "success": success }),
        );
        // Its memory is better used by the tasks that wait. What goes wrong is tried again at the
        // end.
        if let (true, Some(worker)) = (plan.cleanup && !(success && plan.merge.is_some()), worker) {
            let whom = For::own(plan.owner, REMOVING);
            if self.house.remove(self.id, &whom, &worker.to_string()).await.is_ok() {
                self.notice(task, |task| task.gone = true);
            }
        }
        Ok(())
    }

    async fn outcome(&self, task: usize) -> Result<TaskResult, Trouble> {
        let worker = self.worker(task).await?;
        let plan = self.state().plan.clone();
        if self.stop.is_cancelled() {
            self.halt(&plan, worker).await;
            return Err(ToolError::cancelled().into());
        }
        self.furnish(&plan, worker).await?;
        if let Some(result) = self.put(&plan, task, worker).await? {
            return Ok(result);
        }
        fault_point!("swarm.after_put");
        self.notice(task, |task| task.started = true);
        Ok(self.await_result(&plan, worker).await?)
    }

    /// The task's fork: the one that is recorded, one that was made before a crash, or a new one.
    async fn worker(&self, task: usize) -> Result<WorkspaceId, Trouble> {
        let state = self.state();
        if let Some(worker) = state.tasks[task].worker {
            return Ok(worker);
        }
        let plan = &state.plan;
        let begun = Instant::now();
        let whom = For { reserved: self.reserved.clone(), ..self.whom(plan, FORKING) };
        let found = if self.resumed { self.find(task, plan, &whom).await? } else { None };
        if self.stop.is_cancelled() {
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
                let made: Made = read(tool, self.house.insist(self.id, &whom, tool, args).await?)?;
                made.workspace_id
            }
        };
        fault_point!("swarm.after_fork");
        let fork_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let record = Record::WorkerMade { task, workspace, fork_ms };
        self.note(record).await.map_err(Trouble::Stuck)?;
        Ok(workspace)
    }

    /// A fork that an earlier daemon made and did not record. Nothing was ever asked of it, so one
    /// that does not run is made anew.
    async fn find(
        &self,
        task: usize,
        plan: &Plan,
        whom: &For,
    ) -> Result<Option<WorkspaceId>, ToolError> {
        let name = &plan.tasks[task].workspace;
        loop {
            let rows = self.house.workspaces(self.id, whom).await?;
            let Some(row) = rows.into_iter().find(|row| row.name == *name) else { return Ok(None) };
            let state = match self.house.look(self.id, whom, name).await {
                Ok(details) => details.state,
                Err(error) if error.code == "workspace_not_found" => continue,
                Err(error) => return Err(error),
            };
            match state.as_str() {
                "running" => return Ok(Some(row.workspace_id)),
                "creating" | "starting" | "stopping" | "destroying" => {
                    let message = format!("the fork `{name}` stays {state}");
                    let error = ToolError::new(Layer::Actor, "workspace_state", message);
                    wait_or(whom, error, true).await?;
                }
                _ => {
                    self.house.remove(self.id, whom, name).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Writes what every fork gets.
    async fn furnish(&self, plan: &Plan, worker: WorkspaceId) -> Result<(), ToolError> {
        let whom = self.whom(plan, PATIENCE);
        let writes = plan.contexts.iter().map(async |Context { path, content }| {
            let args = json!({
                "workspace_id": worker, "path": path, "content": content, "mode": "0600",
            });
            let write = || self.house.insist(self.id, &whom, "file_write", args.clone());
            self.reach(plan, worker, &whom, write).await
        });
        try_join_all(writes).await.map(drop)
    }

    /// Puts the task; one that is over already has its result.
    async fn put(
        &self,
        plan: &Plan,
        task: usize,
        worker: WorkspaceId,
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
        let whom = self.whom(plan, PATIENCE);
        let put = || self.house.tasks.put(worker, assignment.clone());
        Ok(self.reach(plan, worker, &whom, put).await?.result)
    }

    async fn await_result(
        &self,
        plan: &Plan,
        worker: WorkspaceId,
    ) -> Result<TaskResult, ToolError> {
        let limit = Duration::from_secs(plan.timeout_secs) + GRACE;
        let mut until = Instant::now() + limit;
        let mut stopping = false;
        loop {
            // Once it was told to stop, that is not what stops the asking.
            let patient = |stopping| match stopping {
                true => For::own(plan.owner, STOPPING),
                false => self.whom(plan, PATIENCE),
            };
            let ask = || self.house.tasks.hints(worker);
            let mut hints = self.reach(plan, worker, &patient(stopping), ask).await?;
            loop {
                let whom = patient(stopping);
                if let Some(result) = self.result(plan, worker, &whom).await? {
                    return Ok(result);
                }
                tokio::select! {
                    more = hints.next() => if !more { break },
                    () = tokio::time::sleep_until(until) => {
                        return Err(no_result(stopping));
                    }
                    () = self.stop.cancelled(), if !stopping => {
                        // With the fork everything of the task goes.
                        if plan.cleanup {
                            return Err(ToolError::cancelled());
                        }
                        self.halt(plan, worker).await;
                        stopping = true;
                        until = Instant::now() + STOPPING;
                    }
                }
            }
        }
    }

    /// Ends a task, if its guest has it, where the fork stays.
    async fn halt(&self, plan: &Plan, worker: WorkspaceId) {
        if plan.cleanup {
            return;
        }
        let cancel = self.house.tasks.cancel(worker, self.id.to_string());
        match cancel.await {
            Err(error) if error.code != "unknown_task" => {
                tracing::warn!(%worker, %error, "a task could not be cancelled");
            }
            Ok(_) | Err(_) => {}
        }
    }

    async fn result(
        &self,
        plan: &Plan,
        worker: WorkspaceId,
        whom: &For,
    ) -> Result<Option<TaskResult>, ToolError> {
        let id = self.id.to_string();
        let sent = BTreeMap::from([(id.clone(), id.clone())]);
        let ask = || self.house.tasks.results(worker, 0, 20, &sent);
        let page = self.reach(plan, worker, whom, ask).await?;
        Ok(page.results.into_iter().find(|result| result.task_id == id))
    }

    /// Asks a fork until it answers. A machine that went down is started again, once: it tells
    /// what became of its task.
    async fn reach<T, F: Future<Output = Result<T, ToolError>>>(
        &self,
        plan: &Plan,
        worker: WorkspaceId,
        whom: &For,
        ask: impl Fn() -> F,
    ) -> Result<T, ToolError> {
        let mut revived = false;
        loop {
            let error = match ask().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let passing = match error.code.as_ref() {
                "workspace_state" => self.revive(plan, worker, &mut revived).await?,
                // Only of a list it is believed that a workspace is not there.
                "workspace_not_found" => {
                    let rows = self.house.workspaces(self.id, whom).await?;
                    rows.iter().any(|row| row.workspace_id == worker)
                }
                "guest_unreachable" | "actor_unavailable" | "busy" => true,
                _ => error.retryable,
            };
            wait_or(whom, error, passing).await?;
        }
    }

    /// Whether it may answer soon.
    async fn revive(
        &self,
        plan: &Plan,
        worker: WorkspaceId,
        revived: &mut bool,
    ) -> Result<bool, ToolError> {
        let (whom, key) = (For::own(plan.owner, PATIENCE), worker.to_string());
        let state = match self.house.look(self.id, &whom, &key).await {
            Ok(details) => details.state,
            Err(error) if error.code == "workspace_not_found" => return Ok(true),
            Err(error) => return Err(error),
        };
        match state.as_str() {
            "stopped" | "crashed" if !*revived => {
                *revived = true;
                tracing::info!(%worker, %state, "the machine of a task is started again");
                let args = json!({ "workspace_id": worker });
                self.house.insist(self.id, &whom, "workspace_start", args).await?;
                Ok(true)
            }
            state => {
                tokio::time::sleep(PAUSE).await;
                Ok(matches!(state, "running" | "creating" | "starting" | "stopping"))
            }
        }
    }

    /// For the swarm's session; what is cancelled is the swarm.
    fn whom(&self, plan: &Plan, patience: Duration) -> For {
        For { cancel: self.stop.child_token(), ..For::own(plan.owner, patience) }
    }
}

fn no_result(stopping: bool) -> ToolError {
    if stopping {
        return ToolError::cancelled();
    }
    let message = "its guest told no result long after the task's time limit";
    ToolError::new(Layer::Guest, "no_result", message)
}
