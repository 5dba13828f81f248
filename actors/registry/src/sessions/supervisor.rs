//! The supervisor of the sessions: opens them, forgets them.
//!
//! Nothing here grows with the sessions that ever were: those that are live are bounded by
//! `max_sessions`, ended ones by `max_ended` and by what they still own.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    ChildNews, Children, Context, Entity, Fault, Layer, RestartPolicy, SessionId, ToolError,
};
use hivekeep_runtime::log::{Decision, Log, LogError};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Attachment, EndReason, OpenSession, SessionShared, SessionsSeed, User,
    handle::SessionTable,
    records::{Record, stream},
    restore,
    session::{self, Session},
    shared::About,
};
use crate::codes;

/// Interval of forgetting ended sessions and writing summaries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Ended sessions beyond those that are kept, so that they are forgotten several at a time.
const BATCH: usize = 64;

type Opener = oneshot::Sender<Result<Attachment, ToolError>>;

/// Messages of the supervisor.
#[derive(Debug)]
pub enum Msg {
    /// A session is wanted: a new one, or the one of a name.
    Open {
        /// The request.
        request: OpenSession,
        /// Name of the session, if it shall last.
        name: Option<String>,
        /// Reply with the attachment.
        reply: Opener,
    },
    /// A new session was written, or not. From the supervisor's own worker.
    #[doc(hidden)]
    Written(Written),
    /// A session is over. From its actor.
    #[doc(hidden)]
    Ended(SessionId),
    /// A session could not be ended. From its actor.
    #[doc(hidden)]
    Stayed(SessionId),
    /// An ended session could not be forgotten. From the supervisor's own worker.
    #[doc(hidden)]
    Remembered(SessionId),
    /// Time to forget ended sessions.
    Sweep,
}

/// A new session on its way through the journal.
#[derive(Debug)]
pub struct Written {
    shared: Arc<SessionShared>,
    outcome: Result<(), ToolError>,
    openers: Vec<Opener>,
}

/// The supervisor of the sessions.
pub struct Sessions {
    me: Context<Msg>,
    table: Arc<SessionTable>,
    children: Children,
    /// New sessions that are being written, by user.
    opening: HashMap<User, u32>,
    /// Sessions that are not over.
    live: HashMap<SessionId, Arc<SessionShared>>,
    /// Live sessions that last, by name.
    names: HashMap<String, SessionId>,
    /// Live sessions that were told to make room.
    leaving: HashSet<SessionId>,
    /// Ended sessions that are kept, the oldest first.
    ended: BTreeSet<(DateTime<Utc>, SessionId)>,
    /// Others who want a named session that is being written.
    waiting: HashMap<String, Vec<Opener>>,
}

impl Entity for Sessions {
    type Msg = Msg;
    type Seed = SessionsSeed;

    async fn start(SessionsSeed(table): SessionsSeed, me: Context<Msg>) -> Result<Self, Fault> {
        let path = me.address.probe().path().to_owned();
        let children = Children::new(&path, table.census.clone(), me.cell.clone());
        let mut sessions = Self {
            me,
            table,
            children,
            opening: HashMap::new(),
            live: HashMap::new(),
            names: HashMap::new(),
            leaving: HashSet::new(),
            ended: BTreeSet::new(),
            waiting: HashMap::new(),
        };
        for shared in sessions.table.all() {
            sessions.start_actor(&shared)?;
            sessions.know(shared);
        }
        sessions.sweep_later();
        Ok(sessions)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Open { request, name, reply } => self.open(request, name, reply),
            Msg::Written(written) => return self.written(written),
            Msg::Ended(id) => self.ended(id),
            Msg::Stayed(id) => drop(self.leaving.remove(&id)),
            // The next sweep tries again, and not at once: the disk may be full for a while.
            Msg::Remembered(id) => {
                self.table.get(id).into_iter().for_each(|shared| self.know(shared))
            }
            Msg::Sweep => {
                self.sweep_later();
                self.table.tell_summaries();
                self.sweep();
            }
        }
        Ok(())
    }

    async fn stop(&mut self) {
        self.table.tell_summaries();
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        self.children.hear(news).map(drop)
    }
}

impl Sessions {
    /// Starts the actor of a session that is not over.
    fn start_actor(&mut self, shared: &Arc<SessionShared>) -> Result<(), Fault> {
        let Some(address) = shared.address() else { return Ok(()) };
        let seed = session::Seed { table: self.table.clone(), shared: shared.clone() };
        self.children.start::<Session>(
            &shared.id.to_string(),
            RestartPolicy::ENTITY,
            &address,
            seed,
        )
    }

    fn open(&mut self, request: OpenSession, name: Option<String>, reply: Opener) {
        if let Some(name) = &name {
            if let Some(waiting) = self.waiting.get_mut(name) {
                waiting.push(reply);
                return;
            }
            if let Some(shared) = self.of_name(name) {
                self.attach(&shared, reply);
                return;
            }
        }
        if let Err(error) = self.make_room(request.user) {
            // The client may have gone; so everywhere.
            drop(reply.send(Err(error)));
            return;
        }
        if let Some(name) = &name {
            self.waiting.insert(name.clone(), Vec::new());
        }
        self.write(request, name, reply);
    }

    fn know(&mut self, shared: Arc<SessionShared>) {
        if let Some((at, _)) = shared.ended() {
            self.ended.insert((at, shared.id));
            return;
        }
        if let Some(name) = &shared.about.name {
            self.names.insert(name.clone(), shared.id);
        }
        self.live.insert(shared.id, shared);
    }

    fn of_name(&self, name: &str) -> Option<Arc<SessionShared>> {
        let shared = self.live.get(self.names.get(name)?)?;
        shared.ended().is_none().then(|| shared.clone())
    }

    fn ended(&mut self, id: SessionId) {
        self.leaving.remove(&id);
        let Some(shared) = self.live.remove(&id).or_else(|| self.table.get(id)) else { return };
        let name = shared.about.name.as_ref();
        if let Some(name) = name.filter(|name| self.names.get(*name) == Some(&id)) {
            self.names.remove(name);
        }
        if shared.ended().is_some_and(|(_, reason)| !shared.leaves_something(reason)) {
            // Its stream is gone already.
            self.table.sessions.remove(&id);
            return;
        }
        self.know(shared);
        if self.ended.len() > self.max_ended() + BATCH {
            self.sweep();
        }
    }

    fn max_ended(&self) -> usize {
        usize::try_from(self.table.options.sessions.max_ended).unwrap_or(usize::MAX)
    }

    /// Lets the session's own actor attach, as in a resume.
    fn attach(&self, shared: &Arc<SessionShared>, reply: Opener) {
        if let Err(unavailable) = shared.tell(session::Msg::Attach(reply)) {
            // The opener hears it as a dropped question and may try again.
            tracing::debug!(session = %shared.id, %unavailable, "no actor to attach to");
        }
    }

    /// Ends the idlest session that nobody needs if there are too many, of all or of this user.
    fn make_room(&mut self, user: User) -> Result<(), ToolError> {
        let max = self.table.options.sessions.max_sessions.get();
        // One user's sessions do not keep the others out, the operator among them.
        let of_one = max - max / 4;
        let there = |all: bool| {
            let opening = self.opening.iter().filter(|(other, _)| all || **other == user);
            let live = self.live.values().filter(|shared| all || shared.account.user == user);
            let live = live.filter(|shared| !self.leaving.contains(&shared.id)).count();
            opening.map(|(_, count)| count).sum::<u32>() + u32::try_from(live).unwrap_or(u32::MAX)
        };
        let (all, own) = (there(true), there(false));
        if all < max && own < of_one {
            return Ok(());
        }
        let mut idle: Vec<_> = self.live.values().cloned().collect();
        idle.retain(|shared| {
            let spared = self.leaving.contains(&shared.id) || shared.ended().is_some();
            let nobodys = !shared.busy() && shared.about.name.is_none() && !shared.holds();
            nobodys && !spared && (own < of_one || shared.account.user == user)
        });
        idle.sort_by_key(|shared| std::cmp::Reverse(shared.idle_for()));
        // Its end takes a moment; the new one need not wait for it.
        let end = || session::Msg::End(EndReason::MadeRoom, None);
        if let Some(shared) = idle.iter().find(|shared| shared.tell(end()).is_ok()) {
            self.leaving.insert(shared.id);
            return Ok(());
        }
        let (open, allowed, whose) = match own < of_one {
            true => (all, max, "sessions are open".to_owned()),
            false => (own, of_one, format!("sessions of {user} are open")),
        };
        let message = format!("{open} {whose} and {allowed} are allowed");
        Err(ToolError::new(Layer::Session, codes::TOO_MANY_SESSIONS, message)
            .next("end one (`hivekeep sessions`) or raise registry.sessions.max_sessions")
            .retryable()
            .detail("open", open)
            .detail("allowed", allowed))
    }

    fn write(&mut self, request: OpenSession, name: Option<String>, reply: Opener) {
        let id = SessionId::new();
        let OpenSession { door, client, user, .. } = request;
        *self.opening.entry(user).or_default() += 1;
        let about = About { door, client, name, opened_at: Utc::now() };
        let parent = self.me.address.probe().path();
        let address = restore::address(&self.table.census, parent, id);
        let (table, me) = (self.table.clone(), self.me.address.clone());
        let account = table.account(user);
        let log = Log::of(table.journal.clone(), stream(id), None);
        let options = &table.options;
        let shared = SessionShared::new(id, about.clone(), account, options, address, log);
        let kind = "session.opened";
        let event = shared.tells(kind).then(|| NewEvent {
            kind: kind.to_owned(),
            subject: id.to_string(),
            data: json!({
                "door": about.door, "client": about.client, "name": about.name, "user": user,
            }),
        });
        let About { door, client, name, opened_at: at } = about;
        let record = Record::Opened { door, client, name, user: Some(user), at };
        let decision = event.into_iter().fold(Decision::record(record), Decision::event);
        let written = shared.log.decide(|_| Ok::<_, LogError>(decision));
        let _detached = self.me.workers.spawn(async move {
            let outcome = match written {
                Ok(durable) => durable.await,
                Err(refused) => Err(refused),
            };
            let (shared, outcome) = (Arc::new(shared), outcome.map_err(ToolError::from));
            // Nobody there: the openers' questions are dropped with this.
            let _ = me.send(Msg::Written(Written { shared, outcome, openers: vec![reply] }));
        });
    }

    fn written(&mut self, Written { shared, outcome, mut openers }: Written) -> Result<(), Fault> {
        if let Some(opening) = self.opening.get_mut(&shared.account.user) {
            *opening = opening.saturating_sub(1);
        }
        if let Some(name) = &shared.about.name {
            openers.extend(self.waiting.remove(name).into_iter().flatten());
        }
        if let Err(error) = outcome {
            for opener in openers {
                drop(opener.send(Err(error.clone())));
            }
            return Ok(());
        }
        // Attached before the actor starts, so that it never looks detached.
        let attachments: Vec<_> =
            (0..openers.len()).map(|nth| Attachment::new(shared.clone(), nth > 0)).collect();
        self.table.sessions.insert(shared.id, shared.clone());
        self.know(shared.clone());
        self.start_actor(&shared)?;
        for (opener, attachment) in openers.into_iter().zip(attachments) {
            drop(opener.send(Ok(attachment)));
        }
        Ok(())
    }

    fn sweep_later(&self) {
        let me = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(SWEEP_EVERY).await;
            // Nobody there: the next incarnation sweeps.
            let _ = me.send(Msg::Sweep);
        });
    }

    /// Forgets what ended too long ago, or is one too many, and owns nothing any more.
    fn sweep(&mut self) {
        let kept = i64::try_from(self.table.options.sessions.ended_kept_secs).unwrap_or(i64::MAX);
        let now = Utc::now();
        let mut surplus = self.ended.len().saturating_sub(self.max_ended());
        let mut batch = Vec::new();
        let table = self.table.clone();
        self.ended.retain(|(at, id)| {
            let late = now.signed_duration_since(*at).num_seconds() >= kept;
            let gone =
                (late || surplus > 0) && !table.get(*id).is_some_and(|shared| shared.holds());
            surplus -= usize::from(gone && surplus > 0);
            if gone {
                batch.push(*id);
            }
            !gone
        });
        let me = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            for id in batch {
                match table.journal.forget(&stream(id)).await {
                    Ok(()) => drop(table.sessions.remove(&id)),
                    Err(error) => {
                        tracing::warn!(session = %id, %error, "not forgotten; tried again");
                        // Nobody there: the next incarnation finds it.
                        let _ = me.send(Msg::Remembered(id));
                    }
                }
            }
        });
    }
}
