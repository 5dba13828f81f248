//! Manager of all collections: their states, one ingestion at a time for each, and the tools.

mod access;
mod begin;
mod delete;

use std::sync::Arc;

use hivekeep_kernel::{
    ChildEnd, Context, Entity, Fault, Layer, ToolCall, ToolError, ToolGroup, User, serve,
};
use hivekeep_runtime::{
    collection::{self, Collection, CollectionMember},
    log::Log,
    saga::{SagaActor, SagaArgs, SagaHandle},
};
use tokio::sync::oneshot;

use crate::{
    codes,
    ingestion::Ingestion,
    point::CollectionId,
    shared::{IngestShared, Reader},
    state::{CollectionState, IngestionPlan, stream},
};
pub(crate) use access::{SeenCollection, Sharing};
use begin::IngestRequest;

/// Messages of the manager.
pub struct Msg(Inner);

/// Reply to the request to remove a collection.
type Removal = oneshot::Sender<Result<(), ToolError>>;
/// Reply with the ingestion that runs from now on.
type Running = oneshot::Sender<Result<SagaHandle<Ingestion>, ToolError>>;

enum Inner {
    /// A routed call.
    Tool(Box<ToolCall>),
    /// Begin an ingestion, or follow the same one that runs.
    Begin(Box<IngestRequest>),
    /// The beginning of an ingestion is durable, or failed.
    Begun(CollectionId, Result<(), ToolError>, Running),
    /// Remove a user's collection.
    Delete(User, String, Removal),
    /// The data of a collection is removed, or could not be.
    Removed(CollectionId, Result<(), ToolError>, Option<Removal>),
    /// Let workspaces read a user's collection, or no longer.
    Share(User, String, Sharing, Removal),
    /// State of a user's collection.
    Find(User, String, oneshot::Sender<Result<CollectionState, ToolError>>),
    /// State of a collection that a session may read, by its name or id.
    Read(Reader, String, oneshot::Sender<Result<CollectionState, ToolError>>),
    /// All collections that a session may read.
    List(Reader, oneshot::Sender<Vec<SeenCollection>>),
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
        end_watch: bool,
        reply: Running,
    ) -> Self {
        Self(Inner::Begin(Box::new(IngestRequest { user, collection, plan, end_watch, reply })))
    }

    pub(crate) fn delete(user: User, name: String, reply: Removal) -> Self {
        Self(Inner::Delete(user, name, reply))
    }

    pub(crate) fn find(
        user: User,
        name: String,
        reply: oneshot::Sender<Result<CollectionState, ToolError>>,
    ) -> Self {
        Self(Inner::Find(user, name, reply))
    }

    pub(crate) fn share(user: User, name: String, sharing: Sharing, reply: Removal) -> Self {
        Self(Inner::Share(user, name, sharing, reply))
    }

    pub(crate) fn read(
        reader: Reader,
        name: String,
        reply: oneshot::Sender<Result<CollectionState, ToolError>>,
    ) -> Self {
        Self(Inner::Read(reader, name, reply))
    }

    pub(crate) fn list(reader: Reader, reply: oneshot::Sender<Vec<SeenCollection>>) -> Self {
        Self(Inner::List(reader, reply))
    }
}

/// A collection as its manager has it.
struct CollectionEntry {
    owner: User,
    /// Owner and name.
    key: String,
    log: Log<CollectionState>,
    /// The ingestion that runs or has just ended.
    handle: Option<SagaHandle<Ingestion>>,
    /// Whether the beginning of an ingestion, or the removal of the collection, is being written.
    beginning: bool,
    /// Whether the ingestion that begins is to watch.
    watches: bool,
    /// Reply to a removal that waits for the end of the ingestion.
    removal: Option<Removal>,
    /// Ingestion that begins when the actor of the previous one has ended.
    waiting: Option<Box<IngestRequest>>,
}

impl CollectionEntry {
    fn new(owner: User, name: &str, log: Log<CollectionState>) -> Self {
        Self {
            owner,
            key: key(owner, name),
            log,
            handle: None,
            beginning: false,
            watches: false,
            removal: None,
            waiting: None,
        }
    }
}

impl CollectionMember for CollectionEntry {
    type Id = CollectionId;
    type Actor = SagaActor<Ingestion>;
    const KIND: &'static str = "ingestion";

    fn name(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// Unique name of a user's collection.
fn key(owner: User, name: &str) -> String {
    format!("{owner}/{name}")
}

/// Refusal of a name that no collection of the user's has.
fn no_collection(name: &str) -> ToolError {
    ToolError::not_found(Layer::Actor, codes::COLLECTION_NOT_FOUND, "collection", name)
        .next("rag_collections lists yours; rag_ingest makes one")
}

/// Manager of all collections.
pub struct Collections {
    pub(crate) me: Context<Msg>,
    pub(crate) shared: Arc<IngestShared>,
    tools: &'static [&'static ToolGroup<Self>],
    all: Collection<CollectionEntry>,
}

/// Start arguments of the manager.
#[derive(Clone)]
pub struct Args {
    pub(crate) shared: Arc<IngestShared>,
    /// Tools that the manager serves.
    pub(crate) tools: &'static [&'static ToolGroup<Collections>],
}

impl Entity for Collections {
    type Msg = Msg;
    type Args = Args;

    async fn start(Args { shared, tools }: Args, me: Context<Msg>) -> Result<Self, Fault> {
        // Decisions of an earlier incarnation are written first.
        shared.logs.settled().await;
        let recorded = collection::load::<CollectionState, CollectionId>(&shared.journal).await?;
        let all = Collection::new(&me, shared.census.clone());
        let mut manager = Self { all, me, shared, tools };
        for (id, loaded) in recorded {
            let made = loaded.state.made.clone();
            let log = manager.shared.logs.open(stream(id)).await?;
            let entry = CollectionEntry::new(made.owner, &made.name, log);
            // Names are unique: each was given once.
            let _inserted = manager.all.insert(id, entry);
            if loaded.state.deleted {
                manager.remove(id, None);
            } else if loaded.state.run.is_some() {
                manager.run(id)?;
            }
        }
        Ok(manager)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                let tools = self.tools;
                serve::serve(self, tools, &workers, *call);
            }
            Inner::Begin(request) => self.begin(*request),
            Inner::Begun(id, outcome, reply) => self.begun(id, outcome, reply),
            Inner::Delete(user, name, reply) => self.delete(user, &name, reply),
            Inner::Removed(id, outcome, reply) => self.removed(id, outcome, reply),
            // The asker may have gone, here and below.
            Inner::Find(user, name, reply) => drop(reply.send(self.find(user, &name))),
            Inner::Read(reader, name, reply) => drop(reply.send(self.readable(reader, &name))),
            Inner::List(reader, reply) => drop(reply.send(self.list(reader))),
            Inner::Share(user, name, sharing, reply) => self.share(user, &name, sharing, reply),
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let Some((id, ended)) = self.all.handle_end(end)? else { return Ok(()) };
        let Some(entry) = self.all.get_mut(id) else { return Ok(()) };
        let (removal, request) = (entry.removal.take(), entry.waiting.take());
        let given_up = match (ended, &entry.handle) {
            (collection::MemberEnd::GivenUp(reason), Some(handle)) => {
                handle.give_up(&reason);
                Some(reason)
            }
            _ => {
                entry.handle = None;
                None
            }
        };
        if let Some(reply) = removal {
            self.remove(id, Some(reply));
        }
        match (request, given_up) {
            (Some(request), None) => self.begin(*request),
            (Some(request), Some(reason)) => {
                let message = format!("the ingestion before it was given up: {reason}");
                drop(request.reply.send(Err(ToolError::internal(message))));
            }
            (None, _) => {}
        }
        Ok(())
    }
}

impl Collections {
    /// Starts the actor of an ingestion.
    fn run(&mut self, id: CollectionId) -> Result<SagaHandle<Ingestion>, Fault> {
        let entry = self.all.get_mut(id).ok_or_else(|| Fault::new("the collection is gone"))?;
        let handle = SagaHandle::new(entry.log.clone())
            .ok_or_else(|| Fault::new("nothing is recorded of it"))?;
        entry.handle = Some(handle.clone());
        let args = SagaArgs {
            args: self.shared.clone(),
            handle: handle.clone(),
            sessions: self.shared.sessions.clone(),
            closing: self.shared.closing.clone(),
        };
        self.all.start(id, args).inspect_err(|Fault(reason)| handle.give_up(reason))?;
        Ok(handle)
    }
}
