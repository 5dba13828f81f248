//! Shared state of a session, readable without asking its actor.

use std::{
    collections::BTreeSet,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use chrono::{DateTime, Utc};
use hivekeep_kernel::{Address, Door, SessionId, ToolError, lock, mailbox::ActorUnavailable};
use hivekeep_policy::SessionProfile;
use hivekeep_ports::Standing;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    EndReason, SessionRow, SessionState,
    account::{Account, QuotaUsage, session_bucket},
    limiter::{Bucket, Limiter},
    records::SessionLog,
    session,
};
use crate::{Options, tiers::CallPermit};

/// Origin of a session; never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) door: Door,
    pub(crate) client: String,
    /// A session with a name is found by it and does not end by itself.
    pub(crate) name: Option<String>,
    pub(crate) opened_at: DateTime<Utc>,
}

#[derive(Debug)]
pub(crate) struct SessionShared {
    pub(crate) id: SessionId,
    pub(crate) about: About,
    /// The account of its user, over all sessions.
    pub(crate) account: Arc<Account>,
    pub(crate) limiter: Limiter,
    /// The session's bucket for refused calls that get an event of their own.
    refused: Bucket,
    /// Held for a few additions, never across an await.
    usage: Mutex<QuotaUsage>,
    attached: AtomicU32,
    /// True when the session's last event was about a client.
    told_attached: AtomicBool,
    /// True when anything was ever done in the session, or may have been before a restart.
    used: AtomicBool,
    calls: AtomicU32,
    calls_total: AtomicU64,
    born: Instant,
    /// Milliseconds after `born`.
    last_active_ms: AtomicU64,
    /// Fires when the session is over; calls in flight end with it.
    pub(crate) over: CancellationToken,
    ended: OnceLock<(DateTime<Utc>, EndReason)>,
    /// The session's actor; none once the session is over.
    address: ArcSwapOption<Address<session::Msg>>,
    pub(super) log: SessionLog,
    /// Families that the session has loaded.
    pub(super) toolsets: watch::Sender<BTreeSet<String>>,
    /// Profile of the session; read by each call.
    profile: ArcSwap<SessionProfile>,
}

impl SessionShared {
    pub(crate) fn new(
        id: SessionId,
        about: About,
        account: Arc<Account>,
        options: &Options,
        address: Address<session::Msg>,
        log: SessionLog,
    ) -> Self {
        Self {
            id,
            about,
            account,
            limiter: Limiter::new(&options.rate, NonZeroU32::MIN),
            refused: session_bucket(),
            usage: Mutex::new(QuotaUsage::new(options.quota.limit())),
            attached: AtomicU32::new(0),
            told_attached: AtomicBool::new(true),
            used: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            calls_total: AtomicU64::new(0),
            born: Instant::now(),
            last_active_ms: AtomicU64::new(0),
            over: CancellationToken::new(),
            ended: OnceLock::new(),
            address: ArcSwapOption::from_pointee(address),
            log,
            toolsets: watch::Sender::default(),
            profile: ArcSwap::default(),
        }
    }

    pub(crate) fn profile(&self) -> Arc<SessionProfile> {
        self.profile.load_full()
    }

    pub(super) fn bind(&self, profile: SessionProfile) {
        self.profile.store(Arc::new(profile));
    }

    /// Marks the session as over. Its actor's address is given to nobody any more.
    pub(crate) fn end(&self, at: DateTime<Utc>, reason: EndReason) {
        let _first_wins = self.ended.set((at, reason));
        self.address.store(None);
        self.over.cancel();
    }

    pub(crate) fn ended(&self) -> Option<(DateTime<Utc>, EndReason)> {
        self.ended.get().copied()
    }

    pub(crate) fn address(&self) -> Option<Address<session::Msg>> {
        self.address.load().as_deref().cloned()
    }

    pub(crate) fn tell(&self, message: session::Msg) -> Result<(), ActorUnavailable> {
        match &*self.address.load() {
            Some(address) => address.send(message),
            // Over: there is nothing left to decide.
            None => Ok(()),
        }
    }

    pub(crate) fn usage(&self) -> MutexGuard<'_, QuotaUsage> {
        lock(&self.usage)
    }

    /// Counts one more attachment. Undone by [`SessionShared::detach`].
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, SeqCst);
        self.touch();
    }

    pub(crate) fn detach(&self) {
        self.touch();
        self.attached.fetch_sub(1, SeqCst);
        // An actor that is being restarted counts when it is back.
        let _ = self.tell(session::Msg::Detached);
    }

    pub(crate) fn told_attached(&self) -> bool {
        self.told_attached.load(SeqCst)
    }

    pub(crate) fn tell_attached(&self, attached: bool) {
        self.told_attached.store(attached, SeqCst);
    }

    /// Notes that something was done in the session.
    pub(super) fn mark_used(&self) {
        self.used.store(true, SeqCst);
    }

    /// True when an end for this reason leaves anything behind. A session in which nothing was done
    /// and that makes room is forgotten: any number of these can come and go.
    pub(super) fn leaves_something(&self, reason: EndReason) -> bool {
        reason != EndReason::MadeRoom || self.used.load(SeqCst) || self.holds()
    }

    /// True when the session owns something.
    pub(super) fn holds(&self) -> bool {
        self.usage().holds()
    }

    /// True when a refused call of the session gets an event of its own; otherwise it is only
    /// counted.
    pub(crate) fn tells_refusal(&self, code: &str) -> bool {
        self.account.refused.tells(Some(&self.refused), self.id, code)
    }

    /// True when a change of the session gets an event of its own; otherwise it is only counted.
    pub(super) fn tells(&self, what: &str) -> bool {
        self.account.churn.tells(None, self.id, what)
    }

    pub(crate) fn attached(&self) -> u32 {
        self.attached.load(SeqCst)
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(SeqCst)
    }

    /// True when a client is attached or a call running.
    pub(crate) fn busy(&self) -> bool {
        self.attached() > 0 || self.calls() > 0
    }

    /// Time since a client was attached or a call running.
    pub(crate) fn idle_for(&self) -> Duration {
        if self.busy() {
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last_active_ms.load(Relaxed));
        self.born.elapsed().saturating_sub(last)
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing {
            attached: self.attached() > 0,
            calls_in_flight: self.calls(),
            idle_for: self.idle_for(),
            ended: self.ended().is_some(),
        }
    }

    pub(crate) fn row(&self) -> SessionRow {
        let (ended, usage) = (self.ended(), *self.usage());
        let state = match (ended, self.attached()) {
            (Some(_), _) => SessionState::Ended,
            (None, 0) => SessionState::Detached,
            (None, _) => SessionState::Attached,
        };
        SessionRow {
            session: self.id,
            state,
            door: self.about.door,
            client: self.about.client.clone(),
            user: Some(self.account.user),
            name: self.about.name.clone(),
            attachments: self.attached(),
            calls_in_flight: self.calls(),
            calls_total: self.calls_total.load(Relaxed),
            idle_secs: self.idle_for().as_secs(),
            used: usage.used(),
            allowed: usage.limit(),
            opened_at: self.about.opened_at,
            ended_at: ended.map(|(at, _)| at),
            profile: SessionProfile::clone(&self.profile()),
            end_reason: ended.map(|(_, reason)| reason),
        }
    }

    fn touch(&self) {
        let ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_active_ms.store(ms, Relaxed);
    }
}

/// A call being counted as in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    shared: Arc<SessionShared>,
    /// Permit of the user's tier, if it limits such calls at a time.
    permit: Option<CallPermit>,
}

impl InFlight {
    pub(crate) fn begin(shared: Arc<SessionShared>) -> Self {
        shared.calls_total.fetch_add(1, Relaxed);
        Self::hold(shared)
    }

    /// Counts work that is not a call as in flight.
    pub(crate) fn hold(shared: Arc<SessionShared>) -> Self {
        shared.calls.fetch_add(1, SeqCst);
        shared.mark_used();
        Self { shared, permit: None }
    }

    pub(crate) fn shared(&self) -> &Arc<SessionShared> {
        &self.shared
    }

    /// Takes the call from the limits of the user's tier.
    pub(crate) async fn take(&mut self, tool: &str) -> Result<(), ToolError> {
        if let Some(meter) = &self.shared.account.meter {
            self.permit = meter.take(tool, Utc::now()).await?;
        }
        Ok(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.touch();
        self.shared.calls.fetch_sub(1, SeqCst);
    }
}
