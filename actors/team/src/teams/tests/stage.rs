//! A manager of teams with its journal, as a root of its own.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, AdmissionPermit, CallCx, CallId, Door, Progress, Receipt, ReceiptPad, Resources,
    RestartPolicy, SessionId, ToolCall, ToolError,
    entity::spawn_root,
    ports::{DefaultSize, Network, Tasks, Vault},
};
use hivekeep_runtime::{Daemon, Ports};
use hivekeep_store::Journal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{fake::Fake, guests::Guests, wires::Shelf};
use crate::{
    Options, TeamShared, TeamsHandle, team,
    teams::{Inner, Msg, Teams},
    tools::team::FAMILY,
};

pub(super) struct Stage {
    pub(super) fake: Fake,
    pub(super) guests: Guests,
    pub(super) shelf: Shelf,
    pub(super) session: SessionId,
    pub(super) journal: Journal,
    pub(super) teams: Address<Msg>,
    pub(super) shared: Arc<TeamShared>,
    cell: ractor::ActorCell,
    options: Options,
    dir: Arc<TempDir>,
}

/// A call that was made and is not answered yet.
pub(super) struct Running {
    answer: oneshot::Receiver<Result<Value, ToolError>>,
    pad: Option<ReceiptPad>,
    pub(super) cancel: CancellationToken,
}

impl Running {
    /// The answer, which reaches the caller.
    pub(super) async fn answer(mut self) -> Result<Value, ToolError> {
        let result = (&mut self.answer).await.expect("it answers");
        if result.is_ok() {
            self.pad.take().expect("once").sign();
        }
        result
    }

    /// The answer, of which the caller does not know yet whether it arrives.
    pub(super) async fn held(mut self) -> Result<(Value, ReceiptPad), ToolError> {
        let result = (&mut self.answer).await.expect("it answers");
        result.map(|value| (value, self.pad.take().expect("once")))
    }

    /// The answer, which does not reach the caller.
    pub(super) async fn lost(mut self) -> Result<Value, ToolError> {
        (&mut self.answer).await.expect("it answers")
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(super) async fn with(options: Options) -> Self {
        let dir = Arc::new(TempDir::new().expect("a folder"));
        Self::open(options, dir, Fake::default(), Guests::default(), SessionId::new()).await
    }

    async fn open(
        options: Options,
        dir: Arc<TempDir>,
        fake: Fake,
        guests: Guests,
        session: SessionId,
    ) -> Self {
        let store = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(store)).await;
        let (journal, _) = opened.expect("no panic").expect("the journal opens");
        let census = hivekeep_kernel::Census::default();
        let teams = Address::vacant(census.probe("teams", "teams", RestartPolicy::ESSENTIAL));
        let ports = Ports::default();
        ports.offer(Arc::new(DefaultSize(Resources::workspace(512, 10))));
        ports.offer::<dyn Tasks>(Arc::new(guests.clone()));
        ports.offer::<dyn Network>(Arc::new(fake.clone()));
        ports.offer::<dyn Vault>(Arc::new(fake.1.clone()));
        let daemon = Daemon {
            census,
            ports,
            ..Daemon::for_tests(
                dir.path(),
                journal.clone(),
                Arc::new(fake.clone()),
                Arc::new(fake.clone()),
            )
        };
        let shared = TeamShared::new(&daemon, options.clone()).expect("every port is offered");
        let (cell, _) = spawn_root::<Teams>(&teams, shared.clone()).await.expect("spawns");
        let shelf = fake.1.clone();
        Self { fake, guests, shelf, session, journal, teams, shared, cell, options, dir }
    }

    pub(super) fn watcher(&self) -> TeamsHandle {
        TeamsHandle::new(self.teams.clone(), self.shared.clone())
    }

    /// The daemon dies where it stands and is started again. What it had begun elsewhere goes on.
    pub(super) async fn crashed(self) -> Self {
        self.cell.kill();
        self.journal.close().await;
        let Self { fake, guests, session, options, dir, teams, shared, journal, .. } = self;
        drop((teams, shared, journal));
        Self::open(options, dir, fake, guests, session).await
    }

    /// A team, beside its manager.
    pub(super) async fn team(&self, name: &str) -> Address<team::Msg> {
        let find = |reply| Msg(Inner::Find(name.to_owned(), reply));
        let found = self.teams.ask(Duration::from_secs(60), find).await;
        found.expect("the manager answers").expect("there is one")
    }

    /// Kills every team where it stands, with its inboxes and its tasks; they are started again.
    pub(super) fn kill_teams(&self) {
        self.cell.get_children().iter().for_each(ractor::ActorCell::kill);
    }

    pub(super) fn begin_as(&self, session: SessionId, args: Value) -> Running {
        self.begin_in(AdmissionPermit::default(), session, args)
    }

    /// With this place among the calls that teams work on.
    pub(super) fn begin_in(
        &self,
        slot: AdmissionPermit,
        session: SessionId,
        args: Value,
    ) -> Running {
        let (reply, answer) = oneshot::channel();
        let (pad, receipt) = Receipt::pair();
        let cancel = CancellationToken::new();
        let cx = CallCx {
            id: CallId::new(),
            session,
            tool: "team",
            door: Door::Internal,
            deadline: Instant::now() + Duration::from_secs(60),
            cancel: cancel.clone(),
            progress: Progress::default(),
            receipt,
            slot,
            reserved: None,
            span: tracing::Span::none(),
        };
        let call = ToolCall { tool: &FAMILY.rows[0].0, cx, args, reply: reply.into() };
        self.teams.send(Msg::from(call)).expect("the manager is there");
        Running { answer, pad: Some(pad), cancel }
    }

    pub(super) fn begin(&self, args: Value) -> Running {
        self.begin_as(self.session, args)
    }

    pub(super) async fn call(&self, args: Value) -> Value {
        let text = args.to_string();
        self.begin(args).answer().await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(super) async fn refused(&self, args: Value) -> ToolError {
        let text = args.to_string();
        match self.begin(args).answer().await {
            Err(error) => error,
            Ok(value) => panic!("{text} was not refused: {value}"),
        }
    }

    pub(super) async fn create(&self, name: &str, members: &[&str]) -> Value {
        self.call(plan(name, members)).await
    }

    pub(super) async fn say(&self, from: &str, to: &str, content: &str) -> Value {
        self.call(speech(from, to, content)).await
    }

    pub(super) async fn teams(&self) -> Vec<Value> {
        self.call(json!({ "action": "list" })).await["teams"].as_array().expect("teams").clone()
    }

    /// Waits until no team is left, as after a start that undoes one.
    pub(super) async fn until_none(&self) {
        eventually("no team is left", async || self.teams().await.is_empty()).await;
    }
}

pub(super) fn plan(name: &str, members: &[&str]) -> Value {
    let roles: Vec<_> = members.iter().map(|one| json!({ "name": one, "role": "hand" })).collect();
    json!({ "action": "create", "name": name, "roles": roles })
}

pub(super) fn speech(from: &str, to: &str, content: &str) -> Value {
    json!({ "action": "message", "name": "crew", "agent": from, "to": to, "content": content })
}

pub(super) fn said(received: &Value) -> Vec<String> {
    let messages = received["messages"].as_array().expect("messages").iter();
    messages.map(|message| message["content"].as_str().expect("a content").to_owned()).collect()
}

pub(super) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within thirty seconds: {what}");
}
