//! Program that speaks the Agent Client Protocol: a durable process in the execution's machine, whose client is the daemon
//! over the process's standard input and output.
//!
//! ```text
//! start ─▶ initialize ─▶ session/new ─▶ prompt ─▶ ( update │ request ─▶ answer )* ─▶ answer to the prompt ─▶ end
//!   ▲                    session/load                                     │
//!   └──────────── the program died, and can load its session ◀────────────┘
//! ```
//! The process goes on when the daemon dies. Its output is kept by its machine, and the records say how far it is read and
//! which requests have no answer; so the next daemon reads on, and asks a person again who had not answered.

mod line;
pub(crate) mod requests;
mod state;
mod terminals;
pub(crate) mod tools;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use futures::{StreamExt, stream::FuturesUnordered};
use hivekeep_kernel::{CallCx, JobId, Layer, ToolError};
use hivekeep_ports::{
    CommandRunner, CommandSpec, PlaceProcess, ProcessSpec, ProcessState, TaskOutcome,
};
use hivekeep_runtime::log::LogError;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::line::{AcpLine, PlacedFrame, answer_to};
pub(crate) use self::state::{AcpChange, AcpState};
use super::{ExecutionSaga, program::ProgramRun, program_end::ProgramEnd, state::Record};
use crate::{
    acp::{
        ProtocolVersion,
        frames::{AcpFrame, params},
        schema::{
            AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, Error, Implementation, InitializeRequest,
            InitializeResponse, LoadSessionRequest, McpServer, McpServerStdio, NewSessionRequest,
            NewSessionResponse, PromptRequest, PromptResponse, Request, StopReason,
        },
    },
    codes,
};

/// Ids of our requests to a program, each once in the life of its process.
const INITIALIZE: i64 = 0;
const SESSION: i64 = 1;
const PROMPT: i64 = 2;
/// Processes of one iteration: one, and those that load its session.
const MAX_STARTS: u32 = 3;
/// Requests of a program that are answered at a time.
const MAX_OPEN: usize = 16;
/// Updates and requests of one iteration.
const MAX_TOLD: usize = 5_000;
/// Most bytes of an update that are recorded.
const UPDATE_BYTES: usize = 8 * 1024;
/// Time for the beginning of a program, and for the loading of a session.
const GREETING: Duration = Duration::from_secs(120);
/// Limit of one call to the machine.
const CALL: Duration = Duration::from_secs(60);
/// Time for the end of a process.
const GRACE: Duration = Duration::from_secs(2);
/// Folder that the program works in.
const FOLDER: &str = "/workspace";
/// Message to a program whose session was loaded after its end.
const GO_ON: &str =
    "You were ended in the middle of this task and started again. Look at what you did, and go on.";

/// Reason why a talk with a process ends before its answer.
enum AcpBreak {
    /// The process is of no use any more; another one may go on.
    Died(ToolError),
    /// Another process would not do better.
    Failed(ToolError),
}

impl AcpBreak {
    fn died(how: &str) -> Self {
        let message = format!("the program ended before its answer: {how}");
        let error = ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message);
        Self::Died(error.next("`program_update` of aegis.task.logs shows what it did before"))
    }

    fn protocol(what: &str) -> Self {
        let message = format!("the program does not keep to the Agent Client Protocol: {what}");
        let error = ToolError::new(Layer::Actor, codes::PROGRAM_PROTOCOL, message);
        Self::Failed(
            error.next("run a version of it that speaks version 1, or use `protocol: exit`"),
        )
    }
}

impl From<LogError> for AcpBreak {
    fn from(error: LogError) -> Self {
        Self::Failed(error.into())
    }
}

/// Words of a program that come in pieces, until it does something else.
#[derive(Default)]
struct SaidPieces {
    kind: String,
    text: String,
    to: u64,
}

impl ProgramRun<'_> {
    /// Talks with the program until it has answered.
    pub(super) async fn talk(&self) -> Result<ProgramEnd, ToolError> {
        let runner: Arc<dyn CommandRunner> = self.saga.shared.daemon.ports.need()?;
        let mut reuse = true;
        loop {
            let acp = self.saga.handle.state().acp.clone();
            let kept = acp.process.filter(|_| reuse && acp.goes_on());
            let (process, is_new) = match kept {
                Some(process) => (process, false),
                None => (self.begin(&runner, acp.process).await?, true),
            };
            match self.converse(&runner, process, is_new).await {
                Ok(end) => return Ok(end),
                Err(AcpBreak::Failed(error)) => return Err(error),
                Err(AcpBreak::Died(error)) => {
                    let acp = self.saga.handle.state().acp.clone();
                    if !acp.loads || acp.starts >= MAX_STARTS {
                        return Err(error);
                    }
                    tracing::info!(execution = %self.state.begun.id, %error, "its program is started again");
                    reuse = false;
                }
            }
        }
    }

    /// Ends the process, as far as its machine can be asked.
    pub(super) async fn hang_up(&self) {
        let Some(process) = self.saga.handle.state().acp.process else { return };
        let Ok(runner) = self.saga.shared.daemon.ports.need::<dyn CommandRunner>() else { return };
        self.end_process(&runner, process).await;
    }

    async fn end_process(&self, runner: &Arc<dyn CommandRunner>, process: JobId) {
        if let Err(error) = runner.stop(&self.context(), process, GRACE).await {
            tracing::warn!(execution = %self.state.begun.id, %process, %error, "its program is not stopped");
        }
    }

    fn context(&self) -> CallCx {
        let span = tracing::info_span!("program", execution = %self.state.begun.id);
        // Dropping a call cancels it, and a cancelled execution still ends its process.
        let never = CancellationToken::new();
        CallCx::internal(ExecutionSaga::child(self.state), CALL, never, span)
    }

    /// Starts a process, in place of any that an incarnation before this one started.
    async fn begin(
        &self,
        runner: &Arc<dyn CommandRunner>,
        before: Option<JobId>,
    ) -> Result<JobId, ToolError> {
        let (script, env) = self.program.script("")?;
        let number = self.saga.handle.state().acp.starts;
        // Its name, by which one is found that no record tells of.
        let name = format!("{}-{number}", self.task_id);
        let argv = ["/bin/sh", "-c", &script, &name].map(str::to_owned).to_vec();
        let is_left = |one: &PlaceProcess| {
            let own = one.argv.last() == Some(&name) || Some(one.id) == before;
            own && matches!(one.state, ProcessState::Running | ProcessState::Unknown(_))
        };
        let workspace = self.at()?;
        for left in runner.processes(&self.context()).await.iter().filter(|one| is_left(one)) {
            self.end_process(runner, left.id).await;
        }
        let (workdir, inherit) = (FOLDER.to_owned(), vec!["*".to_owned()]);
        let command = CommandSpec { argv, workdir, env, inherit, user: None };
        let place = "session".to_owned();
        let process = ProcessSpec { command, terminal: None, input: true, place };
        let started = runner.start(&self.context(), workspace, process).await?;
        self.note(AcpChange::Started { process: started.id }).await?;
        Ok(started.id)
    }

    async fn converse(
        &self,
        runner: &Arc<dyn CommandRunner>,
        process: JobId,
        is_new: bool,
    ) -> Result<ProgramEnd, AcpBreak> {
        let context = || self.context();
        let from = self.saga.handle.state().acp.resumes_at();
        let mut line =
            AcpLine::new(runner.clone(), context, process, if is_new { 0 } else { from });
        if is_new {
            self.greet(&mut line).await?;
        }
        let (mut answers, mut said) = (FuturesUnordered::new(), SaidPieces::default());
        loop {
            let next = tokio::select! {
                Some((from, answer)) = answers.next(), if !answers.is_empty() => {
                    let answer: requests::AcpAnswer = answer;
                    line.send(&answer.frame).await?;
                    self.note(AcpChange::Answered { from, error: answer.error }).await?;
                    continue;
                }
                next = line.next() => next?,
            };
            let PlacedFrame { from, to, frame } = next;
            let acp = self.saga.handle.state().acp.clone();
            let is_open = acp.open.contains(&from);
            if to <= acp.read && !is_open {
                continue;
            }
            if acp.told >= MAX_TOLD {
                let why = format!("it told more than {MAX_TOLD} times what it does");
                return Err(AcpBreak::protocol(&why));
            }
            match frame {
                AcpFrame::Notification(mut it)
                    if *it.method == *CLIENT_METHOD_NAMES.session_update =>
                {
                    let update = it.params.as_mut().and_then(|it| it.get_mut("update"));
                    let update = update.map(Value::take).unwrap_or_default();
                    self.update(&mut said, update, to).await?;
                }
                AcpFrame::Request(request) => {
                    self.flush(&mut said).await?;
                    if !is_open && answers.len() >= MAX_OPEN {
                        let why = format!("{MAX_OPEN} requests are being answered");
                        let error = Error::internal_error().data(why);
                        line.send(&AcpFrame::answer(request.id, Err::<(), _>(error))).await?;
                        continue;
                    }
                    if !is_open {
                        let (method, about) =
                            (request.method.to_string(), requests::about(&request));
                        self.note(AcpChange::Asked { method, about, from, read: to }).await?;
                    }
                    answers.push(self.answer(from, request, is_open));
                }
                AcpFrame::Response(response) => {
                    let method = AGENT_METHOD_NAMES.session_prompt;
                    if let Some(answer) = answer_to(PROMPT, response, method) {
                        self.flush(&mut said).await?;
                        return self.ended(answer?, line.stderr);
                    }
                }
                AcpFrame::Notification(_) => {}
            }
        }
    }

    /// Makes the process's acquaintance, and sends it the message.
    async fn greet<C: Fn() -> CallCx>(&self, line: &mut AcpLine<C>) -> Result<(), AcpBreak> {
        let names = AGENT_METHOD_NAMES;
        let begin = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(requests::offered(self.state))
            .client_info(Implementation::new("hivekeep", env!("CARGO_PKG_VERSION")));
        let begun = line.ask(INITIALIZE, names.initialize, begin, GREETING).await?;
        let begun: InitializeResponse = read(begun)?;
        if begun.protocol_version != ProtocolVersion::V1 {
            let why = format!("it speaks version {} alone", begun.protocol_version);
            return Err(AcpBreak::protocol(&why));
        }
        let loads = begun.agent_capabilities.load_session;
        let before = self.saga.handle.state().acp.session.clone().filter(|_| loads);
        let goes_on = before.is_some();
        let servers = || -> Vec<McpServer> {
            let words = self.program.mcp_command().unwrap_or_default();
            let server = |(command, args): (&String, &[String])| {
                let server = McpServerStdio::new("hivekeep", command.as_str());
                McpServer::Stdio(server.args(args.to_vec()))
            };
            words.split_first().map(server).into_iter().collect()
        };
        let id = match before {
            Some(id) => {
                let load = LoadSessionRequest::new(id.clone(), FOLDER).mcp_servers(servers());
                line.ask(SESSION, names.session_load, load, GREETING).await?;
                id
            }
            None => {
                let new = NewSessionRequest::new(FOLDER).mcp_servers(servers());
                let new = line.ask(SESSION, names.session_new, new, GREETING).await?;
                read::<NewSessionResponse>(new)?.session_id.0.to_string()
            }
        };
        let read = line.place();
        self.note(AcpChange::Session { id: id.clone(), loads, read }).await?;
        let prompt = self.state.iteration().map(|it| it.prompt.to_string()).unwrap_or_default();
        let prompt = if goes_on { format!("{GO_ON}\n\nThe task:\n\n{prompt}") } else { prompt };
        let prompt = PromptRequest::new(id, vec![prompt.into()]);
        line.send(&AcpFrame::request(PROMPT, names.session_prompt, prompt)).await?;
        self.note(AcpChange::Prompted).await?;
        Ok(())
    }

    async fn answer(
        &self,
        from: u64,
        request: Request<Value>,
        was_begun: bool,
    ) -> (u64, requests::AcpAnswer) {
        (from, self.saga.answer_program(self.state, request, was_begun).await)
    }

    /// Records an update; pieces of what it says are one.
    async fn update(
        &self,
        said: &mut SaidPieces,
        mut update: Value,
        to: u64,
    ) -> Result<(), AcpBreak> {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        if kind.ends_with("_message_chunk") || kind.ends_with("_thought_chunk") {
            if said.kind != kind || said.text.len() >= UPDATE_BYTES {
                self.flush(said).await?;
            }
            let text = update["content"]["text"].as_str().unwrap_or_default();
            said.text += &text[..text.floor_char_boundary(text.len().min(UPDATE_BYTES))];
            (said.kind, said.to) = (kind, to);
            return Ok(());
        }
        if !["tool_call", "tool_call_update", "plan"].contains(&kind.as_str()) {
            // Commands, modes and the like say nothing of what it did.
            return Ok(());
        }
        self.flush(said).await?;
        if update.to_string().len() > UPDATE_BYTES {
            let kept =
                ["toolCallId", "title", "kind", "status"].map(|key| (key, update[key].take()));
            update = kept.into_iter().filter(|(_, value)| !value.is_null()).collect();
            update["sessionUpdate"] = json!(kind);
            update["cut"] = json!(true);
        }
        self.note(AcpChange::Updated { update, read: to }).await?;
        Ok(())
    }

    async fn flush(&self, said: &mut SaidPieces) -> Result<(), LogError> {
        let SaidPieces { kind, text, to } = std::mem::take(said);
        if text.is_empty() {
            return Ok(());
        }
        let update = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        self.note(AcpChange::Updated { update, read: to }).await
    }

    async fn note(&self, change: AcpChange) -> Result<(), LogError> {
        self.saga.handle.record(Record::Acp { change, at: Utc::now() }).await
    }

    fn ended(&self, answer: Value, stderr: String) -> Result<ProgramEnd, AcpBreak> {
        let name = &self.program.name;
        let fails = |code, how: &str| {
            let error = ToolError::new(Layer::Actor, code, format!("`{name}` {how}"));
            let next =
                "`program_update` of aegis.task.logs shows what it did; ask for less, or otherwise";
            Err(AcpBreak::Failed(error.next(next)))
        };
        match read::<PromptResponse>(answer)?.stop_reason {
            StopReason::EndTurn => {
                let outcome = TaskOutcome::Exited { exit_code: 0 };
                let output = self.saga.handle.state().acp.said.trim().to_owned();
                Ok(ProgramEnd { outcome, output, stderr })
            }
            StopReason::MaxTokens => {
                fails(codes::ANSWER_CUT_SHORT, "was cut short by its bound of tokens")
            }
            StopReason::MaxTurnRequests => fails(codes::TURNS_EXHAUSTED, "had not enough turns"),
            StopReason::Refusal => fails(codes::MODEL_REFUSED, "refused the task"),
            other => fails(codes::PROGRAM_FAILED, &format!("ended its turn by {other:?}")),
        }
    }
}

/// Answer of a program as the type that it has to have.
fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, AcpBreak> {
    params(Some(answer)).map_err(|error| AcpBreak::protocol(&format!("an answer: {error:.500}")))
}
