//! State that the actors of this crate share; it outlives their restarts.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hivekeep_kernel::{Census, Resources, TeamId, ToolError};
use hivekeep_ports::{DefaultSize, Network, SessionQuotas, Tasks, Vault};
pub(crate) use hivekeep_runtime::OnBehalfOf;
use hivekeep_runtime::{Daemon, ToolClient, WaiterLimit, Waiters, log::LogSet};
use hivekeep_store::{Events, Journal};

use crate::{
    Options, inbox::Inbox, rates::RejectionLimiter, records::State, tasks::ledger::TaskLedger,
    waiting::WaitingBoard,
};

/// The state that the actors of this crate share.
pub struct TeamShared {
    pub(crate) options: Options,
    pub(crate) rates: bool,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) census: Census,
    pub(crate) member_size: Resources,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) vault: Arc<dyn Vault>,
    /// Calls that wait for messages.
    pub(crate) waits: Waiters,
    /// Limit of waiting calls, those of other families included.
    pub(crate) waiter_limit: Arc<WaiterLimit>,
    /// Messages that are refused.
    pub(crate) rejections: RejectionLimiter,
    pub(crate) tasks: Arc<dyn Tasks>,
    pub(crate) tools: ToolClient<TeamId>,
    /// The streams of teams, and those of their members.
    pub(crate) teams: LogSet<State>,
    pub(crate) inboxes: LogSet<Inbox>,
    pub(crate) ledgers: LogSet<TaskLedger>,
    /// Summaries of what waits for sessions, in memory.
    pub(crate) waiting: Arc<WaitingBoard>,
    deliveries: AtomicU64,
}

impl TeamShared {
    /// Shares what the daemon brings.
    ///
    /// # Errors
    /// When a port that teams need is not offered.
    pub fn new(daemon: &Daemon, options: Options) -> Result<Arc<Self>, ToolError> {
        let Daemon { journal, census, sessions, tools, ports, rate_limits, .. } = daemon.clone();
        let waits =
            WaiterLimit::new(options.waiting_receivers, options.waiting_receivers_per_session);
        Ok(Arc::new(Self {
            rates: rate_limits,
            events: journal.events(),
            teams: LogSet::new(journal.clone()),
            inboxes: LogSet::new(journal.clone()),
            ledgers: LogSet::new(journal.clone()),
            journal,
            sessions,
            census,
            member_size: ports.need::<DefaultSize>()?.0,
            network: ports.need()?,
            vault: ports.need()?,
            tasks: ports.need()?,
            rejections: RejectionLimiter::new(&options, rate_limits),
            waits: waits.of("team"),
            waiter_limit: waits,
            options,
            tools: ToolClient::new(tools),
            waiting: Arc::default(),
            deliveries: AtomicU64::new(0),
        }))
    }

    /// The number of one more delivery, or incarnation of a member. No two have the same, so that the
    /// end of one that a dead incarnation began is not taken for that of another.
    pub(crate) fn next_delivery(&self) -> u64 {
        self.deliveries.fetch_add(1, Ordering::Relaxed)
    }
}
