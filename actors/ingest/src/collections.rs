//! Manager of all collections: their states, one ingestion at a time for each, and the tools.

mod begin;
mod member;

use std::sync::Arc;

use hivekeep_kernel::{ChildEnd, Context, Entity, Fault, ToolCall, ToolError, User, serve};
use hivekeep_runtime::{
    collection::{self, Collection},
    saga::{SagaHandle, SagaSeed},
};
use tokio::sync::oneshot;

use crate::{
    ingestion::{Ingestion, IngestionProgress},
    point::CollectionId,
    refuse::no_collection,
    shared::IngestShared,
    state::{CollectionState, IngestionPlan, stream},
    tools::FAMILIES,
};
use begin::Wish;
use member::{CollectionEntry, key};

/// Messages of the manager.
pub struct Msg(Inner);

/// Reply with the ingestion that runs from now on.
type Running = oneshot::Sender<Result<SagaHandle<Ingestion>, ToolError>>;

enum Inner {
    /// A routed call.
    Tool(Box<ToolCall>),
    /// Begin an ingestion, or follow the same one that runs.
    Begin(Box<Wish>),
    /// The beginning is durable, or is not.
    Begun(CollectionId, Result<(), ToolError>, Running),
    /// State of a user's collection.
    Find(User, String, oneshot::Sender<Result<CollectionState, ToolError>>),
    /// States of all collections of a user.
    List(User, oneshot::Sender<Vec<(CollectionState, Option<IngestionProgress>)>>),
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self(Inner::Tool(Box::new(call)))
    }
}

impl Msg {
    pub(crate) fn begin(
        user: User,
        collection: String,
        plan: IngestionPlan,
        reply: Running,
    ) -> Self {
        Self(Inner::Begin(Box::new(Wish { user, collection, plan, reply })))
    }

    pub(crate) fn find(
        user: User,
        name: String,
        reply: oneshot::Sender<Result<CollectionState, ToolError>>,
    ) -> Self {
        Self(Inner::Find(user, name, reply))
    }

    pub(crate) fn list(
        user: User,
        reply: oneshot::Sender<Vec<(CollectionState, Option<IngestionProgress>)>>,
    ) -> Self {
        Self(Inner::List(user, reply))
    }
}

/// The manager.
pub struct Collections {
    pub(crate) me: Context<Msg>,
    pub(crate) shared: Arc<IngestShared>,
    all: Collection<CollectionEntry>,
}

/// What the manager is made from.
#[derive(Clone)]
pub struct Seed(pub(crate) Arc<IngestShared>);

impl Entity for Collections {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(Seed(shared): Seed, me: Context<Msg>) -> Result<Self, Fault> {
        // What an incarnation before this one decided is written first.
        shared.logs.settled().await;
        let recorded = collection::load::<CollectionState, CollectionId>(&shared.journal).await?;
        let mut manager = Self { all: Collection::new(&me, shared.census.clone()), me, shared };
        for (id, loaded) in recorded {
            let made = loaded.state.made.clone();
            let log = manager.shared.logs.open(stream(id)).await?;
            let entry = CollectionEntry::new(key(made.owner, &made.name), log);
            // A name was given once.
            let _inserted = manager.all.insert(id, entry);
            if loaded.state.run.is_some() {
                manager.run(id)?;
            }
        }
        Ok(manager)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, FAMILIES, &workers, *call);
            }
            Inner::Begin(wish) => self.begin(*wish),
            Inner::Begun(id, outcome, reply) => self.begun(id, outcome, reply),
            // Whoever asked may have gone; so below.
            Inner::Find(user, name, reply) => drop(reply.send(self.find(user, &name))),
            Inner::List(user, reply) => drop(reply.send(self.list(user))),
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let Some((id, ended)) = self.all.handle_end(end)? else { return Ok(()) };
        let Some(entry) = self.all.get_mut(id) else { return Ok(()) };
        if let (collection::MemberEnd::GivenUp(reason), Some(handle)) = (&ended, &entry.handle) {
            handle.give_up(reason);
            return Ok(());
        }
        entry.handle = None;
        if let Some(wish) = entry.waiting.take() {
            self.begin(*wish);
        }
        Ok(())
    }
}

impl Collections {
    /// Gives an ingestion its actor.
    fn run(&mut self, id: CollectionId) -> Result<SagaHandle<Ingestion>, Fault> {
        let entry = self.all.get_mut(id).ok_or_else(|| Fault::new("the collection is gone"))?;
        let handle = SagaHandle::new(entry.log.clone())
            .ok_or_else(|| Fault::new("nothing is recorded of it"))?;
        entry.handle = Some(handle.clone());
        let seed = SagaSeed {
            args: self.shared.clone(),
            handle: handle.clone(),
            sessions: self.shared.sessions.clone(),
            closing: self.shared.closing.clone(),
        };
        self.all.start(id, seed).inspect_err(|Fault(reason)| handle.give_up(reason))?;
        Ok(handle)
    }

    fn find(&self, user: User, name: &str) -> Result<CollectionState, ToolError> {
        let entry = self.all.find_name(&key(user, name)).map(|(_, entry)| entry);
        entry.and_then(|entry| entry.log.state()).ok_or_else(|| no_collection(name))
    }

    fn list(&self, user: User) -> Vec<(CollectionState, Option<IngestionProgress>)> {
        let all = self.all.iter().filter_map(|(_, entry)| {
            let state = entry.log.state().filter(|state| state.made.owner == user)?;
            Some((state, entry.handle.as_ref().map(|handle| handle.view(|view| view.live.clone()))))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|(one, _), (other, _)| one.made.name.cmp(&other.made.name));
        all
    }
}
