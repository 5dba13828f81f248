//! Workspaces with a real journal, machines that are none and guests in memory.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_image::fixture::fixture;
use hivekeep_kernel::{CallCx, Resources, SessionId, ToolCall, ToolError, WorkspaceId};
use hivekeep_link::fake::{FakeGuest, Observation, RequestBehaviour, exec_done, obliging};
use hivekeep_machine::{Isolation, fake::FakeDriver};
use hivekeep_ports::{
    AttachedVolume, Hold, LateTools, MountedFolder, NetworkMode, SessionQuotas, Standing,
    VolumeRequest, Volumes,
};
use hivekeep_protocol::{
    Argv, Configured, ExecAsked, Exit, FromGuest, GuestCode, GuestError, Quiesced, Reidentified,
    Stream, TaskListReply, Thawed, ToGuest,
};
use hivekeep_store::{Journal, Seq};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::Instant};

use super::{
    fake_host::{FakeHost, HostParts, Parts},
    wires::Wires,
};
use crate::Options;

const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that have to be free on the host.
pub(super) const FLOOR: u64 = 1 << 30;

/// Counts workspaces and MiB that are reserved.
#[derive(Default)]
pub(super) struct Quota(AtomicI64, AtomicI64);

impl Quota {
    pub(super) fn held(&self) -> i64 {
        self.0.load(SeqCst)
    }

    pub(super) fn held_mb(&self) -> i64 {
        self.1.load(SeqCst)
    }

    fn add(&self, what: Resources) {
        self.0.fetch_add(what.workspaces.cast_signed(), SeqCst);
        self.1.fetch_add(what.memory_mb.cast_signed(), SeqCst);
    }
}

#[async_trait]
impl SessionQuotas for Quota {
    async fn reserve(&self, _: SessionId, what: Resources) -> Result<(), ToolError> {
        self.add(what);
        Ok(())
    }
    fn release(&self, _: SessionId, what: Resources) {
        self.0.fetch_sub(what.workspaces.cast_signed(), SeqCst);
        self.1.fetch_sub(what.memory_mb.cast_signed(), SeqCst);
    }
    fn restore(&self, _: SessionId, what: Resources) {
        self.add(what);
    }
    fn hold(&self, _: SessionId) -> Hold {
        Hold::default()
    }
    fn user(&self, _: SessionId) -> Option<hivekeep_kernel::User> {
        Some(hivekeep_kernel::User::Bearer)
    }
    async fn standing(&self, _: SessionId) -> Standing {
        Standing { attached: true, calls_in_flight: 0, idle_for: Duration::ZERO, ended: false }
    }
}

/// Nobody has volumes here.
pub(super) struct NoVolumes;

#[async_trait]
impl Volumes for NoVolumes {
    fn attach(
        &self,
        _: SessionId,
        _: WorkspaceId,
        _: &[VolumeRequest],
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        Err(ToolError::internal("no volumes in this test"))
    }
    fn set(&self, _: WorkspaceId, attached: &[AttachedVolume]) {
        assert!(attached.is_empty());
    }
    fn all_set(&self) {}
    async fn mount(&self, _: &[AttachedVolume]) -> Result<Vec<MountedFolder>, ToolError> {
        Ok(Vec::new())
    }
}

/// A family of workspaces, and what outlives its daemon.
pub(super) struct Stage {
    /// `None` only while it is started anew.
    rig: Option<Rig<FakeHost>>,
    host: Arc<HostParts>,
    pub(super) journal: Journal,
    pub(super) driver: Arc<FakeDriver>,
    /// What the next daemon has.
    pub(super) network: Arc<Wires>,
    /// What the guests saw; every test has it to itself.
    seen: Mutex<tokio::sync::mpsc::UnboundedReceiver<Observation>>,
    /// So many guests will refuse a name that is not the pool's.
    pub(super) stubborn: Arc<AtomicI64>,
    /// Bytes that are free on the host.
    pub(super) free: Arc<AtomicU64>,
    /// What the next daemon is configured with.
    pub(super) options: Options,
    pub(super) session: SessionId,
    pub(super) daemon: Parts,
}

impl Stage {
    /// Without a network.
    pub(super) async fn open() -> Self {
        Self::with(Wires::new(NetworkMode::Off { reason: "off".to_owned() }), guest).await
    }

    /// Configured like this.
    pub(super) async fn open_with(configured: Options) -> Self {
        let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
        Self::furnished(network, guest, configured).await
    }

    /// With a network, and guests that act like this.
    pub(super) async fn with(
        network: Arc<Wires>,
        script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static,
    ) -> Self {
        Self::furnished(network, script, Options::default()).await
    }

    pub(super) async fn furnished(
        network: Arc<Wires>,
        script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static,
        configured: Options,
    ) -> Self {
        let stubborn = Arc::new(AtomicI64::new(0));
        let (guest, seen) = FakeGuest::new({
            let stubborn = stubborn.clone();
            move |request| stubbornly(request, &stubborn).unwrap_or_else(|| script(request))
        });
        let driver = Arc::new(FakeDriver::new(Isolation::Vm).with_guests(guest));
        let free = Arc::new(AtomicU64::new(FLOOR));
        let host = Arc::new(HostParts {
            images: fixture(4096),
            driver: driver.clone(),
            network: Mutex::new(network.clone()),
            free: free.clone(),
        });
        let services = RigServices {
            sessions: Arc::new(FakeUsers::default()),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new({
                let host = host.clone();
                move |ports| ports.offer(host.clone())
            }),
        };
        let rig = Rig::<FakeHost>::new(configured.clone(), services).await;
        let stage = Self {
            journal: rig.daemon.journal.clone(),
            host,
            driver,
            network,
            seen: seen.into(),
            stubborn,
            free,
            options: configured,
            session: rig.session,
            daemon: Parts::of(&rig),
            rig: Some(rig),
        };
        stage.opened().await;
        stage
    }

    /// As the doors do, which open when the manager is there.
    async fn opened(&self) {
        self.call("workspace_list", json!({})).await.unwrap();
    }

    /// The daemon ends, its machines run on, and another one starts.
    pub(super) async fn restart(&mut self) {
        let mut rig = self.rig.take().expect("it is started");
        rig.options = self.options.clone();
        *self.host.network.lock().expect("no panic") = self.network.clone();
        let rig = rig.crashed().await;
        self.journal = rig.daemon.journal.clone();
        self.daemon = Parts::of(&rig);
        self.rig = Some(rig);
        self.opened().await;
    }

    fn rig(&self) -> &Rig<FakeHost> {
        self.rig.as_ref().expect("it is started")
    }

    pub(super) fn cx(&self, tool: &'static str) -> CallCx {
        context(self.session, tool, PATIENCE, Default::default())
    }

    /// One call, handed to the actor that serves it and never tried again.
    pub(super) async fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        self.send(name, args, |_| {})?.await.expect("every call is answered")
    }

    /// A call that is on its way when this returns. What is sent to one actor is taken up in the
    /// order in which it was sent.
    pub(super) fn send(
        &self,
        name: &str,
        args: Value,
        change: impl FnOnce(&mut CallCx),
    ) -> Result<oneshot::Receiver<Result<Value, ToolError>>, ToolError> {
        let (tool, target) = self.rig().route(name, &args)?;
        let (reply, answer) = oneshot::channel();
        let mut cx = self.cx(tool.spec.name);
        change(&mut cx);
        target.deliver(ToolCall { tool: &tool.spec, cx, args, reply: reply.into() })?;
        Ok(answer)
    }

    /// Commands that guests were told to run since this was asked last.
    pub(super) fn commands(&self) -> Vec<hivekeep_protocol::RunCommand> {
        let mut seen = self.seen.lock().expect("no test panics with it");
        let mut commands = Vec::new();
        while let Ok(seen) = seen.try_recv() {
            match seen {
                Observation::Request(_, ToGuest::RunCommand(exec)) => commands.push(exec),
                Observation::Request(_, ToGuest::ExecAsking(asking)) => commands.push(asking.exec),
                _ => {}
            }
        }
        commands
    }

    /// Every file below the daemon's folders, but for the journal.
    pub(super) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["disks", "layers", "memories"] {
            let entries = std::fs::read_dir(self.rig().daemon.folders.state.join(folder))
                .into_iter()
                .flatten();
            let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            found.extend(entries.flatten().map(|entry| format!("{folder}/{}", name(entry))));
        }
        found
    }

    /// Everything that the journal holds of workspaces, as text.
    pub(super) fn records(&self) -> String {
        let mut text = String::new();
        for stream in self.journal.streams("workspace/").unwrap() {
            for (_, bytes) in self.journal.replay(&stream).unwrap().records {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        text
    }

    /// Kinds of the events so far.
    pub(super) fn events(&self) -> Vec<String> {
        let page = self.journal.events().read(Seq::FIRST, 10_000).unwrap();
        page.events.into_iter().map(|event| event.kind).collect()
    }

    /// A workspace of this name; its id.
    pub(super) async fn create(&self, name: &str) -> String {
        let made = self.call("workspace_create", json!({ "name": name, "disk_gb": 1 })).await;
        made.unwrap()["workspace_id"].as_str().unwrap().to_owned()
    }

    pub(super) async fn info(&self, workspace: &str) -> Value {
        self.call("workspace_info", json!({ "workspace_id": workspace })).await.unwrap()
    }

    /// What a workspace says of itself once it looks like this.
    pub(super) async fn once(&self, workspace: &str, like: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let info = self.info(workspace).await;
            if like(&info) {
                return info;
            }
            assert!(begun.elapsed() < PATIENCE, "{info}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for what goes on beside the calls.
    pub(super) async fn until(&self, so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !so() {
            assert!(begun.elapsed() < PATIENCE, "{:?} {}", self.files(), self.records());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The word in `hivekeep ps`.
    pub(super) fn word(&self, workspace: &str) -> String {
        let rows = self.daemon.shared.daemon.census.rows().into_iter();
        let path = format!("root/workspaces/{workspace}");
        rows.filter(|row| row.path == path).map(|row| row.state).collect()
    }
}

/// Takes its configuration; shuts down when it is told to only by being killed. The script `exit N`
/// does so after a long output, `stall` never ends, and git finds no repository `missing`.
pub(super) fn guest(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::RunCommand(exec) => command(&exec.argv).unwrap_or_else(|| obliging(request)),
        ToGuest::ExecAsking(asking) => {
            let exec = ToGuest::RunCommand(asking.exec.clone());
            let asked = |done| ExecAsked { done, answered: 0, unanswered: None, rejected: false };
            match guest(&exec) {
                RequestBehaviour::Send(output, Ok(FromGuest::RunCommand(done))) => {
                    RequestBehaviour::Send(output, Ok(FromGuest::ExecAsking(asked(done))))
                }
                other => other,
            }
        }
        ToGuest::Quiesce(quiesce) => RequestBehaviour::Reply(Ok(FromGuest::Quiesce(Quiesced {
            frozen: quiesce.freeze_ms.is_some(),
        }))),
        ToGuest::TaskList(_) => RequestBehaviour::Reply(Ok(FromGuest::TaskList(TaskListReply {
            queued: Vec::new(),
            running: Vec::new(),
            results: 0,
        }))),
        ToGuest::Thaw(_) => {
            RequestBehaviour::Reply(Ok(FromGuest::Thaw(Thawed { was_frozen: true })))
        }
        ToGuest::Reidentify(wanted) => {
            RequestBehaviour::Reply(Ok(FromGuest::Reidentify(Reidentified {
                hostname: wanted.hostname.clone(),
                machine_id: wanted.machine_id.clone(),
                instance_id: wanted.instance_id.clone(),
                clock_unix_ms: i64::try_from(wanted.clock_unix_ms).unwrap(),
                clock_step_ms: 0,
                entropy_bytes: 64,
            })))
        }
        ToGuest::Configure(configure) => {
            RequestBehaviour::Reply(Ok(FromGuest::Configure(Configured {
                hostname: configure.hostname.clone(),
                clock_step_ms: 0,
                entropy_bytes: 0,
                root_total_bytes: 1 << 30,
                grow_error: None,
            })))
        }
        other => obliging(other),
    }
}

fn command(argv: &Argv) -> Option<RequestBehaviour> {
    let ends = |output: Vec<u8>, code| {
        let mut done = exec_done(0, output.len() as u64);
        done.exit = Exit::Code(code);
        RequestBehaviour::Send(vec![(Stream::Stderr, output)], Ok(FromGuest::RunCommand(done)))
    };
    match argv {
        Argv::Shell(script) if script == "stall" => Some(RequestBehaviour::Stall),
        Argv::Shell(script) => {
            let code = script.strip_prefix("exit ")?.parse().unwrap();
            Some(ends([vec![b'x'; 100_000], b"the end".to_vec()].concat(), code))
        }
        Argv::Direct(words) => match words.get(4).map_or("", |url| url.rsplit('/').next().unwrap())
        {
            "missing" => {
                let said = format!("fatal: '{}' does not appear to be a repository", words[4]);
                Some(ends(said.into_bytes(), 128))
            }
            "nogit" => {
                let error = GuestError::new(GuestCode::CannotStart, "git: not found in PATH");
                Some(RequestBehaviour::Reply(Err(error)))
            }
            _ => None,
        },
    }
}

/// Keeps its name while there are refusals left.
fn stubbornly(request: &ToGuest, stubborn: &AtomicI64) -> Option<RequestBehaviour> {
    let ToGuest::Configure(asked) = request else { return None };
    let refuses = !asked.hostname.starts_with("pool-")
        && stubborn.fetch_update(SeqCst, SeqCst, |n| (n > 0).then_some(n - 1)).is_ok();
    refuses.then(|| {
        RequestBehaviour::Reply(Err(GuestError::new(GuestCode::Internal, "I keep my name")))
    })
}
