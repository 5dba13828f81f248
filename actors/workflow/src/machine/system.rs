//! Command of a state, and keys that a state sets.

use hivekeep_kernel::ToolError;
use hivekeep_manifest::{common::Labels, workflow::UPDATE_BLACKBOARD};
use hivekeep_plan::machine::{CommandOutcome, StateOutput, StateResult, StateStatus};
use hivekeep_ports::TaskOutcome;
use tokio_util::sync::CancellationToken;

use super::visit::{StateVisit, unrendered};
use crate::run::{CommandRequest, LONGEST_SECS, NOT_STARTED, RanTask, RunSaga, quoted, try_name};

/// Most bytes of a stream that are kept.
pub(super) const STREAM_BYTES: usize = 1024 * 1024;
/// Exit status of a command whose time is over, as `timeout` has it.
const TIMED_OUT: i32 = 124;

impl RunSaga {
    pub(super) async fn system(
        &self,
        at: &StateVisit<'_>,
        (command, env, workdir): (&str, Option<&Labels>, Option<&str>),
        cancel: &CancellationToken,
    ) -> Result<StateOutput, ToolError> {
        if command == UPDATE_BLACKBOARD {
            let values = at.scope().update(env.unwrap_or(&Labels::new()));
            let values = values.map_err(|why| unrendered("env", &why))?;
            let result = StateResult::Update { values };
            return Ok(StateOutput { status: StateStatus::Succeeded, error: None, result });
        }
        let script = at.command(command)?;
        let folder = workdir.map(|folder| at.rendered("workdir", folder)).transpose()?;
        let request = CommandRequest {
            name: try_name(at.key),
            script: in_folder(folder.as_deref(), &script),
            env: at.environment(env)?,
            timeout_secs: LONGEST_SECS,
        };
        let ran = self.command(at.run, request, cancel).await?;
        let (outcome, error) = self.command_outcome(&ran, 1, STREAM_BYTES).await?;
        let output = StateOutput::command(outcome);
        Ok(error.map_or(output.clone(), |error| output.failed(error)))
    }

    /// Outcome of a command, and why it did not come to its end.
    ///
    /// # Errors
    /// `cancelled` for one that was stopped; when its output cannot be read.
    pub(super) async fn command_outcome(
        &self,
        ran: &RanTask,
        attempts: u64,
        most: usize,
    ) -> Result<(CommandOutcome, Option<String>), ToolError> {
        let (exit_code, error) = match (&ran.result.outcome, ran.exit_code()) {
            (_, Some(code)) => (code, None),
            (TaskOutcome::Cancelled, _) => return Err(ToolError::cancelled()),
            (TaskOutcome::TimedOut, _) => {
                (TIMED_OUT, Some("its command ran out of its time".into()))
            }
            (TaskOutcome::Invalid { reason, .. }, _) => (NOT_STARTED, Some(reason.clone())),
            (TaskOutcome::Interrupted | TaskOutcome::Lost, _) => {
                let why = "its machine went down while its command ran, and it is not run again";
                (NOT_STARTED, Some(why.to_owned()))
            }
            (other, _) => (NOT_STARTED, Some(format!("its command ended: {}", other.word()))),
        };
        let stream = async |of_stdout| {
            let mut text = self.output_of(ran, of_stdout, most).await?;
            text.truncate(text.floor_char_boundary(most));
            Ok::<_, ToolError>(text)
        };
        let outcome = CommandOutcome {
            exit_code: exit_code.into(),
            stdout: stream(true).await?,
            stderr: stream(false).await?,
            duration_ms: ran.result.capture.elapsed_ms,
            attempts,
        };
        Ok((outcome, error))
    }
}

/// Script that runs in a folder.
pub(super) fn in_folder(folder: Option<&str>, script: &str) -> String {
    match folder {
        Some(folder) => format!("cd {} || exit {NOT_STARTED}\n{script}", quoted(folder)),
        None => script.to_owned(),
    }
}
