//! Schedules of agents: kept as the latest versions have them, and the executions that they begin, each in a session
//! of its own of the user who deployed the agent.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, Layer, SessionId, ToolError, User};
use hivekeep_manifest::agent::{AgentBudget, AgentSchedule, AgentSpec};
use hivekeep_manifest_registry::RegistryCaller;
use hivekeep_runtime::{
    log::Decision,
    runs::{RunState, SequencedEvent},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    execution::{plan::ExecutionRequest, relatives::DAEMON},
    schedule::{DueTime, ScheduleRecord, ScheduleState, ScheduledAgent, TimeOutcome},
    tasks::waiting_for,
    tools::AgentService,
};

type Answer<T> = Result<T, ToolError>;

/// Executions of a schedule that wait for a person; for one more the oldest of them is cancelled.
const MOST_WAITING: usize = 3;
/// Time for which a place for an execution is waited for.
const PATIENCE: Duration = Duration::from_secs(600);
/// First pause between two attempts; doubled up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time limit of one attempt.
const BEGINNING: Duration = Duration::from_secs(60);
/// Word that a manifest with a schedule has in its text.
const FIELD: &str = "schedule";

impl AgentService {
    /// Refuses a schedule to an agent: what begins by itself has the user's rights, and not those of the session that
    /// deployed it.
    ///
    /// # Errors
    /// `schedule_denied`.
    pub(crate) fn may_schedule(&self, cx: &CallCx, spec: &AgentSpec) -> Answer<()> {
        let begins = spec.schedule.as_ref().is_some_and(|it| it.times().is_some());
        if !begins || self.shared.children.agents_above(cx.session).is_empty() {
            return Ok(());
        }
        let message = "no agent deploys one that begins by itself".to_owned();
        Err(ToolError::new(Layer::Policy, codes::SCHEDULE_DENIED, message)
            .next("leave `spec.schedule` out, and have a person deploy it with a schedule"))
    }

    /// Makes the schedules those of the agents that there are.
    pub(crate) async fn restore_schedules(&self) {
        let (kept, _) = self.schedules.list(DAEMON, None, usize::MAX);
        let all = RegistryCaller { user: User::Nobody, operator: true };
        let agents = self.agents.list(all).into_iter().map(|(id, _)| id);
        let mut ids: Vec<AgentId> = agents.chain(kept.into_iter().map(|(id, _)| id)).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Err(error) = self.follow_schedule(id).await {
                tracing::warn!(agent = %id, %error, "its schedule is not followed");
            }
        }
    }

    /// Makes the schedule of an agent that of its latest version, or ends it with the agent.
    ///
    /// # Errors
    /// `too_many_runs`, `journal_failed`.
    pub(crate) async fn follow_schedule(&self, id: AgentId) -> Answer<()> {
        let (all, name) = (RegistryCaller { user: User::Nobody, operator: true }, id.to_string());
        loop {
            let Ok((_, entry, kept)) = self.agents.find(all, &name, None) else {
                return match self.schedules.cancel(DAEMON, &name).await {
                    Err(error) if !error.is(codes::AGENT_NOT_FOUND) => Err(error),
                    _ => Ok(()),
                };
            };
            let spec = match kept.text.contains(FIELD) {
                true => match self.manifest(all, &name, None).await {
                    Ok((_, manifest)) => manifest.spec.schedule,
                    // Deleted meanwhile.
                    Err(error) if error.is(codes::AGENT_NOT_FOUND) => continue,
                    Err(error) => return Err(error),
                },
                false => None,
            };
            let known = self.schedules.get(DAEMON, &name).ok();
            let schedule = match (spec.unwrap_or(AgentSchedule::Manual {}), &known) {
                (AgentSchedule::Manual {}, None) => return Ok(()),
                (schedule, _) => schedule,
            };
            let owner = kept.by.or_else(|| entry.scope.owner());
            let agent = ScheduledAgent { agent_id: id, owner, schedule };
            let record = |agent| ScheduleRecord::Set { agent: Box::new(agent), at: Utc::now() };
            match known {
                None => self.schedules.begin(id, record(agent)).await?,
                Some(_) => {
                    let decide = move |state: &ScheduleState| {
                        Ok(match *state.agent == agent {
                            true => Decision::nothing(),
                            false => Decision::record(record(agent)),
                        })
                    };
                    self.schedules.tell(DAEMON, &name, decide).await?;
                }
            }
            // Another version may have been deployed meanwhile.
            let now = self.agents.find(all, &name, None);
            if now.is_ok_and(|(_, _, latest)| Arc::ptr_eq(&latest, &kept)) {
                return Ok(());
            }
        }
    }

    /// Begins the execution of a time that has come, unless it is begun already.
    pub(crate) async fn begin_scheduled(
        &self,
        agent: &ScheduledAgent,
        due: &DueTime,
    ) -> TimeOutcome {
        let is_begun = || self.runs.get(DAEMON, &due.execution.to_string()).is_ok();
        let (mut waiting, mut cancelled) = (Vec::new(), Vec::new());
        if !is_begun() {
            match self.open_ones(agent.agent_id) {
                Ok(open) => waiting = open,
                Err(working) => return TimeOutcome::Skipped { working },
            }
        }
        while waiting.len() >= MOST_WAITING {
            let oldest = waiting.remove(0);
            match self.runs.cancel(DAEMON, &oldest.to_string()).await {
                Ok(true) => cancelled.push(oldest),
                // An execution that has ended meanwhile is not in the way either.
                Ok(false) => {}
                Err(error) if error.is(codes::EXECUTION_NOT_FOUND) => {}
                Err(error) => return TimeOutcome::Failed { error: Box::new(error) },
            }
        }
        let (until, mut pause, mut session) = (Instant::now() + PATIENCE, PAUSE, None);
        while !is_begun() {
            let Err(error) = self.try_scheduled(agent, due, &mut session).await else { break };
            if !error.retryable || Instant::now() + pause > until {
                if let Some(session) = session {
                    // A session that stays holds nothing.
                    let _stays = self.shared.children.end(session).await;
                }
                return TimeOutcome::Failed { error: Box::new(error) };
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        TimeOutcome::Begun { waiting, cancelled }
    }

    /// Executions of an agent's schedule that wait for a person, the oldest first.
    ///
    /// # Errors
    /// One that works.
    fn open_ones(&self, agent: AgentId) -> Result<Vec<ExecutionId>, ExecutionId> {
        let (rows, _) = self.runs.list(DAEMON, Some(&agent.to_string()), usize::MAX);
        let asks = self.shared.children.awaiting_approval();
        let scheduled = rows.into_iter().rev().filter(|(_, view)| {
            view.state.begun.plan.scheduled_for.is_some() && !view.status().is_over()
        });
        scheduled.map(|(id, view)| waiting_for(&view, &asks).map(|_| id).ok_or(id)).collect()
    }

    async fn try_scheduled(
        &self,
        agent: &ScheduledAgent,
        due: &DueTime,
        opened: &mut Option<SessionId>,
    ) -> Answer<()> {
        let owner = agent.owner.ok_or_else(|| {
            let message = "nobody knows who deployed this version of the agent".to_owned();
            ToolError::new(Layer::Actor, codes::AGENT_OWNER_UNKNOWN, message)
                .next("deploy it again, with `force` or by a higher version")
        })?;
        let id = due.execution;
        let session = self.shared.children.open_for(owner, &id.to_string()).await?;
        *opened = Some(session);
        let span = tracing::info_span!("schedule", execution = %id);
        let cx = CallCx::internal(session, BEGINNING, CancellationToken::new(), span);
        let request =
            ExecutionRequest { scheduled_for: Some(due.time), ..ExecutionRequest::default() };
        let agent = agent.agent_id.to_string();
        self.start_as(id, &cx, &agent, None, request, AgentBudget::default()).await.map(drop)
    }

    /// Events of an agent's schedule that a caller may see.
    pub(crate) fn schedule_events(&self, cx: &CallCx, agent: &str) -> Vec<SequencedEvent> {
        let Ok(view) = self.schedules.get(self.run_caller(cx), agent) else { return Vec::new() };
        let told = view.state.told.iter().enumerate();
        let event = |(at, record): (usize, &ScheduleRecord)| SequencedEvent {
            sequence: at as u64 + 1,
            recorded_at: ScheduleState::recorded_at(record).unwrap_or_default(),
            event: ScheduleState::event(record),
        };
        told.map(event).collect()
    }
}
