//! Tasks in the tool's words.

use std::sync::Arc;

use crate::{
    desk::ledger::{Kept, Outcome, Stand},
    mailbox::book::Lent,
    tools::team::{AssignedTask, TaskReport},
};

/// Instead of an exit status where there is none.
const NO_STATUS: i32 = -1;
/// What a signal adds to its number, as in `exec`.
const SIGNALLED: i32 = 128;

/// A result as it is received.
pub(super) fn lent(lent: &Lent<Arc<Kept>>) -> TaskReport {
    TaskReport { redelivered: Some(lent.again), ..report(&lent.message) }
}

/// What became of a task.
fn report(kept: &Kept) -> TaskReport {
    let (exit_code, signal, code, reason) = match &kept.outcome {
        Outcome::Exited { exit_code } => (*exit_code, None, None, None),
        Outcome::Signalled { signal } => {
            (SIGNALLED.saturating_add(*signal), Some(*signal), None, None)
        }
        Outcome::Invalid { code, reason } => {
            (NO_STATUS, None, Some(code.clone()), Some(reason.clone()))
        }
        Outcome::Lost => {
            let reason = "its workspace is gone; whether it ran is not known";
            (NO_STATUS, None, Some("workspace_gone".to_owned()), Some(reason.to_owned()))
        }
        Outcome::TimedOut | Outcome::Interrupted | Outcome::Cancelled => {
            (NO_STATUS, None, None, None)
        }
    };
    TaskReport {
        task_id: kept.task_id.clone(),
        success: kept.outcome == Outcome::Exited { exit_code: 0 },
        exit_code,
        stdout: kept.stdout.text.clone(),
        stderr: kept.stderr.text.clone(),
        elapsed_secs: kept.elapsed_ms / 1_000,
        source_message_id: kept.message,
        outcome: kept.outcome.word().to_owned(),
        signal,
        code,
        reason,
        workdir: kept.workdir.clone(),
        elapsed_ms: kept.elapsed_ms,
        stdout_bytes: kept.stdout.total_bytes,
        stderr_bytes: kept.stderr.total_bytes,
        truncated: kept.stdout.truncated || kept.stderr.truncated,
        stdout_path: kept.stdout.path.clone(),
        stderr_path: kept.stderr.path.clone(),
        redelivered: None,
    }
}

/// Where a task stands with a member it was assigned to. The result is told if it was assigned to
/// that one alone: those of many would not fit an answer.
pub(super) fn assigned(member: &str, stand: &Stand, alone: bool) -> AssignedTask {
    let (state, kept) = match stand {
        Stand::New => ("queued", None),
        Stand::Pending => ("pending", None),
        Stand::Done(kept, false) => ("done", Some(kept)),
        Stand::Done(kept, true) => ("received", Some(kept)),
    };
    AssignedTask {
        to: member.to_owned(),
        state: state.to_owned(),
        repeat: *stand != Stand::New,
        result: kept.filter(|_| alone).map(|kept| report(kept)),
    }
}
