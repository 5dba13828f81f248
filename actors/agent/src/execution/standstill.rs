//! Standstill of an execution's machine: at a budget's bound at once, while a chat waits for its next message after
//! `agent.idle_secs`, and then saved where it can be. The machine goes on before the execution does, or when somebody
//! uses it.
//!
//! ```text
//! bound reached, or idle ─▶ wanted ─▶ stands ─┬─▶ the wait is over ─▶ went on
//!                                └─▶ runs on ─┘
//! ```
//! The wish is a record before the effect, and both effects may be repeated. A wait that is over before the machine
//! stands still is followed by the same record: a daemon may have died between the effect and its record.

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::WorkspaceStandstill;
use hivekeep_runtime::{log::LogError, saga::SagaView};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{
    ExecutionSaga, ExecutionStep, repeated_while,
    state::{ExecutionState, Record},
};

/// Change of a standstill, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "standstill", rename_all = "snake_case")]
pub(crate) enum StandstillChange {
    /// A chat has waited for so long that its machine is not needed for now.
    Idle,
    /// The machine stands still; or there is none of its own, or it runs on for the error.
    Halted { workspace: Option<WorkspaceId>, error: Option<Box<ToolError>> },
    /// The machine goes on; after an error by its next use.
    WentOn { error: Option<Box<ToolError>> },
}

/// Standstill of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StandstillState {
    /// Nobody wants it.
    #[default]
    None,
    /// Asked for, and perhaps in force; with the memory on the disk where that can be.
    Wanted { saved: bool },
    /// In force, unless somebody uses the machine.
    Stands,
    /// Not to be had.
    Runs,
}

impl StandstillChange {
    /// Change as clients are shown it.
    pub(super) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Idle => ("machine_idle", json!({})),
            Self::Halted { workspace: Some(workspace), error: None } => {
                ("machine_paused", json!({ "workspace_id": workspace }))
            }
            Self::Halted { workspace: None, .. } => ("machine_absent", json!({})),
            Self::Halted { workspace, error } => {
                ("machine_not_paused", json!({ "workspace_id": workspace, "error": error }))
            }
            Self::WentOn { error } => ("standstill_ended", json!({ "error": error })),
        }
    }

    pub(super) fn next(&self) -> StandstillState {
        match self {
            Self::Idle => StandstillState::Wanted { saved: true },
            Self::Halted { workspace: Some(_), error: None } => StandstillState::Stands,
            Self::Halted { .. } => StandstillState::Runs,
            Self::WentOn { .. } => StandstillState::None,
        }
    }
}

impl Record {
    fn standstill(change: StandstillChange) -> Self {
        Self::Standstill { change, at: Utc::now() }
    }
}

impl ExecutionState {
    /// True if there may be a machine: the manifest asks for one, or a call may have made it.
    pub(super) fn may_have_machine(&self) -> bool {
        let calls = |it: &super::state::Iteration| {
            it.turns.iter().any(|turn| !turn.answer.calls.is_empty())
        };
        self.begun.plan.machine.is_some() || self.iterations.iter().any(|it| calls(it))
    }

    /// Step by which the machine stands still, or goes on.
    pub(crate) fn standstill_due(&self) -> Option<ExecutionStep> {
        let waits = self.account.waiting().is_some() || self.awaits_message();
        match (self.still, waits && self.forks.rewinding().is_none()) {
            (StandstillState::None, _) => None,
            (StandstillState::Wanted { .. }, true) => Some(ExecutionStep::Halt),
            (StandstillState::Stands | StandstillState::Runs, true) => None,
            (_, false) => Some(ExecutionStep::GoOn),
        }
    }

    /// True if nothing may be asked of the machine for now.
    pub(crate) fn stands_still(&self) -> bool {
        matches!(self.still, StandstillState::Stands | StandstillState::Wanted { .. })
    }

    /// Time from which on a chat that waits for a message needs no machine.
    pub(super) fn idle_at(&self) -> Option<DateTime<Utc>> {
        let secs = i64::try_from(self.begun.plan.limits.idle_secs).ok().filter(|secs| *secs > 0)?;
        let idle = self.still == StandstillState::None && self.awaits_message();
        (idle && self.may_have_machine()).then(|| self.last_at + TimeDelta::seconds(secs))
    }

    /// Record of a chat whose machine is not needed for now.
    pub(super) fn became_idle(&self, now: DateTime<Utc>) -> Option<Record> {
        self.idle_at().filter(|at| *at <= now)?;
        Some(Record::Standstill { change: StandstillChange::Idle, at: now })
    }
}

impl ExecutionSaga {
    /// Has the machine stand still, and records whether it does.
    pub(super) async fn halt(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let StandstillState::Wanted { saved } = state.still else { return Ok(()) };
        let own = self.shared.machines.own(&state).map(|found| found.id);
        let error = self.of_machine(own, Some(saved)).await;
        let halted = StandstillChange::Halted { workspace: own, error };
        self.handle.record(Record::standstill(halted)).await
    }

    /// Lets the machine go on, and records that.
    pub(super) async fn go_on(&self) -> Result<(), LogError> {
        let own = self.shared.machines.own(&self.handle.state()).map(|found| found.id);
        let error = self.of_machine(own, None).await;
        self.handle.record(Record::standstill(StandstillChange::WentOn { error })).await
    }

    /// Asks for a standstill, saved or not, or for its end, again while the workspace is about something else.
    async fn of_machine(
        &self,
        own: Option<WorkspaceId>,
        saved: Option<bool>,
    ) -> Option<Box<ToolError>> {
        let (id, owner) = (own?, Self::child(&self.handle.state()));
        let ask = async || {
            let port = self.shared.daemon.ports.need::<dyn WorkspaceStandstill>()?;
            match saved {
                Some(saved) => port.halt(owner, id, saved).await,
                None => port.go_on(owner, id).await,
            }
        };
        let passes = |error: &ToolError| error.retryable;
        let error = repeated_while(passes, self.handle.cancelled(), ask).await.err()?;
        self.unless_closing().await;
        Some(Box::new(error))
    }

    /// Does the work of a program while its machine runs; at a bound no call of the program is in `calls`.
    pub(super) async fn while_it_runs<T>(
        &self,
        calls: &Mutex<()>,
        work: impl Future<Output = T>,
    ) -> Result<T, LogError> {
        let (mut work, mut news) = (std::pin::pin!(work), self.handle.watch());
        loop {
            let due = |view: &SagaView<Self>| {
                view.state.end.is_none() && view.state.standstill_due().is_some()
            };
            let stands = self.handle.view(|view| view.state.stands_still());
            tokio::select! {
                biased;
                // The handle keeps it open.
                _ = news.wait_for(due) => {}
                done = work.as_mut(), if !stands => return Ok(done),
            }
            let _no_call = calls.lock().await;
            match self.handle.view(|view| view.state.standstill_due()) {
                Some(ExecutionStep::Halt) => self.halt().await?,
                Some(_) => self.go_on().await?,
                None => {}
            }
        }
    }
}
