//! Handle to the sessions, and the table that they share.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use dashmap::DashMap;
use hivekeep_kernel::{
    Address, AskError, Census, Door, Layer, Resources, SessionId, ToolError, lock, session_ended,
};
use hivekeep_policy::SessionProfile;
use hivekeep_ports::{Hold, SessionQuotas, Standing};
use hivekeep_runtime::log::{self, Loaded, LogError};
use hivekeep_store::{Events, Journal};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Attachment, EndReason, InFlight, Msg, OpenSession, SessionRow, SessionShared, User,
    account::{Account, QuotaUsage},
    session,
};
use crate::{Options, codes, tiers::CallCounts};

/// Time limit of a question to a session's actor, or to the supervisor. Above the journal's own
/// deadline, which decides.
const PATIENCE: Duration = Duration::from_secs(35);
/// Time limit of waiting for an actor that is starting or restarting.
const STARTING: Duration = Duration::from_secs(2);

/// State that the sessions and their supervisor share.
pub(super) struct SessionTable {
    pub(super) options: Options,
    pub(super) journal: Journal,
    pub(super) events: Events,
    pub(super) census: Census,
    pub(super) supervisor: Address<Msg>,
    /// Every session that is not forgotten.
    pub(super) sessions: DashMap<SessionId, Arc<SessionShared>>,
    accounts: DashMap<User, Arc<Account>>,
    /// Counts of calls from before a restart, until their user's account is made.
    counts: DashMap<User, Loaded<CallCounts>>,
    /// Usage of all sessions together, and its limit. Locked for a few additions, never across an
    /// await.
    host: Mutex<QuotaUsage>,
}

impl SessionTable {
    pub(super) fn new(
        options: &Options,
        room: Resources,
        (journal, events): (Journal, Events),
        census: Census,
        supervisor: Address<Msg>,
    ) -> Self {
        Self {
            options: options.clone(),
            journal,
            events,
            census,
            supervisor,
            sessions: DashMap::new(),
            accounts: DashMap::new(),
            counts: DashMap::new(),
            host: Mutex::new(QuotaUsage::new(room)),
        }
    }

    pub(super) fn account(&self, user: User) -> Arc<Account> {
        let new = || {
            let counts = self.counts.remove(&user).map(|(_, counts)| counts);
            Arc::new(Account::new(user, &self.options, &self.journal, counts))
        };
        self.accounts.entry(user).or_insert_with(new).clone()
    }

    /// Reads the counts of calls back. Blocks.
    pub(super) fn read_counts(&self) -> Result<(), LogError> {
        for (stream, loaded) in log::load_all::<CallCounts>(&self.journal)?.loaded {
            let user = stream.id().replace('-', ":").parse();
            let user = user.map_err(|what| LogError::Unreadable { stream, what })?;
            self.counts.insert(user, loaded);
        }
        Ok(())
    }

    pub(super) fn host(&self) -> MutexGuard<'_, QuotaUsage> {
        lock(&self.host)
    }

    /// Publishes the summaries of what was only counted.
    pub(super) fn tell_summaries(&self) {
        for account in &self.accounts {
            account.refused.tell(account.user, &self.events);
            account.churn.tell(account.user, &self.events);
        }
    }

    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs(self.options.sessions.grace_secs)
    }

    /// All sessions, without holding the map.
    pub(super) fn all(&self) -> Vec<Arc<SessionShared>> {
        self.sessions.iter().map(|shared| shared.clone()).collect()
    }

    pub(super) fn get(&self, id: SessionId) -> Option<Arc<SessionShared>> {
        self.sessions.get(&id).map(|shared| shared.clone())
    }
}

/// The sessions. Cheap to clone.
#[derive(Clone)]
pub struct SessionsHandle(pub(super) Arc<SessionTable>);

/// Start arguments of the supervisor of the sessions.
#[derive(Clone)]
pub struct SessionsArgs(pub(super) Arc<SessionTable>);

impl SessionsHandle {
    /// Opens a session, or resumes the one that is asked for. When that one
    /// is over or forgotten a new one is opened, and the attachment says so.
    ///
    /// # Errors
    /// `too_many_sessions`, `journal_failed`, or `actor_unavailable`.
    pub async fn open(&self, request: OpenSession) -> Result<Attachment, ToolError> {
        let Some(id) = request.resume else { return self.open_new(request, None).await };
        let notice = match self.0.get(id) {
            None => format!("the session {id} is not known (any more); this is a new one"),
            Some(shared) if shared.ended().is_some() => {
                format!("{}; this is a new one", session_ended(id).message)
            }
            Some(shared) => match self.ask_session(&shared, session::Msg::Attach).await.flatten() {
                Ok(attachment) => return Ok(attachment),
                Err(error) if !error.is(codes::SESSION_ENDED) && shared.ended().is_none() => {
                    return Err(error);
                }
                // The session ended while it was asked.
                Err(_) => format!("{}; this is a new one", session_ended(id).message),
            },
        };
        let mut attachment = self.open_new(request, None).await?;
        attachment.notice = Some(notice);
        Ok(attachment)
    }

    /// Attaches to the session of this name; opens it if there is none. Such a
    /// session does not end by itself: it is for clients that come and go and
    /// mean the same, as the command line does. `request.resume` does not count.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_named(
        &self,
        name: &str,
        request: OpenSession,
    ) -> Result<Attachment, ToolError> {
        let give_up = Instant::now() + STARTING;
        loop {
            match self.open_new(request.clone(), Some(name.to_owned())).await {
                // The session of this name is just ending; then there is none.
                Err(error) if error.is(codes::SESSION_ENDED) && Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                answer => return answer,
            }
        }
    }

    /// All sessions, the oldest first; ended ones for as long as they are kept.
    pub async fn list(&self) -> Vec<SessionRow> {
        let mut rows: Vec<_> = self.0.all().iter().map(|shared| shared.row()).collect();
        rows.sort_by_key(|row| row.session);
        rows
    }

    /// The session of a name that is not over.
    pub(crate) fn named(&self, name: &str) -> Option<SessionId> {
        let is =
            |it: &SessionShared| it.about.name.as_deref() == Some(name) && it.ended().is_none();
        self.0.sessions.iter().find(|it| is(it)).map(|it| it.id)
    }

    /// Attaches to a session that is not over; opens none.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`, or `actor_unavailable`.
    pub async fn attach(&self, id: SessionId) -> Result<Attachment, ToolError> {
        let shared = self.0.get(id).ok_or_else(|| unknown(id))?;
        if shared.ended().is_some() {
            return Err(session_ended(id));
        }
        self.ask_session(&shared, session::Msg::Attach).await?
    }

    /// Row of a session, also of one that has ended and is kept still.
    pub fn row(&self, id: SessionId) -> Option<SessionRow> {
        self.0.get(id).map(|shared| shared.row())
    }

    /// User of a session, also of one that has ended and is kept still.
    pub fn owner(&self, id: SessionId) -> Option<User> {
        self.0.get(id).map(|shared| shared.account.user)
    }

    /// Ends a session: cancels its calls, orphans what it owned. Done when it
    /// is in the journal; a session that is over already is no error.
    ///
    /// # Errors
    /// `session_unknown`, `journal_failed`, or `actor_unavailable`.
    pub async fn end(&self, id: SessionId) -> Result<(), ToolError> {
        let shared = self.0.get(id).ok_or_else(|| unknown(id))?;
        if shared.ended().is_some() {
            return Ok(());
        }
        let tell = |reply| session::Msg::End(EndReason::Told, Some(reply));
        match self.ask_session(&shared, tell).await {
            // Ended by another meanwhile.
            Err(_) if shared.ended().is_some() => Ok(()),
            answer => answer?,
        }
    }

    /// User, door and profile of a session that is not over.
    pub(crate) fn standing_of(
        &self,
        id: SessionId,
    ) -> Result<(User, Door, Arc<SessionProfile>), ToolError> {
        let shared = self.0.get(id).ok_or_else(|| unknown(id))?;
        match shared.ended() {
            Some(_) => Err(session_ended(id)),
            None => Ok((shared.account.user, shared.about.door, shared.profile())),
        }
    }

    /// Counts a call of a live session as in flight.
    pub(crate) fn begin_call(&self, id: SessionId) -> Result<InFlight, ToolError> {
        let shared = self.0.get(id).ok_or_else(|| unknown(id))?;
        if shared.ended().is_some() {
            return Err(session_ended(id));
        }
        Ok(InFlight::begin(shared))
    }

    /// True when a refused call of a session gets an event of its own; otherwise it is only
    /// counted.
    pub(crate) fn tells_refusal(&self, session: SessionId, code: &str) -> bool {
        match self.0.get(session) {
            Some(shared) => shared.tells_refusal(code),
            None => self.0.account(User::Nobody).refused.tells(None, session, code),
        }
    }

    async fn open_new(
        &self,
        request: OpenSession,
        name: Option<String>,
    ) -> Result<Attachment, ToolError> {
        let asked = self.0.supervisor.ask(PATIENCE, |reply| Msg::Open { request, name, reply });
        let attachment = asked.await??;
        // Its actor has just been started; whatever comes next finds it there.
        self.ask_session(&attachment.shared, session::Msg::Here).await?;
        Ok(attachment)
    }

    /// Asks a session's actor, waiting a little for one that is just starting.
    async fn ask_session<T>(
        &self,
        shared: &SessionShared,
        question: impl Fn(oneshot::Sender<T>) -> session::Msg,
    ) -> Result<T, ToolError> {
        let give_up = Instant::now() + STARTING;
        loop {
            let address = shared.address().ok_or_else(|| session_ended(shared.id))?;
            match address.ask(PATIENCE, &question).await {
                Err(AskError::Unavailable(_)) if Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                answer => return Ok(answer?),
            }
        }
    }
}

#[async_trait]
impl SessionQuotas for SessionsHandle {
    async fn reserve(&self, session: SessionId, what: Resources) -> Result<(), ToolError> {
        let session = session.principal();
        let shared = self.0.get(session).ok_or_else(|| unknown(session))?;
        if shared.ended().is_some() {
            return Err(session_ended(session));
        }
        self.0.reserve(&shared, what)
    }

    async fn take_over(
        &self,
        by: SessionId,
        from: Option<SessionId>,
        what: Resources,
    ) -> Result<(), ToolError> {
        let shared = self.0.get(by).ok_or_else(|| unknown(by))?;
        if shared.ended().is_some() {
            return Err(session_ended(by));
        }
        self.0.take_over(&shared, from, what)
    }

    fn release(&self, session: SessionId, what: Resources) {
        self.0.release(session.principal(), what);
    }

    fn restore(&self, session: SessionId, what: Resources) {
        self.0.restore(session.principal(), what);
    }

    fn hold(&self, session: SessionId) -> Hold {
        let live = self.0.get(session.principal()).filter(|shared| shared.ended().is_none());
        live.map_or_else(Hold::default, |shared| Hold::of(InFlight::hold(shared)))
    }

    fn user(&self, session: SessionId) -> Option<User> {
        let live = self.0.get(session.principal()).filter(|shared| shared.ended().is_none());
        live.map(|shared| shared.account.user)
    }

    fn last_user(&self, session: SessionId) -> Option<User> {
        self.owner(session.principal())
    }

    fn allowance(&self, user: User, kind: &str) -> Option<u64> {
        self.0.account(user).holds.get(kind).copied()
    }

    /// A session that nobody knows is over. What the daemon has by itself is in use for as long as it is there.
    async fn standing(&self, session: SessionId) -> Standing {
        let nobody =
            Standing { attached: false, calls_in_flight: 0, idle_for: Duration::MAX, ended: true };
        if session.is_stand_in() {
            return Standing {
                attached: true,
                calls_in_flight: 1,
                idle_for: Duration::ZERO,
                ended: false,
            };
        }
        self.0.get(session).map_or(nobody, |shared| shared.standing())
    }
}

impl std::fmt::Debug for SessionsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionsHandle").field("sessions", &self.0.sessions.len()).finish()
    }
}

pub(super) fn unknown(id: SessionId) -> ToolError {
    ToolError::new(Layer::Session, codes::SESSION_UNKNOWN, format!("there is no session {id}"))
        .next("open a session first")
}
