//! A supervisor of the sessions: opens them, forgets them.
//!
//! Nothing here grows with the sessions that ever were: those that are live are bounded by
//! `max_sessions` and `max_children`, ended ones by `max_ended` and by what they still own.

mod places;

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    ChildEnd, Context, Door, Entity, Fault, SessionId, ToolError, session_ended,
};
use hivekeep_runtime::{
    collection::{Collection, CollectionMember, MemberEnd},
    log::{Decision, Log, LogError},
};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Attachment, OpenSession, SessionShared, SessionsArgs, User,
    handle::SessionTable,
    records::{Record, stream},
    session::{self, Session},
    shared::About,
};

/// Reply to a client that wants a session.
type Opener = oneshot::Sender<Result<Attachment, ToolError>>;

/// A session as its supervisor has it, until it is over.
pub(crate) enum SessionMember {
    /// Being written; these wait for it.
    Opening { user: User, door: Door, name: Option<String>, openers: Vec<Opener> },
    /// Written. `leaving` when it was told to make room.
    Live { shared: Arc<SessionShared>, name: Option<String>, leaving: bool },
}

impl CollectionMember for SessionMember {
    type Id = SessionId;
    type Actor = Session;
    const KIND: &'static str = "session";

    fn name(&self) -> Option<&str> {
        match self {
            Self::Opening { name, .. } | Self::Live { name, .. } => name.as_deref(),
        }
    }

    fn takes_place(&self) -> bool {
        !matches!(self, Self::Live { leaving: true, .. })
    }
}

impl SessionMember {
    fn user(&self) -> User {
        match self {
            Self::Opening { user, .. } => *user,
            Self::Live { shared, .. } => shared.account.user,
        }
    }

    fn door(&self) -> Door {
        match self {
            Self::Opening { door, .. } => *door,
            Self::Live { shared, .. } => shared.about.door,
        }
    }

    fn shared(&self) -> Option<&Arc<SessionShared>> {
        match self {
            Self::Opening { .. } => None,
            Self::Live { shared, .. } => Some(shared),
        }
    }
}

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
    Written(SessionWritten),
    /// A session that was given up is over. From the supervisor's own worker.
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
pub struct SessionWritten {
    shared: Arc<SessionShared>,
    outcome: Result<(), ToolError>,
}

/// The supervisor of the sessions.
pub struct Sessions {
    me: Context<Msg>,
    table: Arc<SessionTable>,
    /// Sessions that are being written, and those that are not over.
    live: Collection<SessionMember>,
    /// Ended sessions that are kept, the oldest first.
    ended: BTreeSet<(DateTime<Utc>, SessionId)>,
}

impl Entity for Sessions {
    type Msg = Msg;
    type Args = SessionsArgs;

    async fn start(SessionsArgs(table): SessionsArgs, me: Context<Msg>) -> Result<Self, Fault> {
        let live = Collection::new(&me, table.census.clone());
        let mut sessions = Self { me, table, live, ended: BTreeSet::new() };
        let mut all = sessions.table.all();
        // The newer of two sessions with one name has it.
        all.sort_by_key(|shared| Reverse(shared.id));
        for shared in all {
            sessions.keep_ended(shared.id);
            sessions.start_actor(&shared)?;
        }
        sessions.sweep_later();
        Ok(sessions)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Open { request, name, reply } => self.open(request, name, reply),
            Msg::Written(written) => return self.written(written),
            Msg::Ended(id) => self.ended(id),
            Msg::Stayed(id) => self.set_leaving(id, false),
            // The next sweep tries again, and not at once: the disk may be full for a while.
            Msg::Remembered(id) => self.keep_ended(id),
            Msg::Sweep => {
                self.sweep_later();
                self.table.tell_summaries();
                self.sweep();
                let all = self.live.iter().map(|(id, _)| id);
                let lost: Vec<_> = all.filter(|id| self.live.given_up(*id).is_some()).collect();
                lost.into_iter().for_each(|id| self.end_given_up(id));
            }
        }
        Ok(())
    }

    async fn stop(&mut self) {
        self.table.tell_summaries();
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        match self.live.handle_end(end)? {
            Some((id, MemberEnd::InOrder)) => self.ended(id),
            Some((id, MemberEnd::GivenUp(_))) => self.end_given_up(id),
            None => {}
        }
        Ok(())
    }
}

impl Sessions {
    /// Starts the actor of a session that is not over.
    fn start_actor(&mut self, shared: &Arc<SessionShared>) -> Result<(), Fault> {
        let Some(address) = shared.address() else { return Ok(()) };
        let live = |name| SessionMember::Live { shared: shared.clone(), name, leaving: false };
        if self.live.insert(shared.id, live(shared.about.name.clone())).is_err() {
            // Without a name nothing is taken.
            let _inserted = self.live.insert(shared.id, live(None));
        }
        let args = session::Args { table: self.table.clone(), shared: shared.clone() };
        self.live.start_at(shared.id, &address, args)
    }

    fn set_leaving(&mut self, id: SessionId, told: bool) {
        if let Some(SessionMember::Live { leaving, .. }) = self.live.get_mut(id) {
            *leaving = told;
        }
    }

    fn open(&mut self, request: OpenSession, name: Option<String>, reply: Opener) {
        let known = name.as_ref().and_then(|name| self.live.find_name(name)).map(|(id, _)| id);
        if let Some(id) = known {
            return self.join(id, reply);
        }
        if let Err(error) = self.make_room(request.user, request.door) {
            // The client may have gone; so everywhere.
            drop(reply.send(Err(error)));
            return;
        }
        let (id, user, door) = (SessionId::new(), request.user, request.door);
        let opening =
            SessionMember::Opening { user, door, name: name.clone(), openers: vec![reply] };
        // Nobody has the name: it was looked for.
        let _inserted = self.live.insert(id, opening);
        self.write(id, request, name);
    }

    /// Waits for a session that is being written, or lets its own actor attach, as in a resume.
    fn join(&mut self, id: SessionId, reply: Opener) {
        if let Some(SessionMember::Opening { openers, .. }) = self.live.get_mut(id) {
            return openers.push(reply);
        }
        let over_already = self.table.get(id).is_none_or(|shared| shared.ended().is_some());
        match self.live.address(id).filter(|_| !over_already) {
            // The opener hears a failure as a dropped question and may try again.
            Some(address) => {
                if let Err(unavailable) = address.send(session::Msg::Attach(reply)) {
                    tracing::debug!(session = %id, %unavailable, "no actor to attach to");
                }
            }
            None => drop(reply.send(Err(session_ended(id)))),
        }
    }

    fn write(&mut self, id: SessionId, request: OpenSession, name: Option<String>) {
        let OpenSession { door, client, user, profile, .. } = request;
        let about = About { door, client, name, opened_at: Utc::now() };
        let address = self.live.vacant(id);
        let (table, me) = (self.table.clone(), self.me.address.clone());
        let account = table.account(user);
        let log = Log::of(table.journal.clone(), stream(id), None);
        let options = &table.options;
        let shared = SessionShared::new(id, about.clone(), account, options, address, log);
        shared.bind(profile.clone());
        let kind = "session.opened";
        let event = shared.tells(kind).then(|| NewEvent {
            kind: kind.to_owned(),
            subject: id.to_string(),
            data: json!({
                "door": about.door, "client": about.client, "name": about.name, "user": user,
                "profile": profile,
            }),
        });
        let About { door, client, name, opened_at: at } = about;
        let record = Record::Opened { door, client, name, user: Some(user), profile, at };
        let decision = event.into_iter().fold(Decision::record(record), Decision::event);
        let written = shared.log.decide(|_| Ok::<_, LogError>(decision));
        let _detached = self.me.workers.spawn(async move {
            let outcome = match written {
                Ok(durable) => durable.await,
                Err(refused) => Err(refused),
            };
            let (shared, outcome) = (Arc::new(shared), outcome.map_err(ToolError::from));
            // Nobody there: the openers' questions are dropped with this.
            let _ = me.send(Msg::Written(SessionWritten { shared, outcome }));
        });
    }

    fn written(&mut self, SessionWritten { shared, outcome }: SessionWritten) -> Result<(), Fault> {
        let Some(SessionMember::Opening { openers, .. }) = self.live.remove(shared.id) else {
            return Ok(());
        };
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
        self.start_actor(&shared)?;
        for (opener, attachment) in openers.into_iter().zip(attachments) {
            drop(opener.send(Ok(attachment)));
        }
        Ok(())
    }
}
