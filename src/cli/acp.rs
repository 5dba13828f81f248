//! `hivekeep acp`: chats with an agent for an editor, by the Agent Client Protocol on standard input and output.
//!
//! ```text
//! editor ─ frames ─▶ reader ─▶ a thread for each request ─ control door ─▶ the daemon's own tools
//!        ◀─ answers, updates, requests for permission ─┘
//! ```
//! A session is an execution of the daemon that waits for its next message, and nothing of it is kept here: so editors,
//! `hivekeep chat` and other clients see the same, and a prompt goes on when this program, the daemon or both were gone.

mod editor;
mod link;
mod permissions;
mod prompt;
mod sessions;
mod updates;

use std::{
    collections::HashMap,
    io::BufReader,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use hivekeep_agent::acp::{
    ProtocolVersion,
    frames::{AcpFrame, MAX_FRAME_BYTES, params},
    schema::{
        AGENT_METHOD_NAMES, AgentCapabilities, CancelNotification, CancelRequestNotification,
        Error, Implementation, InitializeRequest, InitializeResponse, PROTOCOL_LEVEL_METHOD_NAMES,
        PromptCapabilities, Request, RequestId, SessionCapabilities, SessionListCapabilities,
        SessionResumeCapabilities,
    },
};
use hivekeep_door_server::lines::{BlockingLines, LineOutcome};
use hivekeep_kernel::lock;
use serde_json::Value;

use self::{editor::Editor, link::DaemonLink};
use super::{CliContext, CommandFailure, mcp::take_stdio};

/// Most requests that are being answered.
const MAX_REQUESTS: usize = 32;

/// Serve an editor that speaks the Agent Client Protocol, over standard input and output.
///
/// A session is a chat with an agent, which works in a machine of its own and goes on when the editor or the daemon is
/// gone. The daemon has to run when a session is opened. Nothing but frames of the protocol is written to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep acp
  hivekeep acp --agent reviewer
  acpx --agent 'hivekeep acp' exec 'what is in notes.md?'")]
pub struct Args {
    /// Agent of new sessions: its id or name. Default: the one that `agent.chat_agent` names.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Open sessions without the MCP servers that the editor names, instead of refusing them.
    #[arg(long)]
    without_mcp: bool,
    /// How long a daemon that was lost is waited for, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    reconnect_secs: u64,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let reach = context.reach(&context.load()?);
    let (input, output) = take_stdio()?;
    let desk = Arc::new(AcpDesk {
        editor: Editor::new(output),
        daemon: DaemonLink { reach, patience: Duration::from_secs(args.reconnect_secs) },
        args,
        prompts: Mutex::default(),
        running: Arc::default(),
    });
    let (mut lines, mut initialized) =
        (BlockingLines::new(BufReader::new(input), MAX_FRAME_BYTES), false);
    loop {
        let frame = match lines.read()? {
            LineOutcome::End => return Ok(()),
            LineOutcome::TooLong => {
                let why = format!("a frame above {} KiB was dropped", MAX_FRAME_BYTES / 1024);
                let error = Error::invalid_request().data(why);
                desk.editor.answer(RequestId::Null, Err::<(), _>(error));
                continue;
            }
            LineOutcome::Whole(line) => AcpFrame::read(line),
        };
        match frame {
            Err(refused) => desk.editor.write(&refused),
            Ok(AcpFrame::Response(response)) => desk.editor.answered(response),
            Ok(AcpFrame::Notification(it)) => desk.notified(&it.method, it.params),
            Ok(AcpFrame::Request(request)) => {
                let initializes = *request.method == *AGENT_METHOD_NAMES.initialize;
                match initializes || initialized {
                    true if initializes => {
                        initialized = true;
                        desk.editor.answer(request.id, initialize(request.params));
                    }
                    true => desk.begin(request),
                    false => {
                        let error = Error::invalid_request().data("`initialize` comes first");
                        desk.editor.answer(request.id, Err::<(), _>(error));
                    }
                }
            }
        }
    }
}

fn initialize(given: Option<Value>) -> Result<InitializeResponse, Error> {
    let _version_1_is_all_there_is: InitializeRequest = params(given)?;
    let sessions = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .resume(SessionResumeCapabilities::new());
    let capabilities = AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(PromptCapabilities::new().embedded_context(true))
        .session_capabilities(sessions);
    Ok(InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("hivekeep", env!("CARGO_PKG_VERSION"))))
}

/// Prompt that is being answered.
struct RunningPrompt {
    request: RequestId,
    cancel: SyncSender<()>,
}

/// Everything that the requests of an editor share.
struct AcpDesk {
    editor: Editor,
    daemon: DaemonLink,
    args: Args,
    /// Prompts by the ids of their sessions.
    prompts: Mutex<HashMap<String, RunningPrompt>>,
    /// Clones of this are the requests that are being answered, and one more.
    running: Arc<()>,
}

impl AcpDesk {
    fn notified(&self, method: &str, given: Option<Value>) {
        let prompts = lock(&self.prompts);
        let prompt = if method == AGENT_METHOD_NAMES.session_cancel {
            let asked = params::<CancelNotification>(given);
            asked.ok().and_then(|it| prompts.get(&*it.session_id.0))
        } else if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request {
            let asked = params::<CancelRequestNotification>(given);
            asked.ok().and_then(|it| prompts.values().find(|one| one.request == it.request_id))
        } else {
            None
        };
        if let Some(prompt) = prompt {
            // Once is enough.
            let _asked_before = prompt.cancel.try_send(());
        }
    }

    /// Answers a request on a thread of its own.
    fn begin(self: &Arc<Self>, request: Request<Value>) {
        let id = request.id.clone();
        if Arc::strong_count(&self.running) > MAX_REQUESTS {
            let why = format!("{MAX_REQUESTS} requests are being answered");
            return self.editor.answer(id, Err::<(), _>(Error::internal_error().data(why)));
        }
        let cancel = match self.enter(&request) {
            Ok(cancel) => cancel,
            Err(error) => return self.editor.answer(id, Err::<(), _>(error)),
        };
        let (desk, place) = (self.clone(), self.running.clone());
        thread::spawn(move || {
            let answer = desk.handle(request, cancel.as_ref());
            if cancel.is_some() {
                lock(&desk.prompts).retain(|_, one| one.request != id);
            }
            desk.editor.answer(id, answer);
            drop(place);
        });
    }

    /// Notes a prompt, so that it can be cancelled from its first moment on.
    fn enter(&self, request: &Request<Value>) -> Result<Option<Receiver<()>>, Error> {
        if *request.method != *AGENT_METHOD_NAMES.session_prompt {
            return Ok(None);
        }
        let session = request.params.as_ref().and_then(|it| it["sessionId"].as_str());
        let session = session.ok_or_else(|| Error::invalid_params().data("no `sessionId`"))?;
        let (cancel, cancelled) = sync_channel(1);
        let mut prompts = lock(&self.prompts);
        if prompts.contains_key(session) {
            let why = "a prompt of the session is being answered: cancel it, or wait";
            return Err(Error::invalid_request().data(why));
        }
        let running = RunningPrompt { request: request.id.clone(), cancel };
        prompts.insert(session.to_owned(), running);
        Ok(Some(cancelled))
    }

    fn handle(
        &self,
        request: Request<Value>,
        cancelled: Option<&Receiver<()>>,
    ) -> Result<Value, Error> {
        let Request { method, params: given, .. } = request;
        let names = AGENT_METHOD_NAMES;
        let answer = match &*method {
            it if it == names.session_new => serde_json::to_value(self.open(given)?),
            it if it == names.session_load => serde_json::to_value(self.load(given)?),
            it if it == names.session_resume => serde_json::to_value(self.resume(given)?),
            it if it == names.session_list => serde_json::to_value(self.list(given)?),
            it if it == names.session_prompt => {
                let cancelled = cancelled.ok_or_else(Error::internal_error)?;
                serde_json::to_value(self.prompt(params(given)?, cancelled)?)
            }
            other => return Err(Error::method_not_found().data(other)),
        };
        Ok(answer?)
    }
}
