//! A guest in the place of all workspaces: its tasks are processes of this host in a folder, each run once for its id.
//! It outlives daemons.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, Effect, Layer, SessionId, ToolError, User, WorkspaceId, lock};
use hivekeep_ports::{
    ChildAnswer, ChildCall, ChildSession, ChildSessions, ChildTool, InternalCall, OwnedSnapshot,
    PlaceFolder, PlaceFolders, PlaceWorkspace, Places, TaskAssignment, TaskBoard, TaskCapture,
    TaskHints, TaskOutcome, TaskOutput, TaskOutputs, TaskPage, TaskResult, TaskSpan, TaskState,
    TaskTaken, TaskText, TaskWindow, Tasks, Tools, WorkspaceForks,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::run::GUEST;

/// Folder of the place that workspaces share.
const SHARED: &str = "/work/.hivekeep-runs";
/// Tools that make and remove something.
const MAKING: [&str; 8] = [
    "workspace_create",
    "workspace_destroy",
    "workspace_lifetime",
    "workspace_stop",
    "snapshot",
    "aegis.volume.create",
    "aegis.volume.delete",
    "fs.delete",
];
/// Output that stands for one of 1 GiB.
pub(super) const FLOOD: &str = "flood\n";

struct FakeTask {
    stop: CancellationToken,
    result: Option<TaskResult>,
    acknowledged: bool,
}

struct World {
    folder: TempDir,
    workspace: WorkspaceId,
    tasks: Mutex<BTreeMap<String, FakeTask>>,
    /// Tasks in the order of their starts, each as often as it was run.
    started: Mutex<Vec<String>>,
    hints: watch::Sender<u64>,
    sessions: Mutex<BTreeMap<String, SessionId>>,
    /// Sessions of runs that are not ended.
    open: Mutex<BTreeSet<SessionId>>,
    /// Parts of large outputs that were read.
    windows: AtomicUsize,
    /// Whether outputs fail to be read, for now or for good.
    unreadable: Mutex<Option<bool>>,
    /// Tools that were called, with their inputs.
    called: Mutex<Vec<(String, Value)>>,
    /// Tools that were called of the workspace, which is there until it is destroyed.
    of_workspace: Mutex<Vec<String>>,
    /// Calls of `toy.hold` wait until this fires.
    released: CancellationToken,
}

#[derive(Clone)]
pub(super) struct FakeGuest(Arc<World>);

impl Default for FakeGuest {
    fn default() -> Self {
        Self(Arc::new(World {
            folder: TempDir::new().expect("a folder"),
            workspace: WorkspaceId::new(),
            tasks: Mutex::default(),
            started: Mutex::default(),
            hints: watch::channel(0).0,
            sessions: Mutex::default(),
            open: Mutex::default(),
            windows: AtomicUsize::new(0),
            unreadable: Mutex::default(),
            called: Mutex::default(),
            of_workspace: Mutex::default(),
            released: CancellationToken::new(),
        }))
    }
}

impl FakeGuest {
    /// Root of the place.
    pub(super) fn folder(&self) -> PathBuf {
        self.0.folder.path().join("place")
    }

    pub(super) fn scratch(&self) -> String {
        self.0.folder.path().join("scratch").display().to_string()
    }

    /// Number of tasks that were started.
    pub(super) fn started(&self) -> Vec<String> {
        lock(&self.0.started).clone()
    }

    /// Tools that were called, with their inputs.
    pub(super) fn called(&self) -> Vec<(String, Value)> {
        lock(&self.0.called).clone()
    }

    /// Tools that were called of the workspace, by their names behind `workspace_`.
    pub(super) fn of_workspace(&self) -> Vec<String> {
        lock(&self.0.of_workspace).clone()
    }

    /// Answers a tool of workspaces, where it is for the one.
    fn on_workspace(&self, tool: &'static str, args: &Value) -> Option<Result<Value, ToolError>> {
        let (mut calls, name) = (lock(&self.0.of_workspace), tool.strip_prefix("workspace_")?);
        let is_there = calls.last().is_none_or(|last| last != "destroy");
        let row = json!({ "workspace_id": self.0.workspace, "name": "here", "owned": true });
        if name == "list" {
            return Some(Ok(
                json!({ "workspaces": if is_there { vec![row] } else { Vec::new() } }),
            ));
        }
        (args["workspace_id"] == json!(self.0.workspace)).then(|| {
            let secs = args.get("lifetime_secs").map(|secs| format!(" {secs}"));
            calls.push(name.to_owned() + &secs.unwrap_or_default());
            match is_there {
                true => Ok(json!({})),
                false => Err(ToolError::invalid("it is gone")),
            }
        })
    }

    /// Sessions of runs that are open, and tasks whose results nobody acknowledged.
    pub(super) fn kept(&self) -> (usize, Vec<String>) {
        let tasks = lock(&self.0.tasks);
        let kept = tasks.iter().filter(|(_, task)| !task.acknowledged);
        (lock(&self.0.open).len(), kept.map(|(id, _)| id.clone()).collect())
    }

    /// Has outputs fail to be read; true for now, false for good.
    pub(super) fn be_unreadable(&self, for_now: Option<bool>) {
        *lock(&self.0.unreadable) = for_now;
    }

    /// Parts of large outputs that were read.
    pub(super) fn windows(&self) -> usize {
        self.0.windows.load(Relaxed)
    }

    /// Lets calls that wait go on.
    pub(super) fn release(&self) {
        self.0.released.cancel();
    }

    /// Runs a task to its end, whether or not anybody looks.
    fn run(&self, task: TaskAssignment, stop: CancellationToken) {
        let world = self.0.clone();
        lock(&world.started).push(task.task_id.clone());
        tokio::spawn(async move {
            let mut command = Command::new("/bin/sh");
            // No user of this host is become.
            let script = task.command.replace(&format!("{GUEST} as "), "/usr/bin/env AS_USER=");
            let place = world.folder.path().join("place").display().to_string();
            let placed = |text: &str| text.replace(SHARED, &format!("{place}{SHARED}"));
            let script = placed(&script.replace("/workspace", &place));
            let env = task.env.iter().map(|(name, value)| (name, placed(value)));
            command.arg("-c").arg(script).env_clear().envs(env);
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command.current_dir(task.workdir.as_deref().unwrap_or("/"));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.kill_on_drop(true);
            let limit = Duration::from_secs(task.timeout_secs);
            let child = command.spawn().expect("a shell");
            let ended = tokio::select! {
                ended = tokio::time::timeout(limit, child.wait_with_output()) => ended.map_err(|_| TaskOutcome::TimedOut),
                () = stop.cancelled() => Err(TaskOutcome::Cancelled),
            };
            let text = |bytes: &[u8]| TaskText {
                text: String::from_utf8_lossy(bytes).into_owned(),
                truncated: bytes == FLOOD.as_bytes(),
                total_bytes: if bytes == FLOOD.as_bytes() { 1 << 30 } else { bytes.len() as u64 },
                path: None,
            };
            let (outcome, capture) = match ended {
                Err(outcome) => (outcome, TaskCapture::default()),
                Ok(output) => {
                    let output = output.expect("it is waited for");
                    let exit_code = output.status.code().unwrap_or(137);
                    let capture = TaskCapture {
                        workdir: task.workdir.clone(),
                        stdout: text(&output.stdout),
                        stderr: text(&output.stderr),
                        elapsed_ms: 1,
                    };
                    (TaskOutcome::Exited { exit_code }, capture)
                }
            };
            let (task_id, message_id) = (task.task_id.clone(), task.message_id);
            let result = TaskResult { number: 1, task_id, message_id, outcome, capture };
            if let Some(known) = lock(&world.tasks).get_mut(&task.task_id) {
                known.result = Some(result);
            }
            world.hints.send_modify(|count| *count += 1);
        });
    }
}

#[async_trait]
impl Tasks for FakeGuest {
    async fn put(&self, _: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        let (result, repeat) = {
            let mut tasks = lock(&self.0.tasks);
            match tasks.get(&task.task_id) {
                // A guest keeps no result that was acknowledged.
                Some(known) => (known.result.clone().filter(|_| !known.acknowledged), true),
                None => {
                    let stop = CancellationToken::new();
                    let new = FakeTask { stop: stop.clone(), result: None, acknowledged: false };
                    tasks.insert(task.task_id.clone(), new);
                    self.run(task, stop);
                    (None, false)
                }
            }
        };
        let state = if result.is_some() { TaskState::Done } else { TaskState::Running };
        Ok(TaskTaken { state, repeat, differs: false, result })
    }

    async fn results(
        &self,
        _: WorkspaceId,
        _: u64,
        _: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let tasks = lock(&self.0.tasks);
        let wanted = |(id, task): (&String, &FakeTask)| {
            task.result.clone().filter(|_| !task.acknowledged && sent.contains_key(id))
        };
        let results = tasks.iter().filter_map(wanted).collect();
        Ok(TaskPage {
            results,
            next_after: 0,
            more: false,
            queued: 0,
            running: 0,
            told: false,
            dropped: 0,
            refused_paths: 0,
        })
    }

    async fn acknowledge(&self, _: WorkspaceId, ids: Vec<String>) -> Result<u32, ToolError> {
        let mut tasks = lock(&self.0.tasks);
        for id in &ids {
            if let Some(task) = tasks.get_mut(id) {
                task.acknowledged = true;
            }
        }
        Ok(ids.len() as u32)
    }

    async fn cancel(&self, _: WorkspaceId, id: String) -> Result<TaskState, ToolError> {
        if let Some(task) = lock(&self.0.tasks).get(&id) {
            task.stop.cancel();
        }
        Ok(TaskState::Running)
    }

    async fn board(&self, _: WorkspaceId) -> Result<TaskBoard, ToolError> {
        Ok(TaskBoard { queued: Vec::new(), running: Vec::new(), results: 0 })
    }

    async fn hints(&self, _: WorkspaceId) -> Result<TaskHints, ToolError> {
        Ok(TaskHints::new(self.0.hints.subscribe()))
    }
}

#[async_trait]
impl TaskOutputs for FakeGuest {
    async fn output(&self, _: WorkspaceId, window: TaskWindow) -> Result<TaskOutput, ToolError> {
        match *lock(&self.0.unreadable) {
            None => {}
            Some(true) => {
                let code = hivekeep_kernel::codes::GUEST_UNREACHABLE;
                return Err(ToolError::new(Layer::Link, code, "no answer").retryable());
            }
            Some(false) => return Err(ToolError::invalid("no such task")),
        }
        let captured = |task: &FakeTask| Some(task.result.as_ref()?.capture.stdout.truncated);
        let is_large = lock(&self.0.tasks).get(&window.task_id).and_then(captured);
        let span = TaskSpan { from: 0, bytes: Vec::new(), kept_bytes: 0, total_bytes: 0 };
        let mut stdout = span.clone();
        if is_large == Some(true) {
            self.0.windows.fetch_add(1, Relaxed);
            stdout.bytes = vec![b'x'; window.max_bytes as usize];
        }
        Ok(TaskOutput { state: TaskState::Done, stdout, stderr: span })
    }
}

#[async_trait]
impl Places for FakeGuest {
    async fn workspace(&self, _: &CallCx, _: Option<&str>) -> Result<PlaceWorkspace, ToolError> {
        std::fs::create_dir_all(self.folder()).expect("it is made");
        Ok(PlaceWorkspace {
            workspace: self.0.workspace,
            place: "here".to_owned(),
            root: self.folder().display().to_string(),
            user: None,
        })
    }

    async fn put_program(
        &self,
        _: &CallCx,
        _: &PlaceWorkspace,
        _: &str,
        _: String,
    ) -> Result<(), ToolError> {
        unreachable!("runs put no programs")
    }
}

impl PlaceFolders for FakeGuest {
    fn folder(&self, _: &str) -> Result<PlaceFolder, ToolError> {
        Ok(PlaceFolder { folder: self.folder(), read_only: true })
    }

    fn default_place(&self) -> &str {
        "here"
    }
}

#[async_trait]
impl WorkspaceForks for FakeGuest {
    async fn fork(
        &self,
        _: &CallCx,
        source: &OwnedSnapshot,
        name: &str,
        _: bool,
        secs: Option<u64>,
    ) -> Result<WorkspaceId, ToolError> {
        let asked = json!({ "of": source.snapshot, "name": name, "secs": secs });
        lock(&self.0.called).push(("fork".to_owned(), asked));
        Ok(WorkspaceId::new())
    }

    async fn fork_to_read(
        &self,
        _: &CallCx,
        _: &OwnedSnapshot,
        _: u64,
    ) -> Result<WorkspaceId, ToolError> {
        unreachable!("runs read in no forks")
    }
}

#[async_trait]
impl Tools for FakeGuest {
    async fn call(
        &self,
        _: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        if tool == "workspace_info" {
            return Ok(json!({ "state": "running", "user": "app" }));
        }
        if let Some(answer) = self.on_workspace(tool, &args) {
            return answer;
        }
        if MAKING.contains(&tool) {
            lock(&self.0.called).push((tool.to_owned(), args));
            return Ok(json!({}));
        }
        let path = args["path"].as_str().expect("a path");
        let path = match tool {
            "file_read" => match path.starts_with(SHARED) {
                true => PathBuf::from(format!("{}{path}", self.folder().display())),
                false => PathBuf::from(path),
            },
            "fs.read" => self.folder().join(path),
            other => panic!("{other} is not called"),
        };
        match std::fs::read_to_string(path) {
            Ok(content) if tool == "fs.read" => Ok(json!({ "content": content })),
            Ok(content) => Ok(json!({
                "content": content, "next_offset": content.len(), "size_bytes": content.len(),
            })),
            Err(_) => {
                let code = hivekeep_kernel::codes::NOT_FOUND;
                Err(ToolError::new(Layer::Actor, code, "no such file"))
            }
        }
    }
}

#[async_trait]
impl ChildSessions for FakeGuest {
    async fn open(&self, child: ChildSession) -> Result<SessionId, ToolError> {
        let mut sessions = lock(&self.0.sessions);
        let session = *sessions.entry(child.name).or_insert_with(SessionId::new);
        lock(&self.0.open).insert(session);
        Ok(session)
    }

    async fn open_for(&self, _: User, name: &str) -> Result<SessionId, ToolError> {
        let mut sessions = lock(&self.0.sessions);
        Ok(*sessions.entry(name.to_owned()).or_insert_with(SessionId::new))
    }

    fn tools(&self, _: SessionId) -> Result<Vec<ChildTool>, ToolError> {
        let tool = |(declared, effect): (&'static str, Effect)| ChildTool {
            name: declared.replace('.', "_"),
            declared,
            description: String::new(),
            input_schema: json!({ "type": "object" }),
            effect,
            concurrency_safe: true,
        };
        let all = [
            ("toy.echo", Effect::Write),
            ("toy.fails", Effect::Write),
            ("toy.hold", Effect::Write),
            ("toy.hold_read", Effect::Read),
            ("toy.slow", Effect::Write),
            ("toy.slow_read", Effect::Read),
            ("web.fetch", Effect::Read),
        ];
        Ok(all.map(tool).into())
    }

    async fn call(&self, call: ChildCall) -> Result<ChildAnswer, ToolError> {
        if call.effect.is_some_and(|effect| effect.again) {
            return Err(ToolError::effect_unknown(Layer::Guest));
        }
        lock(&self.0.called).push((call.tool.clone(), Value::Object(call.args.clone())));
        match call.tool.as_str() {
            "toy_fails" => return Err(ToolError::invalid("no luck")),
            "toy_hold" | "toy_hold_read" => self.0.released.cancelled().await,
            "toy_slow" | "toy_slow_read" => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => {}
        }
        Ok(ChildAnswer { value: Value::Object(call.args), from_source: false })
    }

    fn agents_above(&self, _: SessionId) -> Vec<SessionId> {
        Vec::new()
    }

    fn awaiting_approval(&self) -> std::collections::BTreeSet<SessionId> {
        Default::default()
    }

    async fn end(&self, session: SessionId) -> Result<(), ToolError> {
        lock(&self.0.open).remove(&session);
        Ok(())
    }
}
