//! Validation of a guest's answers about tasks. Pure.
//!
//! A malformed page is refused as a whole. In a well-formed one, results of tasks that were never
//! sent are dropped and counted, and oversized fields are cut: a guest that lies about one task
//! does not keep the results of the others back.

use std::collections::{BTreeMap, BTreeSet};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::{
    TaskBoard, TaskCapture, TaskOutcome, TaskOutput, TaskPage, TaskResult, TaskSpan, TaskState,
    TaskTaken, TaskText,
};
use hivekeep_protocol as wire;
use hivekeep_protocol::{Exit, limits};

use crate::{capped_text, codes, guest_code};

fn misbehaves(what: impl std::fmt::Display) -> ToolError {
    ToolError::new(
        Layer::Link,
        codes::GUEST_MISBEHAVES,
        format!("the guest's answer on tasks: {what}"),
    )
    .next("destroy the workspace, or restore a snapshot of it from before")
}

pub(super) fn state(state: wire::GuestTaskState) -> TaskState {
    match state {
        wire::GuestTaskState::Queued => TaskState::Queued,
        wire::GuestTaskState::Running => TaskState::Running,
        wire::GuestTaskState::Done => TaskState::Done,
        wire::GuestTaskState::Acknowledged => TaskState::Acknowledged,
    }
}

/// Validates the answer to the put of a task.
pub(super) fn taken(
    task_id: &str,
    taken: wire::TaskPutReply,
    folder: &str,
) -> Result<TaskTaken, ToolError> {
    let result = taken.result.map(|told| {
        if told.task_id != task_id || !is_id(&told.message_id) {
            return Err(misbehaves("a result of another task"));
        }
        Ok(result(*told, folder).0)
    });
    let (result, state) = (result.transpose()?, state(taken.state));
    if result.is_some() != matches!(state, TaskState::Done | TaskState::Acknowledged) {
        return Err(misbehaves("a result where there is none, or none where there is one"));
    }
    Ok(TaskTaken { state, repeat: taken.repeat, differs: taken.differs, result })
}

/// Validates results that were asked for.
pub(super) fn page(
    asked: &wire::TaskResults,
    told: wire::TaskResultsReply,
    sent: &BTreeMap<String, String>,
    folder: &str,
) -> Result<TaskPage, ToolError> {
    if told.results.len() > asked.limit as usize {
        return Err(misbehaves(format_args!("{} results", told.results.len())));
    }
    if told.more && told.results.is_empty() {
        return Err(misbehaves("more results beyond none"));
    }
    let most = u32::try_from(limits::MAX_TASKS).unwrap_or(u32::MAX);
    let mut page = TaskPage {
        results: Vec::with_capacity(told.results.len()),
        next_after: asked.after,
        more: told.more,
        queued: told.queued.min(most),
        running: told.running.min(most),
        told: false,
        dropped: 0,
        refused_paths: 0,
    };
    let mut seen = BTreeSet::new();
    for told in told.results {
        if told.number <= page.next_after {
            return Err(misbehaves("numbers that do not ascend"));
        }
        page.next_after = told.number;
        let was_sent = sent.get(&told.task_id) == Some(&told.message_id);
        if !was_sent || !seen.insert(told.task_id.clone()) {
            page.dropped += 1;
            continue;
        }
        let (result, refused) = result(told, folder);
        page.refused_paths += refused;
        page.results.push(result);
    }
    Ok(page)
}

/// Validates the overview of tasks without a result.
pub(super) fn board(told: wire::TaskListReply) -> Result<TaskBoard, ToolError> {
    let wire::TaskListReply { queued, running, results } = told;
    if queued.len().saturating_add(running.len()) > limits::MAX_TASKS
        || results as usize > limits::MAX_TASKS
    {
        return Err(misbehaves("more tasks than there can be"));
    }
    if !queued.iter().chain(&running).all(|id| !id.is_empty() && is_id(id)) {
        return Err(misbehaves("an id that is none"));
    }
    Ok(TaskBoard { queued, running, results })
}

/// Validates a part of a task's output.
pub(super) fn reading(
    asked: &wire::TaskRead,
    told: wire::TaskReadReply,
) -> Result<TaskOutput, ToolError> {
    let span = |asked_from: u64, told: wire::Spool| {
        let most = asked.max_bytes.min(limits::MAX_TASK_READ_BYTES) as usize;
        let end = told.from.checked_add(told.bytes.len() as u64);
        if told.bytes.len() > most
            || told.from > asked_from
            || end.is_none_or(|end| end > told.kept_bytes)
            || told.kept_bytes > told.total_bytes
        {
            return Err(misbehaves("a part of an output that is none"));
        }
        let wire::Spool { from, bytes, kept_bytes, total_bytes } = told;
        Ok(TaskSpan { from, bytes, kept_bytes, total_bytes })
    };
    Ok(TaskOutput {
        state: state(told.state),
        stdout: span(asked.stdout_from, told.stdout)?,
        stderr: span(asked.stderr_from, told.stderr)?,
    })
}

/// True if a guest may use this task id.
pub fn is_id(id: &str) -> bool {
    id.len() <= limits::MAX_TASK_ID_BYTES && !id.chars().any(char::is_control)
}

/// Bounds everything in a result, and counts refused paths.
fn result(told: wire::GuestTaskResult, folder: &str) -> (TaskResult, u32) {
    let (stdout, no_stdout) = text(told.stdout, folder);
    let (stderr, no_stderr) = text(told.stderr, folder);
    let workdir = told.workdir.filter(|dir| is_path(dir));
    let result = TaskResult {
        number: told.number,
        task_id: told.task_id,
        message_id: told.message_id,
        outcome: outcome(told.outcome),
        capture: TaskCapture { workdir, stdout, stderr, elapsed_ms: told.elapsed_ms },
    };
    (result, u32::from(no_stdout) + u32::from(no_stderr))
}

fn outcome(told: wire::GuestTaskOutcome) -> TaskOutcome {
    match told {
        wire::GuestTaskOutcome::Ended(Exit::Code(exit_code)) => TaskOutcome::Exited { exit_code },
        wire::GuestTaskOutcome::Ended(Exit::Signal(signal)) => TaskOutcome::Signalled { signal },
        wire::GuestTaskOutcome::TimedOut => TaskOutcome::TimedOut,
        wire::GuestTaskOutcome::Interrupted => TaskOutcome::Interrupted,
        wire::GuestTaskOutcome::Cancelled => TaskOutcome::Cancelled,
        wire::GuestTaskOutcome::NotRun(error) => TaskOutcome::Invalid {
            code: guest_code(error.code).name.to_owned(),
            reason: error.message.chars().take(limits::MAX_TASK_REASON_BYTES).collect(),
        },
    }
}

/// Text of a stream, and whether its file was refused.
fn text(mut told: wire::TaskStreamOutput, folder: &str) -> (TaskText, bool) {
    let total_bytes = told.total_bytes.max(told.head.len() as u64);
    told.head.truncate(limits::TASK_SHOWN_BYTES);
    let shown = capped_text(&told.head, total_bytes);
    let (path, refused) = match told.path {
        Some(path) if is_below(&path, folder) => (Some(path), false),
        other => (None, other.is_some()),
    };
    (TaskText { text: shown.text, truncated: shown.truncated, total_bytes, path }, refused)
}

fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= limits::MAX_PATH_BYTES
        && !path.chars().any(char::is_control)
}

/// True if a path lies lexically in the folder. A symlink on it is the guest's own affair: the
/// guest opens it.
fn is_below(path: &str, folder: &str) -> bool {
    let Some(rest) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    is_path(path) && rest.split('/').all(|word| !matches!(word, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOLDER: &str = limits::TASKS_DIR;

    #[test]
    fn only_what_is_in_the_folder_is_a_path() {
        let in_it = |rest: &str| format!("{FOLDER}{rest}");
        assert!(is_below(&in_it("/runs/t1/stdout"), FOLDER));
        for outside in [
            "/etc/shadow".to_owned(),
            "runs/t1/stdout".to_owned(),
            FOLDER.to_owned(),
            in_it("/"),
            in_it("-of-another/x"),
            in_it("/../../../etc/shadow"),
            in_it("/runs/.."),
            in_it("/runs/./x"),
            in_it("//etc"),
            in_it("/runs/a\nb"),
            in_it("/runs/a\0b"),
            in_it(&"/x".repeat(limits::MAX_PATH_BYTES)),
        ] {
            assert!(!is_below(&outside, FOLDER), "{outside:?}");
        }
    }

    proptest! {
        #[test]
        fn any_output_becomes_bounded_text(
            head in proptest::collection::vec(any::<u8>(), 0..40_000),
            total_bytes in any::<u64>(),
            path in proptest::option::of("\\PC{0,60}"),
        ) {
            let bytes = head.len().max(usize::try_from(total_bytes).unwrap());
            let (text, refused) = text(wire::TaskStreamOutput { head, total_bytes, path: path.clone() }, FOLDER);
            prop_assert!(text.text.len() <= 3 * limits::TASK_SHOWN_BYTES + 100);
            prop_assert_eq!(text.total_bytes, bytes as u64);
            prop_assert_eq!(refused, path.is_some(), "no such path begins with the folder");
        }
    }
}
