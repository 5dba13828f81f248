//! The supervisor of the sessions: opens them, forgets them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{ChildNews, Entity, Fault, Layer, Me, Nursery, Policy, SessionId, ToolError};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Attachment, EndReason, Face, OpenSession, SessionsSeed,
    face::About,
    handle::House,
    records::{Record, store_error, stream},
    restore,
    session::{self, Session},
};

/// How often ended sessions are looked through for some to forget.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

type Opener = oneshot::Sender<Result<Attachment, ToolError>>;

/// What the supervisor is told.
#[derive(Debug)]
pub enum Msg {
    /// A session is wanted: a new one, or the one of a name.
    Open {
        /// Who wants it.
        request: OpenSession,
        /// Its name, if it shall last.
        name: Option<String>,
        /// Where the attachment goes.
        reply: Opener,
    },
    /// A new session was written, or not. From the supervisor's own worker.
    #[doc(hidden)]
    Written(Written),
    /// Time to forget ended sessions.
    Sweep,
}

/// A new session on its way through the journal.
#[derive(Debug)]
pub struct Written {
    face: Arc<Face>,
    outcome: Result<(), ToolError>,
    openers: Vec<Opener>,
}

/// The supervisor of the sessions.
pub struct Sessions {
    me: Me<Msg>,
    house: Arc<House>,
    nursery: Nursery,
    /// New sessions that are being written.
    opening: u32,
    /// Others who want a named session that is being written.
    waiting: HashMap<String, Vec<Opener>>,
}

impl Entity for Sessions {
    type Msg = Msg;
    type Seed = SessionsSeed;

    async fn start(SessionsSeed(house): SessionsSeed, me: Me<Msg>) -> Result<Self, Fault> {
        let path = me.address.probe().path().to_owned();
        let nursery = Nursery::new(&path, house.census.clone(), me.cell.clone());
        let mut sessions = Self { me, house, nursery, opening: 0, waiting: HashMap::new() };
        for face in sessions.house.all() {
            sessions.start_actor(&face)?;
        }
        sessions.sweep_later();
        Ok(sessions)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Open { request, name, reply } => self.open(request, name, reply),
            Msg::Written(written) => return self.written(written),
            Msg::Sweep => self.sweep(),
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        self.nursery.hear(news).map(drop)
    }
}

impl Sessions {
    /// Starts the actor of a session that is not over.
    fn start_actor(&mut self, face: &Arc<Face>) -> Result<(), Fault> {
        let Some(address) = face.address() else { return Ok(()) };
        let seed = session::Seed { house: self.house.clone(), face: face.clone() };
        self.nursery.start::<Session>(&face.id.to_string(), Policy::ENTITY, &address, seed)
    }

    fn open(&mut self, request: OpenSession, name: Option<String>, reply: Opener) {
        if let Some(name) = &name {
            if let Some(waiting) = self.waiting.get_mut(name) {
                waiting.push(reply);
                return;
            }
            if let Some(face) = self.of_name(name) {
                self.attach(&face, reply);
                return;
            }
        }
        if let Err(error) = self.make_room() {
            // The client may have gone; so everywhere.
            drop(reply.send(Err(error)));
            return;
        }
        if let Some(name) = &name {
            self.waiting.insert(name.clone(), Vec::new());
        }
        self.write(request, name, reply);
    }

    fn of_name(&self, name: &str) -> Option<Arc<Face>> {
        let mut all = self.house.all().into_iter();
        all.find(|face| face.ended().is_none() && face.about.name.as_deref() == Some(name))
    }

    /// Lets the session's own actor attach, as in a resume.
    fn attach(&self, face: &Arc<Face>, reply: Opener) {
        if let Err(unavailable) = face.tell(session::Msg::Attach(reply)) {
            // The opener hears it as a dropped question and may try again.
            tracing::debug!(session = %face.id, %unavailable, "no actor to attach to");
        }
    }

    fn make_room(&self) -> Result<(), ToolError> {
        let max = self.house.options.sessions.max_sessions.get();
        let live: Vec<_> =
            self.house.all().into_iter().filter(|face| face.ended().is_none()).collect();
        let there = u32::try_from(live.len()).unwrap_or(u32::MAX).saturating_add(self.opening);
        if there < max {
            return Ok(());
        }
        let idle = live.iter().filter(|face| {
            !face.busy() && face.about.name.is_none() && face.ledger().used() == Default::default()
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|face| std::cmp::Reverse(face.idle_for()));
        // Its end takes a moment; the new one need not wait for it.
        let end = || session::Msg::End(EndReason::MadeRoom, None);
        if !idle.iter().any(|face| face.tell(end()).is_ok()) {
            let message = format!("{there} sessions are open and {max} are allowed");
            return Err(ToolError::new(Layer::Session, "too_many_sessions", message)
                .next("end one (`hivekeep sessions`) or raise registry.sessions.max_sessions")
                .retryable()
                .detail("open", there)
                .detail("allowed", max));
        }
        Ok(())
    }

    fn write(&mut self, request: OpenSession, name: Option<String>, reply: Opener) {
        self.opening += 1;
        let id = SessionId::new();
        let OpenSession { door, client, .. } = request;
        let about = About { door, client, name, opened_at: Utc::now() };
        let parent = self.me.address.probe().path();
        let address = restore::address(&self.house.census, parent, id);
        let (house, me) = (self.house.clone(), self.me.address.clone());
        let face = Arc::new(Face::new(id, about.clone(), &house.options, address));
        let _detached = self.me.workers.spawn(async move {
            let event = NewEvent {
                kind: "session.opened".to_owned(),
                subject: id.to_string(),
                data: json!({ "door": about.door, "client": about.client, "name": about.name }),
            };
            let About { door, client, name, opened_at: at } = about;
            let record = Record::Opened { door, client, name, at }.encode();
            let written =
                house.journal.append_and_publish(&stream(id), vec![record], vec![event]).await;
            let outcome = written.map(drop).map_err(|error| store_error(&error));
            // Nobody there: the openers' questions are dropped with this.
            let _ = me.send(Msg::Written(Written { face, outcome, openers: vec![reply] }));
        });
    }

    fn written(&mut self, Written { face, outcome, mut openers }: Written) -> Result<(), Fault> {
        self.opening = self.opening.saturating_sub(1);
        if let Some(name) = &face.about.name {
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
            (0..openers.len()).map(|nth| Attachment::new(face.clone(), nth > 0)).collect();
        self.house.faces.insert(face.id, face.clone());
        self.start_actor(&face)?;
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

    fn sweep(&self) {
        self.sweep_later();
        let kept = i64::try_from(self.house.options.sessions.ended_kept_secs).unwrap_or(i64::MAX);
        let now = Utc::now();
        for face in self.house.all() {
            let Some((at, _)) = face.ended() else { continue };
            if now.signed_duration_since(at).num_seconds() >= kept {
                self.forget(face.id);
            }
        }
    }

    fn forget(&self, id: SessionId) {
        let house = self.house.clone();
        let _detached = self.me.workers.spawn(async move {
            match house.journal.forget(&stream(id)).await {
                Ok(()) => drop(house.faces.remove(&id)),
                Err(error) => tracing::warn!(session = %id, %error, "not forgotten; tried again"),
            }
        });
    }
}
