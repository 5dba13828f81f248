//! Fakes of what a program needs: a machine whose tasks end when a test says so, one connection to the gateway, and a
//! relay that plays. They outlive a daemon, as a machine and a provider do.

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
use tokio::sync::{mpsc, watch};
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

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct FakeMachine(Arc<MachineState>);

struct MachineState {
    tasks: Mutex<BTreeMap<String, (TaskAssignment, Option<TaskResult>)>>,
    cancelled: Mutex<Vec<String>>,
    news: watch::Sender<u64>,
    handler: watch::Sender<Option<Arc<dyn GuestHttpHandler>>>,
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
            handler: watch::channel(None).0,
            plays: Mutex::default(),
            relayed: Mutex::default(),
            programs: Mutex::default(),
        }))
    }
}

impl FakeMachine {
    pub(super) fn offer(&self, ports: &Ports) {
        // Another daemon: nothing is served until it listens.
        self.0.handler.send_replace(None);
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

    /// Ends the task that runs.
    pub(super) async fn finish(&self, outcome: TaskOutcome, stdout: &str, stderr: &str) {
        eventually("a task runs", async || self.running().is_some()).await;
        let running = self.running().expect("it runs");
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
            task_id: running.clone(),
            message_id: task.message_id.clone(),
            outcome,
            capture,
        });
        self.0.news.send_modify(|count| *count += 1);
    }

    fn running(&self) -> Option<String> {
        let tasks = lock(&self.0.tasks);
        tasks.iter().find(|(_, (_, result))| result.is_none()).map(|(id, _)| id.clone())
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
        let mut handler = self.0.handler.subscribe();
        let handler = handler.wait_for(Option::is_some).await.expect("it is held").clone();
        let request = GuestHttpRequest {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers: [("host", "127.0.0.1"), ("x-hivekeep-request", number)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            body: Bytes::from(body.to_owned()),
        };
        handler.expect("it listens").answer(request).await
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
    async fn put(&self, _: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        let mut tasks = lock(&self.0.tasks);
        let repeat = tasks.contains_key(&task.task_id);
        let (_, result) = tasks.entry(task.task_id.clone()).or_insert((task, None));
        Ok(TaskTaken { state: TaskState::Running, repeat, differs: false, result: result.clone() })
    }

    async fn results(
        &self,
        _: WorkspaceId,
        _: u64,
        _: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let tasks = lock(&self.0.tasks);
        let results = tasks.values().filter_map(|(_, result)| result.clone());
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

    async fn board(&self, _: WorkspaceId) -> Result<TaskBoard, ToolError> {
        Err(ToolError::internal("nobody lists"))
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
        _: WorkspaceId,
        _: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        // One connection for each daemon.
        self.0.handler.subscribe().wait_for(Option::is_none).await.expect("it is held");
        Ok(Box::new(tokio::io::duplex(1).0))
    }
}

#[async_trait]
impl GuestHttp for FakeMachine {
    async fn serve(
        &self,
        _: User,
        _: Box<dyn ByteStream>,
        handler: Arc<dyn GuestHttpHandler>,
        end: CancellationToken,
    ) {
        self.0.handler.send_replace(Some(handler));
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
