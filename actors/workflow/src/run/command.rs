//! Commands of a run: tasks of its workspace, each run once for its name, whatever dies meanwhile.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::{Layer, ToolError, codes, fault_point, lock};
use hivekeep_ports::{TaskAssignment, TaskOutcome, TaskResult, TaskWindow};
use hivekeep_runtime::guest_task::GuestTask;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    RunFold, RunSaga, RunWorkspace,
    contained::main_place,
    place::{PATIENCE, PAUSE},
};

/// Longest time of a command that names no limit.
pub(crate) const LONGEST_SECS: u64 = 24 * 60 * 60;
/// Time limit of the result of a command that is stopped.
const STOPPING: Duration = Duration::from_secs(60);
/// Bytes of an output that are read at a time.
const WINDOW: u32 = 256 * 1024;

/// Command with its surroundings.
pub(crate) struct CommandRequest {
    /// Name of its task behind the run's id.
    pub(crate) name: String,
    /// Script for `/bin/sh`.
    pub(crate) script: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout_secs: u64,
}

/// Command that has ended, and where it ran.
pub(crate) struct RanTask {
    pub(crate) task_id: String,
    pub(crate) result: TaskResult,
    pub(crate) workspace: RunWorkspace,
}

impl RanTask {
    /// Exit status as a shell has it; none of a command that did not come to its end.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        match self.result.outcome {
            TaskOutcome::Exited { exit_code } => Some(exit_code),
            TaskOutcome::Signalled { signal } => Some(128 + signal),
            _ => None,
        }
    }
}

impl RunSaga {
    /// Runs a command to its end. One that an earlier incarnation began is found by its name. When `cancel` fires it is
    /// ended.
    ///
    /// # Errors
    /// When there is no workspace, or it does not answer for long.
    pub(crate) async fn command(
        &self,
        state: &RunFold,
        request: CommandRequest,
        cancel: &CancellationToken,
    ) -> Result<RanTask, ToolError> {
        let workspace = self.workspace(state, cancel).await?;
        self.command_in(state, (&main_place(state), workspace), request, cancel).await
    }

    /// Runs a command as [`Self::command`] does, in the workspace of another place.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn command_in(
        &self,
        state: &RunFold,
        (place, mut workspace): (&str, RunWorkspace),
        request: CommandRequest,
        cancel: &CancellationToken,
    ) -> Result<RanTask, ToolError> {
        let task_id = format!("{}/{}", state.begun.id, request.name);
        let message = state.begun.id.to_string();
        let assignment = TaskAssignment {
            message_id: message.clone(),
            task_id: task_id.clone(),
            command: request.script,
            workdir: Some(workspace.root.clone()),
            env: request.env,
            timeout_secs: request.timeout_secs.clamp(1, LONGEST_SECS),
        };
        let (mut assigned, mut until, mut stopped) = (false, None, None);
        loop {
            let tasks = &*self.shared.tasks;
            let task = GuestTask {
                tasks,
                workspace: workspace.workspace,
                id: &task_id,
                message: &message,
            };
            if cancel.is_cancelled() && stopped.is_none() {
                if !assigned {
                    return Err(ToolError::cancelled());
                }
                task.stop().await;
                stopped = Some(Instant::now() + STOPPING);
            }
            let looking = async {
                match assigned {
                    false => task.put(assignment.clone()).await,
                    true => task.look().await,
                }
            };
            let looked = match stopped {
                None => match cancel.run_until_cancelled(looking).await {
                    Some(looked) => looked,
                    None => continue,
                },
                Some(end) if Instant::now() < end => looking.await,
                // Nobody knows whether it has ended.
                Some(_) => return Err(ToolError::deadline(Layer::Guest, STOPPING.as_secs())),
            };
            match looked {
                Ok(Some(result)) => {
                    lock(&self.used).insert(task_id.clone(), workspace.workspace);
                    return Ok(RanTask { task_id, result, workspace });
                }
                Ok(None) => {
                    fault_point!("run.assigned");
                    (assigned, until) = (true, None);
                }
                Err(error) if error.is_any(&[codes::INVALID_INPUT, codes::TOO_LARGE]) => {
                    return Err(error);
                }
                Err(error) => {
                    if Instant::now() >= *until.get_or_insert(Instant::now() + PATIENCE) {
                        return Err(error);
                    }
                    tokio::time::sleep(PAUSE).await;
                    workspace = self.ready(state, place, cancel).await?;
                }
            }
        }
    }

    /// Lets the guest forget the commands whose tasks have this name, or one that goes on with `.` or `-` behind it. Legal
    /// once what they came to is on the disk: until then a daemon that died finds their results in the guest. Nobody waits
    /// for it.
    pub(crate) fn forget(&self, state: &RunFold, name: &str) {
        let name = format!("{}/{name}", state.begun.id);
        let is_meant = |id: &String| {
            let rest = id.strip_prefix(&name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        };
        let mut meant = Vec::new();
        lock(&self.used).retain(|id, workspace| {
            let kept = !is_meant(id);
            if !kept {
                meant.push((id.clone(), *workspace));
            }
            kept
        });
        let (shared, message) = (self.shared.clone(), state.begun.id.to_string());
        let _detached = tokio::spawn(async move {
            for (id, workspace) in meant {
                let tasks = &*shared.tasks;
                GuestTask { tasks, workspace, id: &id, message: &message }.forget().await;
            }
        });
    }

    /// Reads the standard output of a command, or its standard error, up to a bound.
    ///
    /// # Errors
    /// When the workspace does not answer.
    pub(crate) async fn output_of(
        &self,
        ran: &RanTask,
        of_stdout: bool,
        most: usize,
    ) -> Result<String, ToolError> {
        let capture = &ran.result.capture;
        let captured = if of_stdout { &capture.stdout } else { &capture.stderr };
        if !captured.truncated {
            return Ok(captured.text.clone());
        }
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let window = TaskWindow {
                task_id: ran.task_id.clone(),
                stdout_from: if of_stdout { from } else { u64::MAX },
                stderr_from: if of_stdout { u64::MAX } else { from },
                max_bytes: WINDOW,
            };
            let output = self.shared.outputs.output(ran.workspace.workspace, window).await?;
            let span = if of_stdout { output.stdout } else { output.stderr };
            let is_end = span.bytes.is_empty();
            bytes.extend(span.bytes);
            if is_end || bytes.len() > most {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
}
