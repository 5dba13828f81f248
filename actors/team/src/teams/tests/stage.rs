//! Teams with a journal and a world that outlives them.

use std::{ops::Deref, sync::Arc, time::Duration};

use hivekeep_kernel::{Address, Resources, SessionId, ToolError};
use hivekeep_ports::{DefaultSize, Network, Tasks, Vault};
use hivekeep_store::Journal;
pub(super) use hivekeep_testkit::eventually;
use hivekeep_testkit::{PendingCall, Rig, RigServices};
use serde_json::{Value, json};

use super::{fake::Fake, guests::Guests, wires::Shelf};
use crate::{
    Options, TeamFamily, TeamShared, TeamsHandle, team,
    teams::{Inner, Msg},
};

const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) fake: Fake,
    pub(super) guests: Guests,
    pub(super) shelf: Shelf,
    pub(super) journal: Journal,
    pub(super) teams: Address<Msg>,
    pub(super) shared: Arc<TeamShared>,
    pub(super) watcher: Arc<TeamsHandle>,
    rig: Rig<TeamFamily>,
}

impl Deref for Stage {
    type Target = Rig<TeamFamily>;

    fn deref(&self) -> &Self::Target {
        &self.rig
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(super) async fn with(options: Options) -> Self {
        let (fake, guests) = (Fake::default(), Guests::default());
        let offered = (fake.clone(), guests.clone());
        let services = RigServices {
            sessions: Arc::new(fake.clone()),
            tools: Arc::new(fake.clone()),
            offer: Arc::new(move |ports| {
                let (fake, guests) = offered.clone();
                ports.offer(Arc::new(DefaultSize(Resources::workspace(512, 10))));
                ports.offer::<dyn Tasks>(Arc::new(guests));
                ports.offer::<dyn Vault>(Arc::new(fake.1.clone()));
                ports.offer::<dyn Network>(Arc::new(fake));
            }),
        };
        Self::of(Rig::new(options, services).await, fake, guests)
    }

    fn of(rig: Rig<TeamFamily>, fake: Fake, guests: Guests) -> Self {
        let watcher = rig.daemon.ports.need::<TeamsHandle>().expect("teams offer it");
        Self {
            shelf: fake.1.clone(),
            fake,
            guests,
            journal: rig.daemon.journal.clone(),
            teams: watcher.address.clone(),
            shared: watcher.shared.clone(),
            watcher,
            rig,
        }
    }

    /// The daemon dies where it stands and is started again. What it had begun elsewhere goes on.
    pub(super) async fn crashed(self) -> Self {
        let Self { rig, fake, guests, .. } = self;
        Self::of(rig.crashed().await, fake, guests)
    }

    /// A team, beside its manager.
    pub(super) async fn team(&self, name: &str) -> Address<team::Msg> {
        let find = |reply| Msg(Inner::Find(name.to_owned(), reply));
        let found = self.teams.ask(MINUTE, find).await;
        found.expect("the manager answers").expect("there is one")
    }

    /// Kills every team where it stands, with its inboxes and its tasks; they are started again.
    pub(super) fn kill_teams(&self) {
        self.rig.kill_grandchildren();
    }

    pub(super) fn begin_as(&self, session: SessionId, args: Value) -> PendingCall {
        self.rig.begin_as(session, "team", args, MINUTE)
    }

    pub(super) fn begin(&self, args: Value) -> PendingCall {
        self.begin_as(self.session, args)
    }

    pub(super) async fn call(&self, args: Value) -> Value {
        let text = args.to_string();
        self.begin(args).answer().await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(super) async fn refused(&self, args: Value) -> ToolError {
        self.refused_as(self.session, args).await
    }

    pub(super) async fn refused_as(&self, session: SessionId, args: Value) -> ToolError {
        let text = args.to_string();
        match self.begin_as(session, args).answer().await {
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
