//! A projection of a swarm into the answers of its tools. Pure.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_ports::{TaskOutcome, TaskResult, TaskText};
use hivekeep_runtime::saga::SagaView;

use super::{
    ObservedSwarm, SwarmSaga,
    state::{FinishedSwarm, RunningSwarm, SwarmState, SwarmTaskState, TaskEnd, TaskPlan},
};
use crate::{
    codes,
    tools::{SwarmMerge, SwarmResult, SwarmRow, SwarmSummary, SwarmTaskResult},
};

/// Report of a swarm's progress or result.
pub(crate) fn result(SagaView { state, live, .. }: &SagaView<SwarmSaga>) -> SwarmResult {
    match state {
        SwarmState::Running(state) => state.result(live, Utc::now()),
        SwarmState::Finished(over) => over.result.clone(),
    }
}

/// Row of a swarm in the list of a session that owns it.
pub(crate) fn row(SagaView { state, live, .. }: &SagaView<SwarmSaga>) -> SwarmRow {
    match state {
        SwarmState::Running(state) => row_of(&state.result(live, Utc::now())),
        SwarmState::Finished(over) => row_of(&over.result),
    }
}

/// The row of a result.
pub(crate) fn row_of(result: &SwarmResult) -> SwarmRow {
    SwarmRow {
        swarm_id: result.swarm_id,
        state: result.state.clone(),
        owned: true,
        summary: Some(result.summary.clone()),
        started_at: result.started_at,
        ended_at: result.ended_at,
    }
}

impl RunningSwarm {
    fn word(&self) -> &'static str {
        let over = self.tasks.iter().all(|task| task.end.is_some());
        match (&self.left, &self.merged) {
            (Some(_), _) | (None, Some(_)) => "cleaning_up",
            _ if !over => "running",
            _ if self.plan.merge.is_some() && !self.cancelled => "merging",
            _ => "cleaning_up",
        }
    }

    /// Report of a running swarm.
    fn result(&self, live: &ObservedSwarm, now: DateTime<Utc>) -> SwarmResult {
        let rows = self.plan.tasks.iter().zip(&self.tasks).enumerate();
        let told = |(at, (plan, task))| {
            task_report(plan, task, live.started.contains(&at), self.plan.cleanup)
        };
        let mut tasks: Vec<_> = rows.map(told).collect();
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        let ended = self.tasks.iter().filter_map(|task| task.end.as_ref());
        let (over, succeeded) =
            ended.fold((0, 0), |(all, good), end| (all + 1, good + usize::from(end.success())));
        let made = self.tasks.iter().filter(|task| task.worker.is_some()).count();
        let removed = live.removed.iter().filter_map(|at| self.tasks.get(*at));
        let gone = removed.filter(|task| task.worker.is_some()).count();
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

    /// True when anything is missing that a cancellation can have kept from being done.
    fn cut_short(&self) -> bool {
        let cut = |end: &TaskEnd| match end {
            TaskEnd::Ran(result) => result.outcome == TaskOutcome::Cancelled,
            TaskEnd::Failed(error) => error.is_any(&[codes::CANCELLED, codes::MAY_STILL_RUN]),
        };
        let unmerged = |merge: &Arc<SwarmMerge>| !merge.success;
        self.tasks.iter().filter_map(|task| task.end.as_deref()).any(cut)
            || self.merged.as_ref().is_some_and(unmerged)
    }

    /// The record of the swarm after its end. Its forks count as present.
    pub(super) fn finished(&self, at: DateTime<Utc>) -> FinishedSwarm {
        let state = if self.cancelled && self.cut_short() { "cancelled" } else { "completed" };
        let result = SwarmResult {
            state: state.to_owned(),
            ended_at: Some(at),
            ..self.result(&ObservedSwarm::default(), at)
        };
        FinishedSwarm { owner: self.plan.owner, result }
    }
}

fn millis(delta: chrono::TimeDelta) -> u64 {
    u64::try_from(delta.num_milliseconds()).unwrap_or(0)
}

fn task_report(
    plan: &TaskPlan,
    task: &SwarmTaskState,
    started: bool,
    cleanup: bool,
) -> SwarmTaskResult {
    let word = match (started, task.worker) {
        (true, _) => "running",
        (false, Some(_)) => "forked",
        (false, None) => "waiting",
    };
    let blank = SwarmTaskResult {
        name: plan.name.clone(),
        workspace_id: task.worker,
        workspace_name: plan.workspace.clone(),
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
    let capture = &result.capture;
    let path = |text: &TaskText| text.path.clone().filter(|_| !cleanup);
    SwarmTaskResult {
        outcome: outcome.to_owned(),
        exit_code,
        signal,
        error_code,
        error,
        stdout: capture.stdout.text.clone(),
        stderr: capture.stderr.text.clone(),
        truncated: capture.stdout.truncated || capture.stderr.truncated,
        stdout_bytes: capture.stdout.total_bytes,
        stderr_bytes: capture.stderr.total_bytes,
        stdout_path: path(&capture.stdout),
        stderr_path: path(&capture.stderr),
        workdir: capture.workdir.clone(),
        elapsed_ms: capture.elapsed_ms,
        ..blank
    }
}
