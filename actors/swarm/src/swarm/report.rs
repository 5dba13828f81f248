//! What a swarm answers of itself. Pure.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    SessionId,
    ports::{TaskOutcome, TaskResult, TaskText},
};

use super::records::{Job, Kept, State, SwarmState, Task, TaskEnd};
use crate::tools::{SwarmMerge, SwarmResult, SwarmRow, SwarmSummary, SwarmTaskResult};

impl SwarmState {
    pub(crate) fn owner(&self) -> SessionId {
        match self {
            Self::Going(state) => state.plan.owner,
            Self::Over(kept) => kept.owner,
        }
    }

    pub(crate) fn result(&self) -> SwarmResult {
        match self {
            Self::Going(state) => state.result(Utc::now()),
            Self::Over(kept) => kept.result.clone(),
        }
    }

    pub(crate) fn row(&self, session: SessionId) -> SwarmRow {
        match self {
            Self::Going(state) => row(&state.result(Utc::now()), self.owner() == session),
            Self::Over(kept) => row(&kept.result, self.owner() == session),
        }
    }
}

fn row(result: &SwarmResult, owned: bool) -> SwarmRow {
    SwarmRow {
        swarm_id: result.swarm_id,
        state: result.state.clone(),
        owned,
        summary: Some(result.summary.clone()),
        started_at: result.started_at,
        ended_at: result.ended_at,
    }
}

impl State {
    fn word(&self) -> &'static str {
        let over = self.tasks.iter().all(|task| task.end.is_some());
        match (&self.left, &self.merged) {
            (Some(_), _) | (None, Some(_)) => "cleaning_up",
            _ if !over => "running",
            _ if self.plan.merge.is_some() && !self.cancelled => "merging",
            _ => "cleaning_up",
        }
    }

    /// How far it is.
    pub(crate) fn result(&self, now: DateTime<Utc>) -> SwarmResult {
        let rows = self.plan.tasks.iter().zip(&self.tasks);
        let mut tasks: Vec<_> =
            rows.map(|(job, task)| told(job, task, self.plan.cleanup)).collect();
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        let ended = self.tasks.iter().filter_map(|task| task.end.as_ref());
        let (over, succeeded) =
            ended.fold((0, 0), |(all, good), end| (all + 1, good + usize::from(end.success())));
        let made = self.tasks.iter().filter(|task| task.worker.is_some()).count();
        let gone = self.tasks.iter().filter(|task| task.gone && task.worker.is_some()).count();
        SwarmResult {
            swarm_id: self.plan.id,
            state: self.word().to_owned(),
            tasks,
            summary: SwarmSummary {
                total_tasks: self.tasks.len(),
                succeeded,
                failed: over - succeeded,
                pending: self.tasks.len() - over,
                total_elapsed_ms: millis(now - self.plan.at),
                workers_destroyed: gone,
                workers_left: made - gone,
            },
            merge: self.merged.as_deref().cloned(),
            workers_left: self.left.clone().unwrap_or_default(),
            workers_kept: self.kept.clone(),
            gave_up: None,
            golden_workspace: self.plan.golden,
            snapshot_name: self.plan.snapshot.clone(),
            started_at: self.plan.at,
            ended_at: None,
        }
    }

    /// Whether anything is missing that a cancellation can have kept from being done.
    fn cut_short(&self) -> bool {
        let cut = |end: &TaskEnd| match end {
            TaskEnd::Ran(result) => result.outcome == TaskOutcome::Cancelled,
            TaskEnd::Failed(error) => error.is_any(&[codes::CANCELLED, codes::MAY_STILL_RUN]),
        };
        let unmerged = |merge: &Arc<SwarmMerge>| !merge.success;
        self.tasks.iter().filter_map(|task| task.end.as_deref()).any(cut)
            || self.merged.as_ref().is_some_and(unmerged)
    }

    /// What is kept when it is over.
    pub(crate) fn kept(&self, now: DateTime<Utc>) -> Kept {
        let state = if self.cancelled && self.cut_short() { "cancelled" } else { "completed" };
        let result =
            SwarmResult { state: state.to_owned(), ended_at: Some(now), ..self.result(now) };
        Kept { owner: self.plan.owner, result }
    }
}

fn millis(delta: chrono::TimeDelta) -> u64 {
    u64::try_from(delta.num_milliseconds()).unwrap_or(0)
}

fn told(job: &Job, task: &Task, cleanup: bool) -> SwarmTaskResult {
    let word = match (task.started, task.worker) {
        (true, _) => "running",
        (false, Some(_)) => "forked",
        (false, None) => "waiting",
    };
    let blank = SwarmTaskResult {
        name: job.name.clone(),
        workspace_id: task.worker,
        workspace_name: job.workspace.clone(),
        success: task.end.as_ref().is_some_and(|end| end.success()),
        outcome: word.to_owned(),
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        stdout_bytes: 0,
        stderr_bytes: 0,
        stdout_path: None,
        stderr_path: None,
        workdir: None,
        elapsed_ms: 0,
        fork_ms: task.fork_ms,
        error_code: None,
        error: None,
    };
    match task.end.as_deref() {
        None => blank,
        Some(TaskEnd::Ran(result)) => ran(blank, result, cleanup),
        Some(TaskEnd::Failed(error)) => {
            let outcome = if error.is(codes::CANCELLED) { "cancelled" } else { "failed" };
            SwarmTaskResult {
                outcome: outcome.to_owned(),
                error_code: Some(error.code.to_string()),
                error: Some(error.to_text()),
                ..blank
            }
        }
    }
}

fn ran(blank: SwarmTaskResult, result: &TaskResult, cleanup: bool) -> SwarmTaskResult {
    let (outcome, exit_code, signal, error) = match &result.outcome {
        TaskOutcome::Exited { exit_code } => ("exited", Some(*exit_code), None, None),
        TaskOutcome::Signalled { signal } => {
            ("signalled", None, Some(*signal), Some(format!("ended by signal {signal}")))
        }
        TaskOutcome::TimedOut => ("timed_out", None, None, Some("ran into its time limit".into())),
        TaskOutcome::Interrupted => {
            let why =
                "its machine went down while it ran; it may have done its work in part or whole";
            ("interrupted", None, None, Some(why.to_owned()))
        }
        TaskOutcome::Cancelled => ("cancelled", None, None, Some("was cancelled".to_owned())),
        TaskOutcome::Invalid { code, reason } => {
            ("invalid", None, None, Some(format!("{code}: {reason}")))
        }
        TaskOutcome::Lost => ("lost", None, None, Some("its workspace is gone".to_owned())),
    };
    let error_code = match &result.outcome {
        TaskOutcome::Exited { .. } => None,
        TaskOutcome::Invalid { code, .. } => Some(code.clone()),
        _ => Some(outcome.to_owned()),
    };
    let path = |text: &TaskText| text.path.clone().filter(|_| !cleanup);
    SwarmTaskResult {
        outcome: outcome.to_owned(),
        exit_code,
        signal,
        error_code,
        error,
        stdout: result.stdout.text.clone(),
        stderr: result.stderr.text.clone(),
        truncated: result.stdout.truncated || result.stderr.truncated,
        stdout_bytes: result.stdout.total_bytes,
        stderr_bytes: result.stderr.total_bytes,
        stdout_path: path(&result.stdout),
        stderr_path: path(&result.stderr),
        workdir: result.workdir.clone(),
        elapsed_ms: result.elapsed_ms,
        ..blank
    }
}
