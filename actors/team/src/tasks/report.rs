//! Tasks as the tool reports them.

use hivekeep_kernel::ports::TaskOutcome;

use super::ledger::{Stand, StoredResult};
use crate::api::{AssignedTask, TaskReport};

/// Instead of an exit status where there is none.
const NO_STATUS: i32 = -1;
/// Added to a signal's number, as in `exec`.
const SIGNALLED: i32 = 128;

/// A result of a task.
pub(crate) fn report(stored: &StoredResult) -> TaskReport {
    let capture = &stored.capture;
    let (exit_code, signal, code, reason) = match &stored.outcome {
        TaskOutcome::Exited { exit_code } => (*exit_code, None, None, None),
        TaskOutcome::Signalled { signal } => {
            (SIGNALLED.saturating_add(*signal), Some(*signal), None, None)
        }
        TaskOutcome::Invalid { code, reason } => {
            (NO_STATUS, None, Some(code.clone()), Some(reason.clone()))
        }
        TaskOutcome::Lost => {
            let reason = "its workspace is gone; whether it ran is not known";
            (NO_STATUS, None, Some("workspace_gone".to_owned()), Some(reason.to_owned()))
        }
        TaskOutcome::TimedOut | TaskOutcome::Interrupted | TaskOutcome::Cancelled => {
            (NO_STATUS, None, None, None)
        }
    };
    TaskReport {
        task_id: stored.task_id.clone(),
        success: stored.outcome == TaskOutcome::Exited { exit_code: 0 },
        exit_code,
        stdout: capture.stdout.text.clone(),
        stderr: capture.stderr.text.clone(),
        elapsed_secs: capture.elapsed_ms / 1_000,
        source_message_id: stored.message,
        outcome: stored.outcome.word().to_owned(),
        signal,
        code,
        reason,
        workdir: capture.workdir.clone(),
        elapsed_ms: capture.elapsed_ms,
        stdout_bytes: capture.stdout.total_bytes,
        stderr_bytes: capture.stderr.total_bytes,
        truncated: capture.stdout.truncated || capture.stderr.truncated,
        stdout_path: capture.stdout.path.clone(),
        stderr_path: capture.stderr.path.clone(),
        redelivered: None,
    }
}

/// A task with a member it was assigned to. The result is told if it was assigned to that one
/// alone: those of many would not fit an answer.
pub(crate) fn assigned(member: &str, stand: &Stand, alone: bool) -> AssignedTask {
    let (state, result) = match stand {
        Stand::New => ("queued", None),
        Stand::Pending => ("pending", None),
        Stand::Done(result, false) => ("done", Some(result)),
        Stand::Done(result, true) => ("received", Some(result)),
    };
    AssignedTask {
        to: member.to_owned(),
        state: state.to_owned(),
        repeat: *stand != Stand::New,
        result: result.filter(|_| alone).map(|result| report(result)),
    }
}
