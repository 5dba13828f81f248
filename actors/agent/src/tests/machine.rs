//! Fakes of what a program needs: machines whose tasks end when a test says so, one connection of each to its gateway,
//! and a relay that plays. They outlive a daemon, as a machine and a provider do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use hivekeep_kernel::{CallCx, Layer, ToolError, User, WorkspaceId, lock};
use hivekeep_ports::{
    ByteStream, CommandRunner, GuestHttp, GuestHttpAnswer, GuestHttpHandler, GuestHttpRequest,
    ModelApi, ModelRelay, ModelSource, ModelUsage, ProgramConnections, RelayEnd, RelayPiece,
    RelayRequest, TaskAssignment, TaskBoard, TaskCapture, TaskHints, TaskOutcome, TaskOutput,
    TaskOutputs, TaskPage, TaskResult, TaskState, TaskTaken, TaskText, TaskWindow, Tasks,
};
use hivekeep_runtime::Ports;
use hivekeep_testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use super::acp::FakePrograms;

/// What a provider does with a request.
#[derive(Debug, Clone)]
pub(super) enum RelayPlay {
    /// Answers whole, in pieces, the last of which is the end.
    Whole(&'static [&'static str]),
    /// Sends a piece, and then breaks.
    Cut(&'static str),
    /// Sends a piece, and then nothing more.
    Hang(&'static str),
    /// Refuses with a status.
    Refuse(u16),
    /// Is not there.
    Down,
}

type Plays = dyn Fn(&RelayRequest, usize) -> RelayPlay + Send + Sync;

/// Task, and its result once it has ended.
type FakeTask = (TaskAssignment, Option<TaskResult>);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct FakeMachine(Arc<MachineState>);

struct MachineState {
    tasks: Mutex<BTreeMap<(WorkspaceId, String), FakeTask>>,
    cancelled: Mutex<Vec<String>>,
    news: watch::Sender<u64>,
    handlers: watch::Sender<BTreeMap<WorkspaceId, Arc<dyn GuestHttpHandler>>>,
    plays: Mutex<Option<Arc<Plays>>>,
    relayed: Mutex<Vec<RelayRequest>>,
    programs: Mutex<FakePrograms>,
}

impl Default for FakeMachine {
    fn default() -> Self {
        Self(Arc::new(MachineState {
            tasks: Mutex::default(),
            cancelled: Mutex::default(),
            news: watch::channel(0).0,
            handlers: watch::channel(BTreeMap::new()).0,
            plays: Mutex::default(),
            relayed: Mutex::default(),
            programs: Mutex::default(),
        }))
    }
}

impl FakeMachine {
    pub(super) fn offer(&self, ports: &Ports) {
        // Another daemon: nothing is served until it listens.
        self.0.handlers.send_replace(BTreeMap::new());
        let this = Arc::new(self.clone());
        ports.offer::<dyn Tasks>(this.clone());
        ports.offer::<dyn TaskOutputs>(this.clone());
        ports.offer::<dyn ProgramConnections>(this.clone());
        ports.offer::<dyn GuestHttp>(this.clone());
        ports.offer::<dyn ModelRelay>(this);
        ports.offer::<dyn CommandRunner>(Arc::new(self.programs()));
    }

    /// Its processes.
    pub(super) fn programs(&self) -> FakePrograms {
        lock(&self.0.programs).clone()
    }

    /// Has the processes of another, from the next daemon on.
    pub(super) fn adopt(&self, programs: &FakePrograms) {
        *lock(&self.0.programs) = programs.clone();
    }

    /// Has the provider play by the request and its number, from 0.
    pub(super) fn play(
        &self,
        play: impl Fn(&RelayRequest, usize) -> RelayPlay + Send + Sync + 'static,
    ) {
        *lock(&self.0.plays) = Some(Arc::new(play));
    }

    /// Requests that came to the provider.
    pub(super) fn relayed(&self) -> Vec<RelayRequest> {
        lock(&self.0.relayed).clone()
    }

    /// Tasks that were assigned, by their ids.
    pub(super) fn assigned(&self) -> Vec<TaskAssignment> {
        lock(&self.0.tasks).values().map(|(task, _)| task.clone()).collect()
    }

    pub(super) fn cancelled(&self) -> Vec<String> {
        lock(&self.0.cancelled).clone()
    }

    /// Has a machine run a task that a daemon before assigned.
    pub(super) fn runs(&self, workspace: WorkspaceId, task_id: &str, message_id: &str) {
        let task = TaskAssignment {
            message_id: message_id.to_owned(),
            task_id: task_id.to_owned(),
            command: String::new(),
            workdir: None,
            env: BTreeMap::new(),
            timeout_secs: 60,
        };
        lock(&self.0.tasks).insert((workspace, task_id.to_owned()), (task, None));
    }

    /// Has a machine know of no task.
    pub(super) fn forget(&self, workspace: WorkspaceId) {
        lock(&self.0.tasks).retain(|(of, _), _| *of != workspace);
    }

    /// Has a machine that is a copy of another go on with the tasks of that, which ran when it was made.
    pub(super) fn keep(&self, source: WorkspaceId, copy: WorkspaceId) {
        let mut tasks = lock(&self.0.tasks);
        let of_it = tasks.iter().filter(|((of, _), _)| *of == source);
        let copies: Vec<_> =
            of_it.map(|((_, id), (task, _))| ((copy, id.clone()), (task.clone(), None))).collect();
        tasks.extend(copies);
    }

    /// Ends the task that runs.
    pub(super) async fn finish(&self, outcome: TaskOutcome, stdout: &str, stderr: &str) {
        self.finish_in(None, outcome, stdout, stderr).await;
    }

    /// The same in a machine.
    pub(super) async fn finish_in(
        &self,
        workspace: Option<WorkspaceId>,
        outcome: TaskOutcome,
        stdout: &str,
        stderr: &str,
    ) {
        eventually("a task runs", async || self.running(workspace).is_some()).await;
        let running = self.running(workspace).expect("it runs");
        let text = |text: &str| TaskText {
            text: text.to_owned(),
            total_bytes: text.len() as u64,
            ..TaskText::default()
        };
        let capture =
            TaskCapture { stdout: text(stdout), stderr: text(stderr), ..TaskCapture::default() };
        let mut tasks = lock(&self.0.tasks);
        let (task, result) = tasks.get_mut(&running).expect("it runs");
        *result = Some(TaskResult {
            number: 1,
            task_id: running.1.clone(),
            message_id: task.message_id.clone(),
            outcome,
            capture,
        });
        self.0.news.send_modify(|count| *count += 1);
    }

    fn running(&self, of: Option<WorkspaceId>) -> Option<(WorkspaceId, String)> {
        let tasks = lock(&self.0.tasks);
        let mut all = tasks.iter().filter(|(_, (_, result))| result.is_none()).map(|(id, _)| id);
        all.find(|(workspace, _)| of.is_none_or(|of| of == *workspace)).cloned()
    }

    /// Sends a request as the program of a machine does, once its gateway listens.
    pub(super) async fn sends_in(
        &self,
        workspace: WorkspaceId,
        target: &str,
        body: &str,
    ) -> GuestHttpAnswer {
        self.sends_from(Some(workspace), target, "", body).await
    }

    /// Sends a request as the program does, once the gateway listens.
    pub(super) async fn sends(&self, target: &str, body: &str) -> GuestHttpAnswer {
        self.sends_numbered(target, "", body).await
    }

    /// The same with the number that the guest's shim gives it.
    pub(super) async fn sends_numbered(
        &self,
        target: &str,
        number: &str,
        body: &str,
    ) -> GuestHttpAnswer {
        self.sends_from(None, target, number, body).await
    }

    async fn sends_from(
        &self,
        workspace: Option<WorkspaceId>,
        target: &str,
        number: &str,
        body: &str,
    ) -> GuestHttpAnswer {
        let mut handlers = self.0.handlers.subscribe();
        let of_it = |all: &BTreeMap<WorkspaceId, Arc<dyn GuestHttpHandler>>| match workspace {
            Some(workspace) => all.get(&workspace).cloned(),
            None => all.values().next().cloned(),
        };
        let handler = {
            let all = handlers.wait_for(|all| of_it(all).is_some()).await.expect("it is held");
            of_it(&all).expect("it listens")
        };
        let request = GuestHttpRequest {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers: [("host", "127.0.0.1"), ("x-hivekeep-request", number)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            body: Bytes::from(body.to_owned()),
        };
        handler.answer(request).await
    }
}

/// Status and body of an answer; an error for one that was cut.
pub(super) async fn whole(mut answer: GuestHttpAnswer) -> (u16, Result<String, String>) {
    let mut text = String::new();
    while let Some(piece) = answer.body.recv().await {
        match piece {
            Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).expect("text")),
            Err(_) => return (answer.status, Err(text)),
        }
    }
    (answer.status, Ok(text))
}

#[async_trait]
impl Tasks for FakeMachine {
    async fn put(&self, at: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        let mut tasks = lock(&self.0.tasks);
        let key = (at, task.task_id.clone());
        let repeat = tasks.contains_key(&key);
        let (_, result) = tasks.entry(key).or_insert((task, None));
        Ok(TaskTaken { state: TaskState::Running, repeat, differs: false, result: result.clone() })
    }

    async fn results(
        &self,
        at: WorkspaceId,
        _: u64,
        _: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let tasks = lock(&self.0.tasks);
        let of_it = tasks.iter().filter(|((of, _), _)| *of == at);
        let results = of_it.filter_map(|(_, (_, result))| result.clone());
        Ok(TaskPage {
            results: results.filter(|result| sent.contains_key(&result.task_id)).collect(),
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
        Ok(u32::try_from(ids.len()).expect("few"))
    }

    async fn cancel(&self, _: WorkspaceId, task_id: String) -> Result<TaskState, ToolError> {
        lock(&self.0.cancelled).push(task_id);
        Ok(TaskState::Running)
    }

    async fn board(&self, at: WorkspaceId) -> Result<TaskBoard, ToolError> {
        let tasks = lock(&self.0.tasks);
        let open = tasks.iter().filter(|((of, _), (_, result))| *of == at && result.is_none());
        let running = open.map(|((_, id), _)| id.clone()).collect();
        Ok(TaskBoard { queued: Vec::new(), running, results: 0 })
    }

    async fn hints(&self, _: WorkspaceId) -> Result<TaskHints, ToolError> {
        Ok(TaskHints::new(self.0.news.subscribe()))
    }
}

#[async_trait]
impl TaskOutputs for FakeMachine {
    async fn output(&self, _: WorkspaceId, _: TaskWindow) -> Result<TaskOutput, ToolError> {
        Err(ToolError::internal("no output is so long"))
    }
}

#[async_trait]
impl ProgramConnections for FakeMachine {
    async fn accept(
        &self,
        _: &CallCx,
        at: WorkspaceId,
        _: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        // One connection for each daemon, which says whose it is.
        let mut handlers = self.0.handlers.subscribe();
        handlers.wait_for(|all| !all.contains_key(&at)).await.expect("it is held");
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(at.to_string().as_bytes()).await.expect("room for a name");
        Ok(Box::new(near))
    }
}

#[async_trait]
impl GuestHttp for FakeMachine {
    async fn serve(
        &self,
        _: User,
        mut stream: Box<dyn ByteStream>,
        handler: Arc<dyn GuestHttpHandler>,
        end: CancellationToken,
    ) {
        let mut name = String::new();
        stream.read_to_string(&mut name).await.expect("a name");
        let workspace = name.parse().expect("a workspace's");
        self.0.handlers.send_modify(|all| drop(all.insert(workspace, handler)));
        end.cancelled().await;
    }
}

#[async_trait]
impl ModelRelay for FakeMachine {
    fn speaks(&self, provider: &str, api: ModelApi) -> bool {
        provider == "fake" && api != ModelApi::Gemini
    }

    fn worst_case(&self, request: &RelayRequest) -> Result<ModelUsage, ToolError> {
        let input_tokens = request.body.len() as u64;
        Ok(ModelUsage { input_tokens, output_tokens: 5, ..ModelUsage::default() })
    }

    async fn relay(
        &self,
        request: RelayRequest,
        pieces: mpsc::Sender<RelayPiece>,
    ) -> Result<(ModelSource, RelayEnd), ToolError> {
        let nth = {
            let mut all = lock(&self.0.relayed);
            all.push(request.clone());
            all.len() - 1
        };
        let play = lock(&self.0.plays).clone().expect("it plays")(&request, nth);
        let head = |status| RelayPiece::Head {
            status,
            content_type: "text/event-stream".to_owned(),
            retry_after: None,
        };
        let body = |text: &'static str, ends| RelayPiece::Body { bytes: text.into(), ends };
        let failed = |code: &'static str| {
            Err(ToolError::foreign(Layer::Actor, code, "it broke").retryable())
        };
        let source = ModelSource {
            provider: request.provider.clone(),
            provider_kind: "scripted",
            model: request.model.clone(),
        };
        let (all, end) = match play {
            RelayPlay::Down => return failed("llm_unavailable"),
            RelayPlay::Whole(all) => {
                let last = all.len() - 1;
                let all = all.iter().enumerate().map(|(nth, text)| body(text, nth == last));
                let usage = ModelUsage { input_tokens: 10, output_tokens: 5, ..Default::default() };
                let pieces = std::iter::once(head(200)).chain(all).collect();
                (pieces, Some(Ok((source, RelayEnd { whole: true, usage }))))
            }
            RelayPlay::Refuse(status) => {
                let end = RelayEnd { whole: false, usage: ModelUsage::default() };
                (vec![head(status), body("{}", true)], Some(Ok((source, end))))
            }
            RelayPlay::Cut(text) => {
                (vec![head(200), body(text, false)], Some(failed("llm_answer_broken")))
            }
            RelayPlay::Hang(text) => (vec![head(200), body(text, false)], None),
        };
        for piece in all {
            let _gone = pieces.send(piece).await;
        }
        match end {
            Some(end) => end,
            None => {
                pieces.closed().await;
                Err(ToolError::cancelled())
            }
        }
    }
}
