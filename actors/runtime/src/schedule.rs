//! Schedules of one kind, as those of agents are: each is a run without an end that waits for its next time, in the
//! stream `KIND/ID`.
//!
//! ```text
//! set ─▶ waits ─┬▶ due: the id of the run is recorded ─▶ begun, skipped or failed ─┬▶ waits …
//!               └▶ passed: nothing is made up for ─────────────────────────────────┘   ended ─▶ forgotten
//! ```
//! A time is decided on once: what became of it is recorded behind it, and after a crash the run is looked for by its
//! id. The stream is folded, so only the last events are kept.

mod saga;
mod state;

use std::{
    fmt::{Debug, Display},
    future::Future,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ErrorCode, ToolError, User};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Child, Daemon,
    log::Decision,
    runs::{RunCaller, RunOptions, RunState as _, Runs, SequencedEvent},
};

pub use saga::ScheduleSaga;
pub use state::{DueTime, ScheduleRecord, ScheduleState, TimeOutcome};

/// Time for which a place for a run is waited for.
const PATIENCE: Duration = Duration::from_secs(600);
/// First pause between two attempts; doubled up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Daemon itself, which sees all.
const DAEMON: RunCaller = RunCaller { user: User::Nobody, operator: true };

/// Thing that begins by itself: what a schedule is of, with its times.
pub trait Scheduled:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Id of the schedule.
    type Id: Copy + Ord + Display + FromStr + Send + Sync + 'static;
    /// Id of a run.
    type Run: Copy + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Whoever begins runs.
    type Host: Send + Sync + 'static;

    /// Kind of the streams.
    const KIND: &'static str;
    /// Code for an id that is unknown.
    const NOT_FOUND: &'static ErrorCode;
    /// Tool that lists what has schedules.
    const LISTED_BY: &'static str;
    /// Name of a run's id in events.
    const RUN: &'static str;

    /// User whose runs they are.
    fn owner(&self) -> User;

    /// Id of a run to be begun.
    fn new_run() -> Self::Run;

    /// True if both have the same times.
    fn times_as(&self, other: &Self) -> bool;

    /// First time after one; `since` is the time from which on intervals count.
    fn next(&self, since: DateTime<Utc>, after: DateTime<Utc>) -> Option<DateTime<Utc>>;

    /// Time to be done of those that have passed; `None` to do nothing for any of them.
    fn choose(&self, passed: PassedTimes) -> Option<DateTime<Utc>>;

    /// Schedule for people.
    fn shown(&self) -> Value;

    /// Does what is to be done at a time, unless it is done already. Dropped when the schedule ends.
    fn begin(
        &self,
        host: &Self::Host,
        due: &DueTime<Self::Run>,
    ) -> impl Future<Output = TimeOutcome<Self::Run>> + Send;
}

/// Times of a schedule that have passed and were not decided on.
#[derive(Debug, Clone, Copy)]
pub struct PassedTimes {
    /// Time from which on intervals count.
    pub since: DateTime<Utc>,
    /// First of them.
    pub first: DateTime<Utc>,
    /// End of the span that they are in.
    pub now: DateTime<Utc>,
    /// Time at which it was known what became of the time before them.
    pub answered: Option<DateTime<Utc>>,
    /// Number of times before them, one behind the other, that were late.
    pub late_in_a_row: u32,
}

/// All schedules of a kind. Cheap to clone; clones are one.
pub struct Schedules<S: Scheduled>(Runs<ScheduleSaga<S>>);

impl<S: Scheduled> Clone for Schedules<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Scheduled> Schedules<S> {
    /// Reads what is kept. The child is the actor that waits for the times, `PATH` below the root.
    ///
    /// # Errors
    /// Those of [`Runs::open`].
    pub async fn open(
        daemon: &Daemon,
        path: &'static str,
        host: Arc<S::Host>,
    ) -> Result<(Self, Child), ToolError> {
        let none = RunOptions { max_running: usize::MAX, ..RunOptions::default() };
        let args = (host, daemon.closing.clone());
        let (runs, child) = Runs::open(daemon, path, none, args).await?;
        Ok((Self(runs), child))
    }

    /// All that there are.
    pub fn all(&self) -> Vec<(S::Id, ScheduleState<S>)> {
        let (rows, _) = self.0.list(DAEMON, None, usize::MAX);
        let open = rows.into_iter().filter(|(_, view)| !view.state.status().is_over());
        open.map(|(id, view)| (id, view.state)).collect()
    }

    /// Schedule of an id, unless it has ended.
    pub fn get(&self, id: S::Id) -> Option<ScheduleState<S>> {
        let view = self.0.get(DAEMON, &id.to_string()).ok()?;
        Some(view.state).filter(|state| !state.status().is_over())
    }

    /// Has the schedule of an id be this one.
    ///
    /// # Errors
    /// `too_many_runs`, `journal_failed`.
    pub async fn set(&self, id: S::Id, scheduled: S) -> Result<(), ToolError> {
        let record = |it| ScheduleRecord::Set { agent: Box::new(it), at: Utc::now() };
        if self.get(id).is_none() {
            return self.0.begin(id, record(scheduled)).await;
        }
        let decide = move |state: &ScheduleState<S>| {
            Ok(match *state.agent == scheduled {
                true => Decision::nothing(),
                false => Decision::record(record(scheduled)),
            })
        };
        self.0.tell(DAEMON, &id.to_string(), decide).await
    }

    /// Ends a schedule, if there is one.
    ///
    /// # Errors
    /// `journal_failed`.
    pub async fn end(&self, id: S::Id) -> Result<(), ToolError> {
        match self.0.cancel(DAEMON, &id.to_string()).await {
            Err(error) if !error.is(S::NOT_FOUND) => Err(error),
            _ => Ok(()),
        }
    }

    /// Last events of a schedule that a caller sees, the oldest first.
    pub fn events(&self, caller: RunCaller, id: &str) -> Vec<SequencedEvent> {
        let Ok(view) = self.0.get(caller, id) else { return Vec::new() };
        let told = view.state.told.iter().zip(1..);
        let event = |(record, sequence): (&ScheduleRecord<S>, u64)| SequencedEvent {
            sequence,
            recorded_at: ScheduleState::<S>::recorded_at(record).unwrap_or_default(),
            event: ScheduleState::<S>::event(record),
        };
        told.map(event).collect()
    }
}

/// Patience with errors of a beginning that is tried again, as while there is no place: ten minutes.
pub struct BeginPatience {
    until: Instant,
    pause: Duration,
}

impl Default for BeginPatience {
    fn default() -> Self {
        Self { until: Instant::now() + PATIENCE, pause: PAUSE }
    }
}

impl BeginPatience {
    /// Pauses until the next attempt.
    ///
    /// # Errors
    /// The error where another attempt would not help, or the time is over.
    pub async fn pause(&mut self, error: ToolError) -> Result<(), ToolError> {
        if !error.retryable || Instant::now() + self.pause > self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
