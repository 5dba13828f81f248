//! Schedule of an agent: a run without an end that waits for its next time, in the stream `schedule/AGENT`.
//!
//! ```text
//! set ─▶ waits ─▶ due: the execution's id is recorded ─▶ begun, skipped or failed ─▶ waits …
//!                                                    the agent is deleted: ended ─▶ forgotten
//! ```
//! A time is decided on once: what became of it is recorded behind it, and after a crash the execution is looked for by
//! its id. Of several times that passed without a daemon the last one is due, and told as late. The stream is folded,
//! so only the last events are kept.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{Arc, OnceLock, Weak},
};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{AgentId, ErrorCode, ExecutionId, SessionId, ToolError, User};
use hivekeep_manifest::agent::AgentSchedule;
use hivekeep_runtime::{
    log::{LogError, Sourced},
    runs::{RunEvent, RunState, RunStatus},
    saga::{Saga, SagaHandle, SagaState},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{codes, tools::AgentService};

/// Events that are kept.
const MOST_EVENTS: usize = 64;
/// Records after which the stream is folded.
const FOLD_RECORDS: usize = 64;
/// Time behind its own from which on a beginning counts as late.
const LATE: TimeDelta = TimeDelta::seconds(60);

/// Agent that begins by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduledAgent {
    pub(crate) agent_id: AgentId,
    /// User who deployed the version; `None` for one from before that was recorded.
    pub(crate) owner: Option<User>,
    pub(crate) schedule: AgentSchedule,
}

/// Time that has come, with the execution that it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DueTime {
    pub(crate) time: DateTime<Utc>,
    /// First of the times that passed without a daemon, if it is not the same.
    pub(crate) missed_since: Option<DateTime<Utc>>,
    pub(crate) execution: ExecutionId,
}

/// Outcome of a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum TimeOutcome {
    /// The execution was begun, beside those that wait for a person.
    Begun { waiting: Vec<ExecutionId>, cancelled: Vec<ExecutionId> },
    /// An execution of an earlier time works still.
    Skipped { working: ExecutionId },
    /// The execution could not be begun.
    Failed { error: Box<ToolError> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum ScheduleRecord {
    /// The schedule is this one from now on.
    Set { agent: Box<ScheduledAgent>, at: DateTime<Utc> },
    /// A time has come. Recorded before its execution is begun.
    Due { due: DueTime, at: DateTime<Utc> },
    /// Something became of the time.
    Done { due: DueTime, outcome: TimeOutcome, at: DateTime<Utc> },
    /// The agent is deleted.
    Ended { at: DateTime<Utc> },
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduleState {
    pub(crate) agent: Arc<ScheduledAgent>,
    began_at: DateTime<Utc>,
    /// Time from which on intervals count.
    since: DateTime<Utc>,
    /// Next time.
    pub(crate) next: Option<DateTime<Utc>>,
    pub(crate) due: Option<DueTime>,
    /// Last records, for people.
    pub(crate) told: VecDeque<ScheduleRecord>,
    ended_at: Option<DateTime<Utc>>,
}

impl ScheduleState {
    fn set(&mut self, agent: ScheduledAgent, at: DateTime<Utc>) {
        let differs = self.agent.schedule != agent.schedule;
        self.agent = Arc::new(agent);
        if differs {
            self.since = at;
            self.look_on(at);
        }
    }

    fn look_on(&mut self, after: DateTime<Utc>) {
        let times = self.agent.schedule.times();
        self.next = times.and_then(|times| times.next(self.since, after));
    }

    fn tell(&mut self, record: ScheduleRecord) {
        self.told.push_back(record);
        if self.told.len() > MOST_EVENTS {
            self.told.pop_front();
        }
    }
}

impl Sourced for ScheduleState {
    const KIND: &'static str = "schedule";
    const FOLD_EVERY: usize = FOLD_RECORDS;
    const PIECE_BYTES: Option<usize> = Some(256 * 1024);
    type Record = ScheduleRecord;

    fn begin(record: ScheduleRecord) -> Result<Self, ScheduleRecord> {
        let ScheduleRecord::Set { agent, at } = record.clone() else { return Err(record) };
        let agent = Arc::from(agent);
        let (next, due, told) = (None, None, VecDeque::from([record]));
        let mut state = Self { agent, began_at: at, since: at, next, due, told, ended_at: None };
        state.look_on(at);
        Ok(state)
    }

    fn apply(&mut self, record: ScheduleRecord) -> Result<(), ScheduleRecord> {
        match record.clone() {
            ScheduleRecord::Set { agent, at } => self.set(*agent, at),
            ScheduleRecord::Due { due, .. } => {
                self.look_on(due.time);
                self.due = Some(due);
                return Ok(());
            }
            ScheduleRecord::Done { .. } => self.due = None,
            ScheduleRecord::Ended { at } => {
                (self.next, self.due, self.ended_at) = (None, None, Some(at));
            }
        }
        self.tell(record);
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

impl SagaState for ScheduleState {
    fn holds(&self) -> Option<SessionId> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.ended_at.is_some()
    }

    fn cancellation(&self) -> Option<ScheduleRecord> {
        self.ended_at.is_none().then(|| ScheduleRecord::Ended { at: Utc::now() })
    }
}

impl RunState for ScheduleState {
    type Id = AgentId;

    const LABEL: &'static str = Self::KIND;
    const NOT_FOUND: &'static ErrorCode = codes::AGENT_NOT_FOUND;
    const LISTED_BY: &'static str = "aegis.agent.list";

    fn status(&self) -> RunStatus {
        if self.ended_at.is_some() { RunStatus::Cancelled } else { RunStatus::Running }
    }

    fn user(&self) -> User {
        self.agent.owner.unwrap_or(User::Nobody)
    }

    fn group(&self) -> String {
        self.agent.agent_id.to_string()
    }

    fn began_at(&self) -> DateTime<Utc> {
        self.began_at
    }

    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.ended_at
    }

    fn wakes_at(&self) -> Option<DateTime<Utc>> {
        self.next.filter(|_| self.due.is_none())
    }

    fn woken(&self, now: DateTime<Utc>) -> Option<ScheduleRecord> {
        let first = self.wakes_at().filter(|next| *next <= now)?;
        let last = self.agent.schedule.times().and_then(|times| times.last(self.since, now));
        let time = last.unwrap_or(first).max(first);
        let missed_since = (time > first).then_some(first);
        let due = DueTime { time, missed_since, execution: ExecutionId::new() };
        Some(ScheduleRecord::Due { due, at: now })
    }

    /// A beginning waits for a place of its execution.
    fn takes_place(&self) -> bool {
        false
    }

    fn event(record: &ScheduleRecord) -> RunEvent {
        let (event_type, payload) = match record {
            ScheduleRecord::Set { agent, .. } => {
                let payload = json!({ "schedule": agent.schedule, "owner": agent.owner });
                ("schedule_set", payload)
            }
            ScheduleRecord::Due { due, .. } => ("schedule_due", json!(due)),
            ScheduleRecord::Done { due, outcome, at } => {
                let event_type = match outcome {
                    TimeOutcome::Begun { .. } => "schedule_begun",
                    TimeOutcome::Skipped { .. } => "schedule_skipped",
                    TimeOutcome::Failed { .. } => "schedule_failed",
                };
                (event_type, told(due, outcome, *at))
            }
            ScheduleRecord::Ended { .. } => ("schedule_ended", json!({})),
        };
        RunEvent { event_type, payload }
    }

    fn recorded_at(record: &ScheduleRecord) -> Option<DateTime<Utc>> {
        Some(match record {
            ScheduleRecord::Set { at, .. }
            | ScheduleRecord::Due { at, .. }
            | ScheduleRecord::Done { at, .. }
            | ScheduleRecord::Ended { at } => *at,
        })
    }

    fn rest(&mut self) {
        self.told.clear();
    }
}

fn told(due: &DueTime, outcome: &TimeOutcome, at: DateTime<Utc>) -> Value {
    let mut payload = json!({ "scheduled_for": due.time });
    if at - due.time > LATE {
        payload["late_secs"] = json!((at - due.time).num_seconds());
    }
    if let Some(first) = due.missed_since {
        payload["missed_since"] = json!(first);
    }
    match outcome {
        TimeOutcome::Begun { waiting, cancelled } => {
            payload["execution_id"] = json!(due.execution);
            for (name, ids) in [("waiting_for_a_person", waiting), ("cancelled", cancelled)] {
                if !ids.is_empty() {
                    payload[name] = json!(ids);
                }
            }
        }
        TimeOutcome::Skipped { working } => payload["still_working"] = json!(working),
        TimeOutcome::Failed { error } => payload["error"] = json!(error),
    }
    payload
}

/// Whoever begins executions, once it is there, and the end of the daemon.
pub(crate) struct ScheduleShared {
    pub(crate) agents: OnceLock<Weak<AgentService>>,
    pub(crate) closing: CancellationToken,
}

/// Incarnation of a schedule, whose only step begins the execution of the time that is due.
pub(crate) struct ScheduleSaga {
    shared: Arc<ScheduleShared>,
    handle: SagaHandle<Self>,
}

impl Saga for ScheduleSaga {
    type State = ScheduleState;
    type Step = ();
    type Live = ();
    type Args = Arc<ScheduleShared>;

    fn resume(shared: Arc<ScheduleShared>, handle: SagaHandle<Self>) -> Self {
        Self { shared, handle }
    }

    fn due(state: &ScheduleState, _: &[()]) -> Vec<()> {
        state.due.iter().map(|_| ()).collect()
    }

    fn parallel(_: &ScheduleState) -> usize {
        1
    }

    /// An execution that was begun meanwhile is found by its id.
    fn interruptible((): ()) -> bool {
        true
    }

    async fn step(&self, (): ()) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(due) = state.due else { return Ok(()) };
        let agents = self.shared.agents.get().and_then(Weak::upgrade);
        // Without it the daemon stops.
        let Some(agents) = agents else { return pending().await };
        let begun = agents.begin_scheduled(&state.agent, &due);
        let Some(outcome) = self.handle.cancelled().run_until_cancelled(begun).await else {
            return Ok(());
        };
        if self.shared.closing.is_cancelled() && matches!(outcome, TimeOutcome::Failed { .. }) {
            return pending().await;
        }
        self.handle.record(ScheduleRecord::Done { due, outcome, at: Utc::now() }).await
    }
}
