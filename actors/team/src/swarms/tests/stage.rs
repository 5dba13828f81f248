//! A keeper of swarms with its journal, as a root of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use hivekeep_kernel::{
    Address, AdmissionPermit, CallCx, CallId, Door, Progress, ProgressUpdate, Receipt, Resources,
    RestartPolicy, SessionId, SwarmId, ToolCall, ToolError,
    entity::spawn_root,
    ports::{DefaultSize, Network, Tasks, Vault},
};
use hivekeep_runtime::{Daemon, Ports};
use hivekeep_store::Journal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, GOLDEN};
use crate::{
    Options, SwarmOptions, TeamShared,
    swarm::records::Plan,
    swarms::{Msg, Swarms, plan::Wish},
    tools::swarm::{FAMILY, SwarmRun},
};

pub(super) struct Stage {
    pub(super) fake: Fake,
    pub(super) session: SessionId,
    pub(super) journal: Journal,
    swarms: Address<Msg>,
    cell: ractor::ActorCell,
    house: Arc<TeamShared>,
    options: SwarmOptions,
    dir: Arc<TempDir>,
    pub(super) closing: CancellationToken,
    /// How often a call gave its place among those that are worked on back while it waited.
    pub(super) places: Arc<AtomicUsize>,
}

/// A call that was made and is not answered yet.
pub(super) struct Running {
    answer: oneshot::Receiver<Result<Value, ToolError>>,
    pub(super) cancel: CancellationToken,
    pub(super) progress: mpsc::Receiver<ProgressUpdate>,
}

impl Running {
    pub(super) async fn answer(self) -> Result<Value, ToolError> {
        self.answer.await.expect("it answers")
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(SwarmOptions::default()).await
    }

    pub(super) async fn with(options: SwarmOptions) -> Self {
        let (dir, fake, session) =
            (Arc::new(TempDir::new().expect("a folder")), Fake::default(), SessionId::new());
        fake.add(GOLDEN, session);
        Self::open(options, dir, fake, session).await
    }

    async fn open(
        options: SwarmOptions,
        dir: Arc<TempDir>,
        fake: Fake,
        session: SessionId,
    ) -> Self {
        let store = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(store)).await;
        let (journal, _) = opened.expect("no panic").expect("the journal opens");
        let (census, closing) = (hivekeep_kernel::Census::default(), CancellationToken::new());
        let swarms = Address::vacant(census.probe("swarms", "swarms", RestartPolicy::ESSENTIAL));
        let teams = crate::teams::tests::fake::Fake::default();
        let ports = Ports::default();
        ports.offer(Arc::new(DefaultSize(Resources::default())));
        ports.offer::<dyn Tasks>(Arc::new(fake.clone()));
        ports.offer::<dyn Network>(Arc::new(teams.clone()));
        ports.offer::<dyn Vault>(Arc::new(teams.shelf()));
        let daemon = Daemon {
            census,
            closing: closing.clone(),
            ports,
            ..Daemon::for_tests(
                dir.path(),
                journal.clone(),
                Arc::new(fake.clone()),
                Arc::new(fake.clone()),
            )
        };
        let house = TeamShared::new(&daemon, Options::default(), options.clone())
            .expect("every port is offered");
        let (cell, _) = spawn_root::<Swarms>(&swarms, house.clone()).await.expect("spawns");
        Self {
            fake,
            session,
            journal,
            swarms,
            cell,
            house,
            options,
            dir,
            closing,
            places: Arc::default(),
        }
    }

    /// The daemon dies where it stands and is started again. What it had begun elsewhere goes on.
    pub(super) async fn crashed(self) -> Self {
        self.cell.kill();
        self.journal.close().await;
        let Self { fake, session, options, dir, swarms, journal, house, .. } = self;
        drop((swarms, journal, house));
        Self::open(options, dir, fake, session).await
    }

    /// The daemon stops in order, with what was told of it before, and is started again.
    pub(super) async fn stopped(self) -> Self {
        assert!(self.closing.is_cancelled(), "an ordered stop is told first");
        self.cell.stop_and_wait(None, None).await.expect("it stops");
        self.crashed().await
    }

    /// Kills every swarm where it stands; they are started again.
    pub(super) fn kill_swarms(&self) {
        self.cell.get_children().iter().for_each(ractor::ActorCell::kill);
    }

    pub(super) fn begin_as(
        &self,
        session: SessionId,
        tool: &str,
        args: Value,
        limit: Duration,
    ) -> Running {
        let (reply, answer) = oneshot::channel();
        let (progress, told) = Progress::channel(200);
        let row = FAMILY.rows.iter().find(|row| row.0.spec.name == tool).expect("a tool");
        let mut cx = cx(session, row.0.spec.name, limit, progress);
        let places = self.places.clone();
        cx.slot = AdmissionPermit::new(move || {
            places.fetch_add(1, SeqCst);
        });
        let cancel = cx.cancel.clone();
        let call = ToolCall { tool: &row.0, cx, args, reply: reply.into() };
        self.swarms.send(Msg::from(call)).expect("the keeper is there");
        Running { answer, cancel, progress: told }
    }

    pub(super) fn begin(&self, args: Value) -> Running {
        self.begin_as(self.session, "swarm_run", args, Duration::from_secs(60))
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.begin_as(self.session, tool, args, Duration::from_secs(60)).answer().await
    }

    pub(super) async fn run(&self, args: Value) -> Value {
        self.call("swarm_run", args).await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) async fn refused(&self, args: Value) -> ToolError {
        match self.call("swarm_run", args.clone()).await {
            Err(error) => error,
            Ok(value) => panic!("{args} was not refused: {value}"),
        }
    }

    /// What a call would have planned.
    pub(super) async fn plan(&self, id: SwarmId, input: SwarmRun) -> Plan {
        let cx = cx(self.session, "swarm_run", Duration::from_secs(60), Progress::default());
        let wish = Wish::of(input).unwrap_or_else(|error| panic!("{error}"));
        wish.plan(&self.house, id, &cx).await.expect("planned")
    }

    /// A swarm when it is over.
    pub(super) async fn over(&self, id: &Value) -> Value {
        let args = json!({ "swarm_id": id, "wait_secs": 60 });
        let told = self.call("swarm_status", args).await.expect("it is there")["swarm"].take();
        assert!(told["ended_at"].is_string(), "not over: {told}");
        told
    }

    pub(super) async fn rows(&self) -> Vec<Value> {
        let listed = self.call("swarm_status", json!({})).await.expect("listed");
        listed["swarms"].as_array().expect("rows").clone()
    }

    /// The one swarm there is.
    pub(super) async fn only(&self) -> Value {
        let rows = self.rows().await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0]["swarm_id"].clone()
    }
}

fn cx(session: SessionId, tool: &'static str, limit: Duration, progress: Progress) -> CallCx {
    CallCx {
        id: CallId::new(),
        session,
        tool,
        door: Door::Internal,
        deadline: Instant::now() + limit,
        cancel: CancellationToken::new(),
        progress,
        receipt: Receipt::default(),
        reserved: None,
        slot: AdmissionPermit::default(),
        span: tracing::Span::none(),
    }
}

/// Tasks by their names and commands.
pub(super) fn swarm(tasks: &[(&str, &str)]) -> Value {
    let task = |(name, command): &(&str, &str)| json!({ "name": name, "command": command });
    let tasks: Vec<_> = tasks.iter().map(task).collect();
    json!({ "golden_workspace": GOLDEN, "snapshot_name": "base", "tasks": tasks })
}

pub(super) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within a minute: {what}");
}
