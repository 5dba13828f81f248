//! Workflows and DAGs: durable runs of plans.
//!
//! ```text
//! runs ─ run*   a run each, while it has something to do: its steps are tasks of a guest
//! ```
//! Texts are checked by `hivekeep-manifest`, lowered and resolved by `hivekeep-plan`; runs are begun, kept and gone on
//! with by [`hivekeep_runtime::runs`]. So far a step runs lines of a shell, a script, a program, a tool,
//! a DAG of its file or a loop; other actions fail with their name, and no tool begins a run.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod run;

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, RunId, ToolError};
use hivekeep_plan::progress::RunOutcome;
use hivekeep_runtime::{
    Child, Daemon,
    runs::{RunCaller, RunEvents, RunOptions, Runs},
};

pub use run::{HELD, RunRequest, RunTrigger};
use run::{RunSaga, RunShared};

/// Runs of DAGs. Cheap to clone; clones are one.
#[derive(Clone)]
pub struct DagRuns(Runs<RunSaga>);

impl DagRuns {
    /// Reads all runs of the journal. The child is the actor that goes on with them, `runs` below the root.
    ///
    /// # Errors
    /// `state_unreadable`; `internal` where a family that runs need is not there.
    pub async fn open(daemon: &Daemon, options: RunOptions) -> Result<(Self, Child), ToolError> {
        let shared = Arc::new(RunShared::of(daemon)?);
        let (runs, child) = Runs::open(daemon, "runs", options, shared.clone()).await?;
        let _the_first = shared.runs.set(runs.downgrade());
        Ok((Self(runs), child))
    }

    /// Begins a run, which is durable when this returns.
    ///
    /// # Errors
    /// `dag_invalid`, `too_many_runs`, `daemon_stopping`, `journal_failed`.
    pub async fn begin(&self, request: RunRequest) -> Result<(), ToolError> {
        self.0.begin(request.id, request.begun()?).await
    }

    /// Outcome of a run; `None` while it goes on.
    ///
    /// # Errors
    /// `run_not_found`.
    pub fn outcome(&self, caller: RunCaller, id: RunId) -> Result<Option<RunOutcome>, ToolError> {
        self.0.get(caller, &id.to_string()).map(|view| view.state.outcome())
    }

    /// Waits until a run is over, at most `limit` and the call's time; `None` if it is not over.
    ///
    /// # Errors
    /// `run_not_found`; those of [`Runs::wait`].
    pub async fn wait(
        &self,
        cx: &CallCx,
        id: RunId,
        limit: Duration,
    ) -> Result<Option<RunOutcome>, ToolError> {
        let (view, _) = self.0.wait(cx, &id.to_string(), limit).await?;
        Ok(view.state.outcome())
    }

    /// Reads the events of a run: at most `limit` after the first `offset`.
    ///
    /// # Errors
    /// `run_not_found`; when the stream cannot be read.
    pub async fn events(
        &self,
        caller: RunCaller,
        id: RunId,
        offset: usize,
        limit: usize,
    ) -> Result<RunEvents, ToolError> {
        self.0.events(caller, &id.to_string(), offset, limit).await
    }

    /// Stops a run: answers when that is durable, and false when nothing was left to stop.
    ///
    /// # Errors
    /// `run_not_found`, `journal_failed`.
    pub async fn stop(&self, caller: RunCaller, id: RunId) -> Result<bool, ToolError> {
        self.0.cancel(caller, &id.to_string()).await
    }

    /// Has a run that is over go on with another attempt.
    ///
    /// # Errors
    /// `run_not_found`, `too_many_runs`; `busy` for one that is not over; `dag_invalid` where nothing is to be done
    /// again.
    pub async fn retry(
        &self,
        caller: RunCaller,
        id: RunId,
        from: hivekeep_plan::progress::RetryFrom,
    ) -> Result<(), ToolError> {
        self.0.reopen(caller, &id.to_string(), move |state| state.retried(from)).await
    }
}

#[cfg(test)]
mod tests;
