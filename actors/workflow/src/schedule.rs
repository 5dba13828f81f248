//! Schedules of DAGs in watched folders: when a run is begun or stopped by itself, and what is in its way.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ErrorCode, Layer, RunId, ToolError, User, fault_point};
use hivekeep_manifest::dag::{DagManifest, DagSchedule, DagTimes, OverlapPolicy, ScheduledAction};
use hivekeep_plan::progress::RunOutcome;
use hivekeep_runtime::{
    runs::RunCaller,
    schedule::{BeginPatience, DueTime, PassedTimes, Scheduled, TimeOutcome},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    RunTrigger, codes,
    folders::{DagFolders, PlacedFile},
    run::{DAEMON, RunFold},
};

/// Time behind its own up to which a run is begun that nothing makes up for.
const GRACE: TimeDelta = TimeDelta::minutes(5);
/// Most missed runs that are made up for one behind the other.
const MOST_MADE_UP: u32 = 1_000;
/// Longest pause before a restart.
const LONGEST_PAUSE_SECS: u64 = 3_600;

type DagOutcome = TimeOutcome<RunId>;

/// DAG that begins by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduledDag {
    pub(crate) file: PlacedFile,
    /// Name of its runs.
    pub(crate) name: String,
    /// Owner of the file.
    pub(crate) owner: User,
    pub(crate) schedule: DagSchedule,
    overlap: OverlapPolicy,
    /// Time span of missed runs that are made up for.
    catchup_secs: u64,
    skip_if_successful: bool,
    restart_wait_secs: u64,
}

impl ScheduledDag {
    /// Schedule of a DAG, if it has one.
    pub(crate) fn of(
        dag: DagManifest,
        file: PlacedFile,
        name: String,
        owner: User,
    ) -> Option<Self> {
        let window = dag.catchup_window.and_then(|window| window.duration());
        Some(Self {
            file,
            name,
            owner,
            schedule: dag.schedule?,
            overlap: dag.overlap_policy.unwrap_or(OverlapPolicy::Skip),
            catchup_secs: window.map_or(0, |window| window.as_secs()),
            skip_if_successful: dag.skip_if_successful == Some(true),
            restart_wait_secs: dag.restart_wait_sec.unwrap_or(0).min(LONGEST_PAUSE_SECS),
        })
    }

    /// Beginning of the time span whose runs are made up for.
    fn makes_up_from(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let secs = i64::try_from(self.catchup_secs).ok().filter(|secs| *secs > 0)?;
        let window = TimeDelta::try_seconds(secs)?;
        Some(now.checked_sub_signed(window).unwrap_or(DateTime::UNIX_EPOCH))
    }
}

impl Scheduled for ScheduledDag {
    type Id = hivekeep_kernel::DagId;
    type Run = RunId;
    type Host = DagFolders;

    const KIND: &'static str = "dag_schedule";
    const NOT_FOUND: &'static ErrorCode = codes::RUN_NOT_FOUND;
    const LISTED_BY: &'static str = "dag_runs";
    const RUN: &'static str = "run_id";

    fn owner(&self) -> User {
        self.owner
    }

    fn new_run() -> RunId {
        RunId::new()
    }

    fn times_as(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }

    fn next(&self, _: DateTime<Utc>, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.schedule.times().next(after)
    }

    /// In their order those within the window, and those that came while an earlier one waited; else the last one, if
    /// that is not long ago. A single time is never missed.
    fn choose(&self, passed: PassedTimes) -> Option<DateTime<Utc>> {
        let PassedTimes { first, now, answered, late_in_a_row, .. } = passed;
        let times = self.schedule.times();
        let last = || times.last(now).unwrap_or(first).max(first);
        let live = || Some(last()).filter(|last| now - *last <= GRACE);
        let waits = self.overlap != OverlapPolicy::Skip && answered.is_some_and(|at| first <= at);
        let from = self.makes_up_from(now).filter(|_| late_in_a_row < MOST_MADE_UP);
        let missed = from.and_then(|from| {
            let from = from.max(first - TimeDelta::seconds(1));
            times.next(from).filter(|time| *time <= now)
        });
        let waited = waits.then_some(first);
        let first_of = |of: [Option<DateTime<Utc>>; 2]| of.into_iter().flatten().min();
        let owed = first_of([missed, waited]);
        let owed = match self.overlap {
            OverlapPolicy::Latest => owed.map(|_| last()),
            OverlapPolicy::Skip | OverlapPolicy::All => owed,
        };
        first_of([owed.or_else(live), times.single(first, now)])
    }

    fn shown(&self) -> Value {
        json!({ "name": self.name, "file": self.file, "schedule": self.schedule })
    }

    async fn begin(&self, host: &DagFolders, due: &DueTime<RunId>) -> DagOutcome {
        fault_point!("dag.time_due");
        host.followed().await;
        let outcome = self.done(host, due).await;
        fault_point!("dag.time_done");
        outcome.unwrap_or_else(|error| TimeOutcome::Failed { error: Box::new(error) })
    }
}

impl ScheduledDag {
    async fn done(&self, host: &DagFolders, due: &DueTime<RunId>) -> Result<DagOutcome, ToolError> {
        let is_begun = || host.runs.0.get(DAEMON, &due.run.to_string()).is_ok();
        let mut cancelled = Vec::new();
        if !is_begun() {
            let times = self.schedule.times();
            let action = times.action(due.time).ok_or_else(|| {
                let message = "its schedule was changed, and has no such time any more";
                ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                    .next("nothing is to be done")
            })?;
            if action == ScheduledAction::Start {
                if let Some(outcome) = self.in_the_way(host, due.time, &times).await? {
                    return Ok(outcome);
                }
            } else {
                cancelled = self.stop_runs(host).await?;
            }
            if action == ScheduledAction::Stop {
                return Ok(TimeOutcome::Stopped { cancelled });
            }
            if action == ScheduledAction::Restart {
                tokio::time::sleep(Duration::from_secs(self.restart_wait_secs)).await;
            }
        }
        let mut patience = BeginPatience::default();
        while !is_begun() {
            match self.begin_run(host, due).await {
                Ok(()) => break,
                Err(error) => patience.pause(error).await?,
            }
        }
        Ok(TimeOutcome::Begun { waiting: Vec::new(), cancelled })
    }

    /// Runs of the DAG that nobody else's step waits for, the newest first.
    fn runs(&self, host: &DagFolders) -> impl Iterator<Item = (RunId, RunFold)> + use<> {
        let caller = RunCaller { user: self.owner, operator: false };
        let (rows, _) = host.runs.0.list(caller, Some(&self.name), usize::MAX);
        let own = |state: &RunFold| !matches!(state.begun.trigger, RunTrigger::Parent { .. });
        // A run that is given up stands still until the daemon's next start.
        let moves = rows.into_iter().filter(|(_, view)| view.given_up.is_none());
        moves.map(|(id, view)| (id, view.state)).filter(move |(_, state)| own(state))
    }

    /// Outcome of a time whose run is not to be begun, as the policies say; waits for earlier runs where they do.
    async fn in_the_way(
        &self,
        host: &DagFolders,
        time: DateTime<Utc>,
        times: &DagTimes,
    ) -> Result<Option<DagOutcome>, ToolError> {
        while let Some((working, _)) = self.runs(host).find(|(_, state)| works(state)) {
            if self.overlap != OverlapPolicy::Skip {
                let ended = host.runs.0.until(DAEMON, &working.to_string(), |it| !works(it)).await;
                // A run that was removed is in nobody's way.
                ended.map_or_else(not_found, |_| Ok(()))?;
            }
            let is_latest = self.overlap != OverlapPolicy::Latest
                || times.last(Utc::now()).is_none_or(|last| last <= time);
            if self.overlap == OverlapPolicy::Skip || !is_latest {
                return Ok(Some(TimeOutcome::Skipped { working }));
            }
        }
        if !self.skip_if_successful {
            return Ok(None);
        }
        let before = times.last(time - TimeDelta::seconds(1)).unwrap_or(DateTime::UNIX_EPOCH);
        let is_since = |state: &RunFold| match state.begun.trigger {
            RunTrigger::Schedule { time } => time > before,
            _ => state.begun.at > before,
        };
        let mut since = self.runs(host).filter(|(_, state)| is_since(state));
        let succeeded = since.find(|(_, state)| state.outcome() == Some(RunOutcome::Succeeded));
        Ok(succeeded.map(|(succeeded, _)| TimeOutcome::Needless { succeeded }))
    }

    /// Stops the runs that are not over, and waits for their ends.
    async fn stop_runs(&self, host: &DagFolders) -> Result<Vec<RunId>, ToolError> {
        let mut stopped = Vec::new();
        for (id, _) in self.runs(host).filter(|(_, state)| state.outcome().is_none()) {
            match host.runs.0.cancel(DAEMON, &id.to_string()).await {
                Ok(true) => stopped.push(id),
                Ok(false) => {}
                Err(error) => not_found(error)?,
            }
        }
        for id in &stopped {
            host.runs.0.ended(DAEMON, &id.to_string()).await.map_or_else(not_found, |_| Ok(()))?;
        }
        Ok(stopped)
    }

    async fn begin_run(&self, host: &DagFolders, due: &DueTime<RunId>) -> Result<(), ToolError> {
        let trigger = RunTrigger::Schedule { time: due.time };
        host.begin((&self.file, &self.name, self.owner), due.run, trigger, |_| Value::Null).await
    }
}

/// Whether a run is not over, and waits for no person.
fn works(state: &RunFold) -> bool {
    let waits = state.work().is_some_and(|work| work.progress.waiting().next().is_some());
    state.outcome().is_none() && !(waits && state.due().is_empty())
}

fn not_found(error: ToolError) -> Result<(), ToolError> {
    if error.is(codes::RUN_NOT_FOUND) { Ok(()) } else { Err(error) }
}
