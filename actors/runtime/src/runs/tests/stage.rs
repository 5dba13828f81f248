//! Errands below a root of their own, over a journal that outlives them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{
    Address, CallCx, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, SessionId,
    SwarmId, ToolError, User, entity::spawn_root, lock,
};
use hivekeep_ports::LateTools;
use hivekeep_store::{Journal, Options};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::toy::{Errand, ErrandSaga, Plan, Record, World};
use crate::{
    Child, Daemon, Folders, Ports, WaiterLimit,
    log::Decision,
    runs::{RunCaller, RunOptions, Runs},
    saga::SagaView,
};

pub(super) const ADA: RunCaller = RunCaller { user: User::Uid(1), operator: false };
pub(super) const BEN: RunCaller = RunCaller { user: User::Uid(2), operator: false };
pub(super) const OPERATOR: RunCaller = RunCaller { user: User::Uid(3), operator: true };
pub(super) const ROOMY: RunOptions =
    RunOptions { max_running: 100, kept: 100, kept_days: 7, queues: BTreeMap::new() };

pub(super) type View = SagaView<ErrandSaga>;

pub(super) struct Stage {
    pub(super) runs: Runs<ErrandSaga>,
    pub(super) world: Arc<World>,
    pub(super) daemon: Daemon,
    options: RunOptions,
    cell: ractor::ActorCell,
    folder: Arc<TempDir>,
}

impl Stage {
    pub(super) async fn new(options: RunOptions) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Self::open(options, Arc::default(), folder).await
    }

    async fn open(options: RunOptions, world: Arc<World>, folder: Arc<TempDir>) -> Self {
        let journal = Journal::open(Options::at(folder.path())).expect("it opens").0;
        let [state, run, logs] = [(); 3].map(|()| folder.path().to_owned());
        let daemon = Daemon {
            folders: Folders { state, run, logs },
            journal,
            census: Census::default(),
            sessions: world.clone(),
            tools: Arc::new(LateTools::default()),
            ports: Ports::default(),
            room: Default::default(),
            redact: Arc::new(str::to_owned),
            rate_limits: true,
            closing: CancellationToken::new(),
        };
        daemon.ports.offer(WaiterLimit::new(2, 2));
        let opened = Runs::open(&daemon, "errands", options.clone(), world.clone()).await;
        let (runs, child) = opened.expect("they are readable");
        let probe = daemon.census.probe("root", "root", RestartPolicy::ESSENTIAL);
        let args = RootArgs { census: daemon.census.clone(), child };
        let (cell, _) = spawn_root::<Root>(&Address::vacant(probe), args).await.expect("it spawns");
        Self { runs, world, daemon, options, cell, folder }
    }

    /// The daemon dies where it stands and is started again.
    pub(super) async fn crashed(self) -> Self {
        self.cell.kill();
        self.daemon.journal.close().await;
        Self::open(self.options, self.world, self.folder).await
    }

    /// Kills the manager, which is started again.
    pub(super) fn kill_manager(&self) {
        self.cell.get_children().iter().for_each(ractor::ActorCell::kill);
    }

    /// Number of runs that have an actor.
    pub(super) fn actors(&self) -> usize {
        self.cell.get_children().iter().map(|manager| manager.get_children().len()).sum()
    }

    pub(super) fn session(&self, user: User) -> SessionId {
        let session = SessionId::new();
        lock(&self.world.users.of_sessions).insert(session, user);
        session
    }

    pub(super) async fn begin(&self, by: RunCaller, plan: Plan) -> Result<String, ToolError> {
        let (id, session) = (SwarmId::new(), self.session(by.user));
        let first = Record::Begun { user: by.user, session, plan, at: Utc::now() };
        self.runs.begin(id, first).await.map(|()| id.to_string())
    }

    pub(super) fn view(&self, id: &str) -> View {
        self.runs.get(OPERATOR, id).expect("it is there")
    }

    pub(super) async fn until(&self, id: &str, is_so: impl Fn(&View) -> bool) -> View {
        eventually(|| is_so(&self.view(id))).await;
        self.view(id)
    }

    /// Waits until an errand is over and nothing goes on for it.
    pub(super) async fn rested(&self, id: &str) -> View {
        self.until(id, |view| view.state.rested).await
    }

    pub(super) async fn say(&self, by: RunCaller, id: &str, word: &str) -> Result<(), ToolError> {
        let text = word.to_owned();
        let decide = |state: &Errand| match state.word {
            Some(_) => Err(ToolError::invalid("it has heard one")),
            None => Ok(Decision::record(Record::Word { text, at: Utc::now() })),
        };
        self.runs.tell(by, id, decide).await
    }

    pub(super) async fn again(&self, by: RunCaller, id: &str) -> Result<(), ToolError> {
        let decide = |state: &Errand| match state.word.as_deref() {
            Some("never") => Err(ToolError::invalid("it was told never")),
            _ => Ok(Decision::record(Record::Again)),
        };
        self.runs.reopen(by, id, decide).await
    }

    pub(super) fn cx(&self, by: RunCaller) -> CallCx {
        let (cancel, limit) = (CancellationToken::new(), Duration::from_secs(60));
        CallCx::internal(self.session(by.user), limit, cancel, tracing::Span::none())
    }

    pub(super) fn streams(&self) -> usize {
        self.daemon.journal.streams("errand/").expect("readable").len()
    }
}

/// Waits until the condition holds, for a minute.
pub(super) async fn eventually(mut is_so: impl FnMut() -> bool) {
    let all = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("within a minute");
}

#[derive(Clone)]
struct RootArgs {
    census: Census,
    child: Child,
}

struct Root(Children);

impl Entity for Root {
    type Msg = ();
    type Args = RootArgs;
    async fn start(RootArgs { census, child }: RootArgs, me: Context<()>) -> Result<Self, Fault> {
        let mut children = Children::new("root", census, me.cell);
        child.start(&mut children)?;
        Ok(Self(children))
    }
    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(end).map(drop)
    }
}
