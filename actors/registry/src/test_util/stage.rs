//! Everything between a door and the toy, supervised. Not on a `Rig` of `testkit`, which puts calls
//! into mailboxes past the registry and its sessions: those are what is tested here.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, Backoff, Census, ChildEnd, Children, Context, Door, Entity, Fault, GiveUp, Progress,
    ReceiptPad, Resources, Restart, RestartPolicy, ToolCall, ToolError, entity::spawn_root,
};
use hivekeep_store::{Journal, JournalEvent, SubscriptionItem};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::toy::{Marks, Toy, ToyDirectory, ToyKeeper, toy_tools};
use crate::{
    Attachment, CallOutcome, CallRequest, Catalogue, DispatchParts, Dispatcher, OpenSession,
    Options, Policy, Registry, RegistryArgs, Routes, Sessions, SessionsArgs, SessionsHandle,
    SharedCatalogue, ToolView, User, codes, registry, sessions,
};

/// Restarts at once and for ever: a test ends it.
const QUICK: RestartPolicy = RestartPolicy {
    restart: Restart::OnFailure,
    max_restarts: 1_000,
    window_secs: 60,
    backoff: Backoff { initial_ms: 1, max_ms: 1 },
    give_up: GiveUp::StayDown,
};

/// User of the stage's own session.
pub const USER: User = User::Uid(1);
/// A host without end.
const NO_END: Resources =
    Resources { workspaces: u64::MAX, memory_mb: u64::MAX, disk_gb: u64::MAX };

/// The stage's supervisor: starts its children, restarts them, and makes them
/// fail when told.
struct Supervisor(Children);

#[derive(Clone)]
struct SupervisorArgs {
    census: Census,
    registry: (Address<registry::Msg>, RegistryArgs),
    sessions: (Address<sessions::Msg>, SessionsArgs),
    toy: (Address<ToolCall>, Arc<Marks>),
}

/// Order to the supervisor.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Stop a child in order; it stays stopped.
    Stop(&'static str),
    /// Kill a child where it stands; it is restarted.
    Crash(&'static str),
}

impl Entity for Supervisor {
    type Msg = Order;
    type Args = SupervisorArgs;

    async fn start(args: SupervisorArgs, me: Context<Order>) -> Result<Self, Fault> {
        let SupervisorArgs { census, registry, sessions, toy } = args;
        let mut children = Children::new("", census, me.cell);
        children.start::<Registry>("registry", QUICK, &registry.0, registry.1)?;
        children.start::<Sessions>("sessions", QUICK, &sessions.0, sessions.1)?;
        children.start::<Toy>("toy", QUICK, &toy.0, toy.1)?;
        Ok(Self(children))
    }

    fn handle(&mut self, order: Order) -> Result<(), Fault> {
        match order {
            Order::Stop(name) => self.0.stop(name, "told to"),
            Order::Crash(name) => self.0.kill(name),
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(end).map(drop)
    }
}

/// A running system with the toy as its only actor. Ended when dropped.
pub struct Stage {
    /// The way to the toy.
    pub dispatcher: Dispatcher,
    /// The sessions.
    pub sessions: SessionsHandle,
    /// The toy's six tools.
    pub catalogue: Arc<Catalogue>,
    /// An attachment to call with.
    pub attachment: Attachment,
    /// Counters of the toy.
    pub marks: Arc<Marks>,
    /// Results that were too large.
    pub keeper: Arc<ToyKeeper>,
    /// The journal.
    pub journal: Journal,
    /// Vital signs of all actors.
    pub census: Census,
    /// The supervisor of all actors.
    pub supervisor: Address<Order>,
    cell: ractor::ActorCell,
    dir: Arc<TempDir>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.cell.kill();
    }
}

impl Stage {
    /// A stage with these options, on an empty state directory.
    pub async fn new(options: Options) -> Self {
        Self::on(options, NO_END).await
    }

    /// A stage on a host with this room.
    pub async fn on(options: Options, room: Resources) -> Self {
        let dir = Arc::new(TempDir::new().expect("a directory"));
        Self::build(options, room, Vec::new(), hivekeep_policy::Options::default(), dir).await
    }

    /// A stage with further policies.
    pub async fn with_policies(options: Options, policies: Vec<Arc<dyn Policy>>) -> Self {
        let dir = Arc::new(TempDir::new().expect("a directory"));
        Self::build(options, NO_END, policies, hivekeep_policy::Options::default(), dir).await
    }

    /// A stage whose calls are ruled on.
    pub async fn ruled(policy: hivekeep_policy::Options) -> Self {
        let dir = Arc::new(TempDir::new().expect("a directory"));
        Self::build(Self::loose(), NO_END, Vec::new(), policy, dir).await
    }

    /// Like [`Self::restarted`], for a stage whose calls are ruled on.
    pub async fn restarted_ruled(self, policy: hivekeep_policy::Options) -> Self {
        let dir = self.dir.clone();
        self.cell.kill();
        self.journal.close().await;
        drop(self);
        Self::build(Self::loose(), NO_END, Vec::new(), policy, dir).await
    }

    /// Options that limit nothing that a test does not mean to test.
    pub fn loose() -> Options {
        let mut options = Options::default();
        options.rate.enabled = false;
        options
    }

    /// Ends everything without telling anyone, as a crash does, and starts again
    /// on what is on the disk.
    pub async fn restarted(self, options: Options) -> Self {
        let dir = self.dir.clone();
        self.cell.kill();
        self.journal.close().await;
        drop(self);
        Self::build(options, NO_END, Vec::new(), hivekeep_policy::Options::default(), dir).await
    }

    async fn build(
        options: Options,
        room: Resources,
        policies: Vec<Arc<dyn Policy>>,
        policy: hivekeep_policy::Options,
        dir: Arc<TempDir>,
    ) -> Self {
        let census = Census::default();
        let store = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(store)).await;
        let (journal, _) = opened.expect("no panic").expect("the journal opens");
        let registry = Address::vacant(census.probe("registry", "registry", QUICK));
        let sessions = Address::vacant(census.probe("sessions", "sessions", QUICK));
        let toy = Address::vacant(census.probe("toy", "toy", QUICK));
        let supervisor = Address::vacant(census.probe("supervisor", "supervisor", QUICK));
        let (handle, args) = SessionsHandle::restore(
            &options,
            room,
            journal.clone(),
            census.clone(),
            sessions.clone(),
        )
        .expect("the sessions are readable");
        let (marks, keeper) = (Arc::<Marks>::default(), Arc::<ToyKeeper>::default());
        let catalogue = Arc::new(Catalogue::new(toy_tools()).expect("the toys are declared well"));
        let routes = Routes::default()
            .singleton("toy", Arc::new(toy.clone()))
            .directory("toy", Arc::new(ToyDirectory(toy.clone())));
        assert_eq!(routes.unserved(&catalogue), [""; 0]);
        let args = SupervisorArgs {
            census: census.clone(),
            registry: (registry.clone(), RegistryArgs { admission: options.admission.clone() }),
            sessions: (sessions, args),
            toy: (toy.clone(), marks.clone()),
        };
        let (cell, _) = spawn_root::<Supervisor>(&supervisor, args).await.expect("spawns");
        let policy = hivekeep_policy::PolicyEngine::open(
            policy,
            catalogue.entries().map(|entry| entry.spec).collect(),
            journal.clone(),
        );
        let policy = policy.await.expect("the rules are readable");
        let parts = DispatchParts {
            options,
            policy,
            catalogue: Arc::new(SharedCatalogue::new((*catalogue).clone())),
            routes,
            registry,
            sessions: handle.clone(),
            events: journal.events(),
            audit: None,
            policies,
            waiting: None,
            results: Some(keeper.clone()),
        };
        let dispatcher = Dispatcher::new(parts).expect("patterns");
        running(&census, &["registry", "sessions", "toy"]).await;
        let request = OpenSession {
            door: Door::Internal,
            client: "stage".to_owned(),
            user: USER,
            resume: None,
            profile: Default::default(),
        };
        let attachment = handle.open(request).await.expect("a session");
        Self {
            dispatcher,
            sessions: handle,
            catalogue,
            attachment,
            marks,
            keeper,
            journal,
            census,
            supervisor,
            cell,
            dir,
        }
    }

    /// A request of the stage's own session.
    pub fn request(&self, tool: &str, args: Value) -> CallRequest {
        let Value::Object(args) = args else { panic!("the input must be an object") };
        CallRequest {
            session: self.attachment.session,
            door: Door::Internal,
            tool: tool.to_owned(),
            args,
            progress: Progress::default(),
            cancel: CancellationToken::new(),
            timeout: None,
            view: Arc::new(ToolView::operator()),
            trace: None,
            effect: None,
            approval: crate::ApprovalRoute::default(),
        }
    }

    /// Calls a tool from the stage's own session, which takes the answer.
    pub async fn call(&self, tool: &str, args: Value) -> CallOutcome {
        let mut outcome = self.dispatcher.call(self.request(tool, args)).await;
        outcome.receipt.take().into_iter().for_each(ReceiptPad::sign);
        outcome
    }

    /// Calls a tool that must be refused.
    pub async fn refusal(&self, tool: &str, args: Value) -> ToolError {
        self.call(tool, args).await.result.expect_err("must be refused")
    }

    /// Calls a tool while its actor may be restarting.
    pub async fn call_patiently(&self, tool: &str, args: Value) -> CallOutcome {
        for _ in 0..1_000 {
            let outcome = self.call(tool, args.clone()).await;
            let unavailable = |error: &ToolError| error.is(codes::ACTOR_UNAVAILABLE);
            if !outcome.result.as_ref().is_err_and(unavailable) {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("`{tool}` did not come back");
    }

    /// Kills an actor and waits until it has been started again.
    pub async fn crash(&self, name: &'static str) {
        let restarts = || {
            let rows = self.census.rows();
            rows.iter().find(|row| row.path == name).map_or(0, |row| row.restarts)
        };
        let before = restarts();
        self.supervisor.send(Order::Crash(name)).expect("the supervisor lives");
        eventually("it is restarted", || restarts() > before).await;
        running(&self.census, &[name]).await;
    }

    /// The events of a kind, from the first on, until there are as many as wanted.
    pub async fn events(&self, kind: &str, wanted: usize) -> Vec<JournalEvent> {
        self.events_of(kind, None, wanted).await
    }

    /// Like [`Self::events`], for one subject.
    pub async fn events_of(
        &self,
        kind: &str,
        subject: Option<&str>,
        wanted: usize,
    ) -> Vec<JournalEvent> {
        let mut subscription =
            self.journal.events().subscribe(Some(hivekeep_store::Seq::FIRST), 256);
        let mut found = Vec::new();
        let collect = async {
            while found.len() < wanted {
                if let SubscriptionItem::Event(event) =
                    subscription.next().await.expect("the journal runs")
                    && event.kind == kind
                    && subject.is_none_or(|subject| event.subject == subject)
                {
                    found.push(JournalEvent::clone(&event));
                }
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), collect).await;
        assert!(waited.is_ok(), "{wanted} events `{kind}` expected, {} told", found.len());
        found
    }
}

/// Waits until these actors run.
pub async fn running(census: &Census, paths: &[&str]) {
    eventually("the actors run", || {
        let rows = census.rows();
        paths.iter().all(|path| rows.iter().any(|row| row.path == *path && row.state == "running"))
    })
    .await;
}

/// Waits until something is so; panics after ten seconds.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within ten seconds: {what}");
}
