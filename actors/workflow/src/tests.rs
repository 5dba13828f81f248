//! Runs over a guest that runs commands on this host.

mod actions;
mod agent_dags;
mod agents;
mod bad_input;
mod cases;
mod containers;
mod dagu_page;
mod deliveries;
mod forks;
mod guest;
mod kill_points;
mod machine;
mod people;
mod queues;
mod retries;
mod runs;
mod schedules;
mod storm;
mod tools;
mod values;
mod ways;
mod webhooks;
mod workflows;

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{RunId, SessionId, ToolError, User};
use hivekeep_plan::progress::RunOutcome;
use hivekeep_ports::{
    ChildSessions, Executions, Models, PlaceFolders, Places, StandingQuestions, TaskOutputs, Tasks,
    WorkspaceForks,
};
use hivekeep_runtime::{
    Daemon, Family, Mounted, Ports, WaiterLimit,
    runs::{RunCaller, RunQueue},
    schedule::Schedules,
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::Value;

use crate::{
    DagRuns, Options,
    dag_file::checked,
    folders::DagFolders,
    run::{RunFold, RunPlace, RunRequest, RunTrigger},
};
use agents::FakeAgents;
use guest::FakeGuest;
use people::FakePeople;

/// Caller who sees all runs.
const ALL: RunCaller = RunCaller { user: User::Uid(0), operator: true };
/// Longest run of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Family of the runs and of the folders, without tools.
struct RunsFamily;

impl Family for RunsFamily {
    type Options = Options;

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let (runs, [child, desk]) = DagRuns::open(daemon, &options).await?;
        let folders = Arc::new(DagFolders::new(daemon, &options.folders, runs.clone())?);
        let (schedules, times) = Schedules::open(daemon, "dag-schedules", folders.clone()).await?;
        folders.look(&schedules).await;
        daemon.ports.offer(Arc::new(runs));
        daemon.ports.offer(folders);
        daemon.ports.offer(Arc::new(schedules));
        let mut mounted = Mounted::default();
        mounted.children.extend([child, desk, times]);
        Ok(mounted)
    }
}

struct Stage {
    rig: Rig<RunsFamily>,
    guest: FakeGuest,
    agents: FakeAgents,
    people: FakePeople,
}

impl Stage {
    async fn new() -> Self {
        Self::offering(|_| {}).await
    }

    async fn with(options: Options) -> Self {
        Self::of(options, |_| {}).await
    }

    /// Stage with further ports.
    async fn offering(offer: impl Fn(&Ports) + Send + Sync + 'static) -> Self {
        Self::of(Options::default(), offer).await
    }

    async fn of(options: Options, offer: impl Fn(&Ports) + Send + Sync + 'static) -> Self {
        Self::made(Options { max_running: 100, ..options }, offer).await
    }

    /// Stage whose bound of runs is that of the options.
    async fn bounded(options: Options) -> Self {
        Self::made(options, |_| {}).await
    }

    async fn made(options: Options, offer: impl Fn(&Ports) + Send + Sync + 'static) -> Self {
        let guest = FakeGuest::default();
        let (agents, people) = (FakeAgents::default(), FakePeople::default());
        let (offered, working, asked) = (guest.clone(), agents.clone(), people.clone());
        let services = RigServices {
            sessions: Arc::new(FakeUsers::all(User::Uid(0))),
            tools: Arc::new(guest.clone()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn ChildSessions>(Arc::new(offered.clone()));
                ports.offer::<dyn Places>(Arc::new(offered.clone()));
                ports.offer::<dyn Tasks>(Arc::new(offered.clone()));
                ports.offer::<dyn TaskOutputs>(Arc::new(offered.clone()));
                ports.offer::<dyn Executions>(Arc::new(working.clone()));
                ports.offer::<dyn Models>(Arc::new(working.clone()));
                ports.offer::<dyn StandingQuestions>(Arc::new(asked.clone()));
                ports.offer::<dyn PlaceFolders>(Arc::new(offered.clone()));
                ports.offer::<dyn WorkspaceForks>(Arc::new(offered.clone()));
                ports.offer(WaiterLimit::new(64, 64));
                offer(ports);
            }),
        };
        Self { rig: Rig::new(options, services).await, guest, agents, people }
    }

    fn runs(&self) -> Arc<DagRuns> {
        self.rig.daemon.ports.find::<DagRuns>().expect("they are mounted")
    }

    /// Begins a run of a text, in a folder of this host.
    async fn begin(&self, text: &str, given: Value) -> Result<RunId, ToolError> {
        self.begin_in(None, text, given).await
    }

    async fn begin_in(
        &self,
        queue: Option<RunQueue>,
        text: &str,
        given: Value,
    ) -> Result<RunId, ToolError> {
        self.begin_at(RunPlace::Folder("here".to_owned()), queue, text, given).await
    }

    async fn begin_at(
        &self,
        place: RunPlace,
        queue: Option<RunQueue>,
        text: &str,
        given: Value,
    ) -> Result<RunId, ToolError> {
        let file = checked(None, text.to_owned(), None).await;
        let file = file.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let id = RunId::new();
        let request = RunRequest {
            id,
            user: User::Uid(0),
            session: SessionId::new(),
            documents: file.documents,
            name: "dag".to_owned(),
            given,
            place,
            scratch: self.guest.scratch(),
            trigger: RunTrigger::Start,
            queue,
        };
        self.runs().begin(request).await.map(|()| id)
    }

    async fn over(&self, id: RunId) -> RunFold {
        let (DagRuns(runs, _), id) = (&*self.runs(), id.to_string());
        let ended = tokio::time::timeout(PATIENCE, runs.ended(ALL, &id)).await;
        let view = ended.unwrap_or_else(|_| panic!("{:#?}", runs.get(ALL, &id).map(|it| it.state)));
        assert!(view.as_ref().is_ok_and(|view| view.given_up.is_none()), "it is given up");
        view.expect("it is there").state
    }

    /// Waits for the last steps of a run, too.
    async fn closed(&self, id: RunId) -> RunFold {
        self.over(id).await;
        let (DagRuns(runs, _), id) = (&*self.runs(), id.to_string());
        runs.settled(ALL, &id).await.expect("it is there");
        runs.get(ALL, &id).expect("it is there").state
    }

    async fn ran(&self, text: &str, given: Value) -> RunFold {
        let id = self.begin(text, given).await.expect("begun");
        self.over(id).await
    }

    async fn outcome(&self, text: &str) -> RunOutcome {
        self.ran(text, Value::Null).await.outcome().expect("it is over")
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.guest.folder().join(name)).ok()
    }
}
