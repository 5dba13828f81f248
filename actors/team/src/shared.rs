//! What the actors of this crate share; it outlives their restarts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use hivekeep_kernel::{
    CallCx, Census, Progress, Resources, SessionId, SwarmId, TeamId, ToolError,
    ports::{DefaultSize, InternalCall, Network, Reservation, Sessions, Tasks, Tools, Vault},
};
use hivekeep_runtime::{Daemon, log::Logs};
use hivekeep_store::{Events, Journal};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Options, SwarmOptions, inbox::Inbox, records::State, rejections::RejectionLimiter,
    tasks::ledger::TaskLedger, waiters::WaiterLimit,
};

/// The state that the actors of this crate share.
pub struct TeamShared {
    pub(crate) options: Options,
    pub(crate) swarm: SwarmOptions,
    pub(crate) rates: bool,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) census: Census,
    pub(crate) closing: CancellationToken,
    pub(crate) member_size: Resources,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) vault: Arc<dyn Vault>,
    /// Calls that wait for messages.
    pub(crate) waits: Arc<WaiterLimit>,
    /// Messages that are refused.
    pub(crate) rejections: RejectionLimiter,
    pub(crate) tasks: Arc<dyn Tasks>,
    /// The streams of teams, and those of their members.
    pub(crate) teams: Logs<State>,
    pub(crate) inboxes: Logs<Inbox>,
    pub(crate) ledgers: Logs<TaskLedger>,
    tools: Arc<dyn Tools>,
    deliveries: AtomicU64,
    /// Calls that have not ended; parties without any are not in it.
    running: Arc<DashMap<RunId, TaskTracker>>,
}

/// For whom calls are made, and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RunId {
    Team(TeamId),
    Swarm(SwarmId),
}

impl From<TeamId> for RunId {
    fn from(id: TeamId) -> Self {
        Self::Team(id)
    }
}

impl From<SwarmId> for RunId {
    fn from(id: SwarmId) -> Self {
        Self::Swarm(id)
    }
}

/// In whose name something is done, and until when.
#[derive(Debug, Clone)]
pub(crate) struct OnBehalfOf {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    /// What was reserved for what is made.
    pub(crate) reserved: Option<Reservation>,
}

impl OnBehalfOf {
    /// For the session of a call, as part of it.
    pub(crate) fn call(cx: &CallCx) -> Self {
        Self {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            reserved: cx.reserved.clone(),
        }
    }

    /// For a session, whatever became of the call that made it necessary.
    pub(crate) fn own(session: SessionId, patience: Duration) -> Self {
        let deadline = Instant::now() + patience;
        Self { session, deadline, cancel: CancellationToken::new(), reserved: None }
    }
}

impl TeamShared {
    /// Shares what the daemon brings.
    ///
    /// # Errors
    /// When a port that teams need is not offered.
    pub fn new(
        daemon: &Daemon,
        options: Options,
        swarm: SwarmOptions,
    ) -> Result<Arc<Self>, ToolError> {
        let Daemon { journal, census, sessions, tools, ports, rate_limits, closing, .. } =
            daemon.clone();
        Ok(Arc::new(Self {
            rates: rate_limits,
            events: journal.events(),
            teams: Logs::new(journal.clone()),
            inboxes: Logs::new(journal.clone()),
            ledgers: Logs::new(journal.clone()),
            journal,
            sessions,
            census,
            closing,
            member_size: ports.need::<DefaultSize>()?.0,
            network: ports.need()?,
            vault: ports.need()?,
            tasks: ports.need()?,
            rejections: RejectionLimiter::new(&options, rate_limits),
            waits: WaiterLimit::new(
                options.waiting_receivers,
                options.waiting_receivers_per_session,
            ),
            options,
            swarm,
            tools,
            deliveries: AtomicU64::new(0),
            running: Arc::default(),
        }))
    }

    /// The number of one more delivery. No two have the same, so that the end of one that a dead
    /// incarnation began is not taken for that of another.
    pub(crate) fn next_delivery(&self) -> u64 {
        self.deliveries.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls a tool for a team or a swarm. Whoever stops waiting stops the call; its work is still
    /// counted among the party's until it has ended.
    pub(crate) async fn call(
        &self,
        party: impl Into<RunId>,
        whom: &OnBehalfOf,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let cancel = whom.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let call = InternalCall {
            session: whom.session,
            deadline: whom.deadline,
            cancel,
            progress: Progress::default(),
            reserved: whom.reserved.clone(),
        };
        let (tools, party, running) = (self.tools.clone(), party.into(), self.running.clone());
        // Counted before the entry is let go: nobody takes it for one without calls.
        let work = running
            .entry(party)
            .or_default()
            .spawn(async move { tools.call(call, tool, args).await });
        let work = tokio::spawn(async move {
            let outcome = work.await;
            running.remove_if(&party, |_, tracker| tracker.is_empty());
            outcome
        });
        let broken = |error| ToolError::internal(format!("`{tool}` for another actor: {error}"));
        work.await.flatten().unwrap_or_else(|error| Err(broken(error)))
    }

    /// Waits until nothing is being done for a party, by incarnations before this one either.
    pub(crate) async fn quiet(&self, party: impl Into<RunId>) {
        let tracker = self.running.get(&party.into()).map(|tracker| tracker.clone());
        if let Some(tracker) = tracker {
            tracker.close();
            tracker.wait().await;
        }
    }

    /// For how many parties something is being done.
    #[cfg(test)]
    pub(crate) fn parties(&self) -> usize {
        self.running.len()
    }

    /// A party that was never planned, or is gone.
    pub(crate) fn forget_idle(&self, party: impl Into<RunId>) {
        self.running.remove_if(&party.into(), |_, tracker| tracker.is_empty());
    }

    /// A party is no more.
    pub(crate) fn forget(&self, party: impl Into<RunId>) {
        self.running.remove(&party.into());
    }
}
