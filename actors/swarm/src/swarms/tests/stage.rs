//! Swarms with a journal and a world that outlives them.

use std::{
    ops::Deref,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use hivekeep_kernel::{Progress, SessionId, SwarmId, ToolError};
use hivekeep_ports::Tasks;
use hivekeep_runtime::{WaiterLimit, log::LogRecord};
use hivekeep_store::Journal;
pub(super) use hivekeep_testkit::eventually;
use hivekeep_testkit::{PendingCall, Rig, RigServices, context};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, GOLDEN};
use crate::{
    Options, SwarmFamily,
    shared::SwarmShared,
    swarm::state::{Record, SwarmPlan, stream},
    swarms::plan::SwarmRequest,
    tools::SwarmRun,
};

const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) fake: Fake,
    pub(super) session: SessionId,
    pub(super) journal: Journal,
    pub(super) closing: CancellationToken,
    /// How often a call gave its place among those that are worked on back while it waited.
    pub(super) places: Arc<AtomicUsize>,
    rig: Rig<SwarmFamily>,
}

impl Deref for Stage {
    type Target = Rig<SwarmFamily>;

    fn deref(&self) -> &Self::Target {
        &self.rig
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(super) async fn with(options: Options) -> Self {
        let fake = Fake::default();
        let offered = fake.clone();
        let surroundings = RigServices {
            sessions: Arc::new(fake.clone()),
            tools: Arc::new(fake.clone()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn Tasks>(Arc::new(offered.clone()));
                ports.offer(WaiterLimit::new(64, 64));
            }),
        };
        let rig = Rig::new(options, surroundings).await;
        fake.add(GOLDEN, rig.session);
        Self::of(rig, fake)
    }

    fn of(rig: Rig<SwarmFamily>, fake: Fake) -> Self {
        Self {
            fake,
            session: rig.session,
            journal: rig.daemon.journal.clone(),
            closing: rig.daemon.closing.clone(),
            places: rig.given_back.clone(),
            rig,
        }
    }

    /// The daemon dies where it stands and is started again. What it had begun elsewhere goes on.
    pub(super) async fn crashed(self) -> Self {
        Self::of(self.rig.crashed().await, self.fake)
    }

    /// The daemon stops in order, with what was told of it before, and is started again.
    pub(super) async fn stopped(self) -> Self {
        Self::of(self.rig.stopped().await, self.fake)
    }

    /// Kills every swarm where it stands; they are started again.
    pub(super) fn kill_swarms(&self) {
        self.rig.kill_grandchildren();
    }

    pub(super) fn begin(&self, args: Value) -> PendingCall {
        self.begin_as(self.session, "swarm_run", args, MINUTE)
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
    pub(super) async fn plan(&self, id: SwarmId, input: SwarmRun) -> SwarmPlan {
        let cx = context(self.session, "swarm_run", MINUTE, Progress::default());
        let shared = SwarmShared::new(&self.rig.daemon, Options::default()).expect("offered");
        let request = SwarmRequest::of(input).unwrap_or_else(|error| panic!("{error}"));
        request.plan(&shared, id, &cx).await.expect("planned")
    }

    /// Writes records as a daemon of any version does: as JSON, in pieces behind their marks.
    pub(super) async fn write(&self, id: SwarmId, records: &[Record]) {
        let mut pieces = Vec::new();
        for record in records {
            let whole = record.encode().expect("plain data");
            let parts = whole.chunks(256 * 1024).map(|piece| [b"+", piece].concat());
            pieces.extend(parts);
            pieces.last_mut().expect("one")[0] = b'.';
        }
        self.journal.append(&stream(id), pieces).await.expect("written");
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

/// Tasks by their names and commands.
pub(super) fn swarm(tasks: &[(&str, &str)]) -> Value {
    let task = |(name, command): &(&str, &str)| json!({ "name": name, "command": command });
    let tasks: Vec<_> = tasks.iter().map(task).collect();
    json!({ "golden_workspace": GOLDEN, "snapshot_name": "base", "tasks": tasks })
}
