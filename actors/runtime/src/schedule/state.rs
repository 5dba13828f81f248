//! State of a schedule, as its records add up to it. Names of fields are those that the schedules of agents had when
//! there were no others: what they wrote is read.

use std::{collections::VecDeque, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ErrorCode, SessionId, ToolError, User};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{PassedTimes, Scheduled};
use crate::{
    log::Sourced,
    runs::{RunEvent, RunState, RunStatus},
    saga::SagaState,
};

/// Events that are kept.
const MOST_EVENTS: usize = 64;
/// Records after which the stream is folded.
const FOLD_RECORDS: usize = 64;
/// Time behind its own from which on a beginning counts as late.
const LATE: TimeDelta = TimeDelta::seconds(60);

/// Time that has come, with the run that it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DueTime<R> {
    /// The time.
    pub time: DateTime<Utc>,
    /// First of the times that passed before it without being done, if there were some.
    pub missed_since: Option<DateTime<Utc>>,
    /// Id of the run.
    #[serde(rename = "execution")]
    pub run: R,
}

/// Outcome of a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TimeOutcome<R> {
    /// The run was begun.
    Begun {
        /// Earlier runs that wait for a person.
        waiting: Vec<R>,
        /// Earlier runs that were cancelled for it.
        cancelled: Vec<R>,
    },
    /// A run of an earlier time works still.
    Skipped {
        /// The run.
        working: R,
    },
    /// A run since the last time did already what this one would.
    Needless {
        /// The run.
        succeeded: R,
    },
    /// Runs were stopped, and none was to be begun.
    Stopped {
        /// The runs.
        cancelled: Vec<R>,
    },
    /// The run could not be begun.
    Failed {
        /// The reason.
        error: Box<ToolError>,
    },
}

/// Record of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", bound = "S: Scheduled")]
pub enum ScheduleRecord<S: Scheduled> {
    /// The schedule is this one from now on.
    Set {
        /// Owner and times of the schedule.
        agent: Box<S>,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A time has come. Recorded before its run is begun.
    Due {
        /// The time.
        due: DueTime<S::Run>,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// Something became of the time.
    Done {
        /// The time.
        due: DueTime<S::Run>,
        /// Outcome of the due time.
        outcome: TimeOutcome<S::Run>,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// Times have passed and nothing is made up for.
    Passed {
        /// First of them.
        since: DateTime<Utc>,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// There is no schedule any more.
    Ended {
        /// Time of the record.
        at: DateTime<Utc>,
    },
}

/// See the module. Cheap to clone but for its last records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "S: Scheduled")]
pub struct ScheduleState<S: Scheduled> {
    /// Thing that the schedule is of.
    pub agent: Arc<S>,
    began_at: DateTime<Utc>,
    /// Time from which on intervals count.
    since: DateTime<Utc>,
    /// Next time.
    pub next: Option<DateTime<Utc>>,
    pub(super) due: Option<DueTime<S::Run>>,
    /// Last time that was decided on.
    #[serde(default)]
    decided: Option<DateTime<Utc>>,
    /// Time at which it was known what became of the last one.
    #[serde(default)]
    answered: Option<DateTime<Utc>>,
    /// Number of the last times, one behind the other, that were late.
    #[serde(default)]
    late_in_a_row: u32,
    /// Last records, for people.
    pub(super) told: VecDeque<ScheduleRecord<S>>,
    ended_at: Option<DateTime<Utc>>,
}

impl<S: Scheduled> ScheduleState<S> {
    fn set(&mut self, agent: S, at: DateTime<Utc>) {
        let differs = !self.agent.times_as(&agent);
        self.agent = Arc::new(agent);
        if differs {
            self.since = at;
            // The clock may have been set back: no time is decided on twice.
            self.look_on(self.decided.map_or(at, |decided| at.max(decided)));
        }
    }

    fn look_on(&mut self, after: DateTime<Utc>) {
        self.next = self.agent.next(self.since, after);
    }

    fn tell(&mut self, record: ScheduleRecord<S>) {
        self.told.push_back(record);
        if self.told.len() > MOST_EVENTS {
            self.told.pop_front();
        }
    }
}

impl<S: Scheduled> Sourced for ScheduleState<S> {
    const KIND: &'static str = S::KIND;
    const FOLD_EVERY: usize = FOLD_RECORDS;
    const PIECE_BYTES: Option<usize> = Some(256 * 1024);
    type Record = ScheduleRecord<S>;

    fn begin(record: Self::Record) -> Result<Self, Self::Record> {
        let ScheduleRecord::Set { agent, at } = record.clone() else { return Err(record) };
        let mut state = Self {
            agent: Arc::from(agent),
            began_at: at,
            since: at,
            next: None,
            due: None,
            decided: None,
            answered: None,
            late_in_a_row: 0,
            told: VecDeque::from([record]),
            ended_at: None,
        };
        state.look_on(at);
        Ok(state)
    }

    fn apply(&mut self, record: Self::Record) -> Result<(), Self::Record> {
        match record.clone() {
            ScheduleRecord::Set { agent, at } => self.set(*agent, at),
            ScheduleRecord::Due { due, at } => {
                let is_late = at - due.time > LATE;
                self.late_in_a_row = if is_late { self.late_in_a_row + 1 } else { 0 };
                self.look_on(due.time);
                (self.decided, self.due) = (Some(due.time), Some(due));
                return Ok(());
            }
            ScheduleRecord::Done { at, .. } => (self.due, self.answered) = (None, Some(at)),
            ScheduleRecord::Passed { at, .. } => self.look_on(at),
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

impl<S: Scheduled> SagaState for ScheduleState<S> {
    fn holds(&self) -> Option<SessionId> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.ended_at.is_some()
    }

    fn cancellation(&self) -> Option<Self::Record> {
        self.ended_at.is_none().then(|| ScheduleRecord::Ended { at: Utc::now() })
    }
}

impl<S: Scheduled> RunState for ScheduleState<S> {
    type Id = S::Id;

    const LABEL: &'static str = "schedule";
    const NOT_FOUND: &'static ErrorCode = S::NOT_FOUND;
    const LISTED_BY: &'static str = S::LISTED_BY;

    fn status(&self) -> RunStatus {
        if self.ended_at.is_some() { RunStatus::Cancelled } else { RunStatus::Running }
    }

    fn user(&self) -> User {
        self.agent.owner()
    }

    fn group(&self) -> String {
        String::new()
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

    fn woken(&self, now: DateTime<Utc>) -> Option<Self::Record> {
        let first = self.wakes_at().filter(|next| *next <= now)?;
        let passed = PassedTimes {
            since: self.since,
            first,
            now,
            answered: self.answered,
            late_in_a_row: self.late_in_a_row,
        };
        Some(match self.agent.choose(passed) {
            Some(time) => {
                let missed_since = (time > first).then_some(first);
                let due = DueTime { time, missed_since, run: S::new_run() };
                ScheduleRecord::Due { due, at: now }
            }
            None => ScheduleRecord::Passed { since: first, at: now },
        })
    }

    /// A beginning waits for a place of its run.
    fn takes_place(&self) -> bool {
        false
    }

    fn event(record: &Self::Record) -> RunEvent {
        let (event_type, payload) = match record {
            ScheduleRecord::Set { agent, .. } => {
                let owner = Some(agent.owner()).filter(|owner| *owner != User::Nobody);
                ("schedule_set", json!({ "schedule": agent.shown(), "owner": owner }))
            }
            ScheduleRecord::Due { due, .. } => ("schedule_due", json!(due)),
            ScheduleRecord::Done { due, outcome, at } => {
                let event_type = match outcome {
                    TimeOutcome::Begun { .. } => "schedule_begun",
                    TimeOutcome::Skipped { .. } | TimeOutcome::Needless { .. } => {
                        "schedule_skipped"
                    }
                    TimeOutcome::Stopped { .. } => "schedule_stopped",
                    TimeOutcome::Failed { .. } => "schedule_failed",
                };
                (event_type, told::<S>(due, outcome, *at))
            }
            ScheduleRecord::Passed { since, .. } => {
                ("schedule_missed", json!({ "missed_since": since }))
            }
            ScheduleRecord::Ended { .. } => ("schedule_ended", json!({})),
        };
        RunEvent { event_type, payload }
    }

    fn recorded_at(record: &Self::Record) -> Option<DateTime<Utc>> {
        Some(match record {
            ScheduleRecord::Set { at, .. }
            | ScheduleRecord::Due { at, .. }
            | ScheduleRecord::Done { at, .. }
            | ScheduleRecord::Passed { at, .. }
            | ScheduleRecord::Ended { at } => *at,
        })
    }

    fn rest(&mut self) {
        self.told.clear();
    }
}

fn told<S: Scheduled>(
    due: &DueTime<S::Run>,
    outcome: &TimeOutcome<S::Run>,
    at: DateTime<Utc>,
) -> Value {
    let mut payload = json!({ "scheduled_for": due.time });
    if at - due.time > LATE {
        payload["late_secs"] = json!((at - due.time).num_seconds());
    }
    if let Some(first) = due.missed_since {
        payload["missed_since"] = json!(first);
    }
    let mut name = |name: &str, ids: &[S::Run]| {
        if !ids.is_empty() {
            payload[name] = json!(ids);
        }
    };
    match outcome {
        TimeOutcome::Begun { waiting, cancelled } => {
            name("waiting_for_a_person", waiting);
            name("cancelled", cancelled);
            payload[S::RUN] = json!(due.run);
        }
        TimeOutcome::Skipped { working } => payload["still_working"] = json!(working),
        TimeOutcome::Needless { succeeded } => payload["succeeded"] = json!(succeeded),
        TimeOutcome::Stopped { cancelled } => name("cancelled", cancelled),
        TimeOutcome::Failed { error } => payload["error"] = json!(error),
    }
    payload
}
