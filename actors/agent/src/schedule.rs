//! Schedules of agents: kept as the latest versions have them, and the executions that they begin, each in a session
//! of its own of the user who deployed the agent.
//!
//! Of several times that passed without a daemon the last one is due, and told as late.

use std::{
    future::pending,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{AgentId, CallCx, ErrorCode, ExecutionId, Layer, SessionId, ToolError, User};
use hivekeep_manifest::agent::{AgentBudget, AgentSchedule, AgentSpec};
use hivekeep_manifest_registry::RegistryCaller;
use hivekeep_runtime::schedule::{BeginPatience, DueTime, PassedTimes, Scheduled, TimeOutcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    execution::{plan::ExecutionRequest, relatives::DAEMON},
    tasks::waiting_for,
    tools::AgentService,
};

type Answer<T> = Result<T, ToolError>;
type AgentTime = DueTime<ExecutionId>;
type AgentOutcome = TimeOutcome<ExecutionId>;

/// Executions of a schedule that wait for a person; for one more the oldest of them is cancelled.
const MOST_WAITING: usize = 3;
/// Time limit of one attempt.
const BEGINNING: Duration = Duration::from_secs(60);
/// Word that a manifest with a schedule has in its text.
const FIELD: &str = "schedule";

/// Agent that begins by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduledAgent {
    pub(crate) agent_id: AgentId,
    /// User who deployed the version; `None` for one from before that was recorded.
    pub(crate) owner: Option<User>,
    pub(crate) schedule: AgentSchedule,
}

impl Scheduled for ScheduledAgent {
    type Id = AgentId;
    type Run = ExecutionId;
    /// Whoever begins executions, once it is there.
    type Host = OnceLock<Weak<AgentService>>;

    const KIND: &'static str = "schedule";
    const NOT_FOUND: &'static ErrorCode = codes::AGENT_NOT_FOUND;
    const LISTED_BY: &'static str = "aegis.agent.list";
    const RUN: &'static str = "execution_id";

    fn owner(&self) -> User {
        self.owner.unwrap_or(User::Nobody)
    }

    fn new_run() -> ExecutionId {
        ExecutionId::new()
    }

    fn times_as(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }

    fn next(&self, since: DateTime<Utc>, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.schedule.times()?.next(since, after)
    }

    fn choose(&self, passed: PassedTimes) -> Option<DateTime<Utc>> {
        let PassedTimes { since, first, now, .. } = passed;
        let last = self.schedule.times().and_then(|times| times.last(since, now));
        Some(last.unwrap_or(first).max(first))
    }

    fn shown(&self) -> Value {
        json!(self.schedule)
    }

    async fn begin(&self, host: &Self::Host, due: &AgentTime) -> AgentOutcome {
        match host.get().and_then(Weak::upgrade) {
            Some(agents) => agents.begin_scheduled(self, due).await,
            // Without it the daemon stops.
            None => pending().await,
        }
    }
}

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
        let all = RegistryCaller { user: User::Nobody, operator: true };
        let kept = self.schedules.all().into_iter().map(|(id, _)| id);
        let mut ids: Vec<AgentId> =
            self.agents.list(all).into_iter().map(|(id, _)| id).chain(kept).collect();
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
                return self.schedules.end(id).await;
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
            let schedule = spec.unwrap_or(AgentSchedule::Manual {});
            if schedule == (AgentSchedule::Manual {}) && self.schedules.get(id).is_none() {
                return Ok(());
            }
            let owner = kept.by.or_else(|| entry.scope.owner());
            self.schedules.set(id, ScheduledAgent { agent_id: id, owner, schedule }).await?;
            // Another version may have been deployed meanwhile.
            let now = self.agents.find(all, &name, None);
            if now.is_ok_and(|(_, _, latest)| Arc::ptr_eq(&latest, &kept)) {
                return Ok(());
            }
        }
    }

    /// Begins the execution of a time that has come, unless it is begun already.
    async fn begin_scheduled(&self, agent: &ScheduledAgent, due: &AgentTime) -> AgentOutcome {
        let is_begun = || self.runs.get(DAEMON, &due.run.to_string()).is_ok();
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
        let (mut session, mut patience) = (None, BeginPatience::default());
        let begun = async {
            while !is_begun() {
                match self.try_scheduled(agent, due, &mut session).await {
                    Ok(()) => break,
                    Err(error) => patience.pause(error).await?,
                }
            }
            Ok(())
        };
        let Err(error) = begun.await else { return TimeOutcome::Begun { waiting, cancelled } };
        if let Some(session) = session {
            // A session that stays holds nothing.
            let _stays = self.shared.children.end(session).await;
        }
        TimeOutcome::Failed { error: Box::new(error) }
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
        due: &AgentTime,
        opened: &mut Option<SessionId>,
    ) -> Answer<()> {
        let owner = agent.owner.ok_or_else(|| {
            let message = "nobody knows who deployed this version of the agent".to_owned();
            ToolError::new(Layer::Actor, codes::AGENT_OWNER_UNKNOWN, message)
                .next("deploy it again, with `force` or by a higher version")
        })?;
        let id = due.run;
        let session = self.shared.children.open_for(owner, &id.to_string()).await?;
        *opened = Some(session);
        let span = tracing::info_span!("schedule", execution = %id);
        let cx = CallCx::internal(session, BEGINNING, CancellationToken::new(), span);
        let request =
            ExecutionRequest { scheduled_for: Some(due.time), ..ExecutionRequest::default() };
        let agent = agent.agent_id.to_string();
        self.start_as(id, &cx, &agent, None, request, AgentBudget::default()).await.map(drop)
    }
}
