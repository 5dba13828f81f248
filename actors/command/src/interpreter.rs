//! Client of the code interpreter in a workspace: HTTP/1.1 over a connection to its port, and lazy start where
//! nothing listens there.
//!
//! ```text
//! run_code ─▶ judged ─▶ dial ─▶ contexts ─▶ execute ─▶ lines of JSON ─▶ result
//!                        └─ closed: start, wait for its word, dial again
//! ```
//! The port decides who is first: a second server finds it taken and ends. A call that ends early drops its
//! connection, and the interpreter interrupts what runs for it.
//! The guest is not trusted: heads, lines and texts are bounded.

mod told;

pub(crate) use told::{CodeError, Told};

use std::{collections::BTreeMap, future::poll_fn, pin::Pin, time::Duration};

use hivekeep_kernel::{CallCx, Layer, Progress, ToolError};
use hivekeep_ports::{
    ByteStream, InternalCall, PlaceWorkspace, ProcessSpec, ProcessState, ProcessWindow,
    WorkspacePorts,
};
use hyper::{
    Request, StatusCode,
    body::{Body as _, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    codes,
    commands::{CommandResult, CommandService},
};

/// Port of the interpreter, on the loopback of the workspace.
const PORT: u16 = 49_999;
/// Program of the interpreter in the image.
const SERVER: &str = "/usr/lib/code-interpreter";
/// User that the interpreter runs as.
const USER: &str = "user";
/// Time of a start, which reads a hundred megabytes of Python from the disk at worst.
const START: Duration = Duration::from_secs(60);

impl CommandService {
    /// A connection to the interpreter of a place, which is started if it does not run.
    ///
    /// # Errors
    /// `no_interpreter`; `interpreter_failed` if it ends instead of listening; those of a call of the guest.
    pub(crate) async fn interpreter(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
    ) -> CommandResult<Exchange> {
        let ports = self.ports.need::<dyn WorkspacePorts>()?;
        let stream: Box<dyn ByteStream> = match ports.dial(cx, place.workspace, PORT).await {
            Err(error) if is_of_guest(&error) => {
                let ended = self.start_interpreter(cx, place).await?;
                let dialled = ports.dial(cx, place.workspace, PORT).await;
                // The interpreter may have ended because another one listens already.
                dialled.map_err(|error| ended.map_or(error, failed))?
            }
            dialled => dialled?,
        };
        Exchange::over(stream).await
    }

    /// Starts the interpreter and waits until it listens; its error output if it ended instead.
    async fn start_interpreter(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
    ) -> CommandResult<Option<String>> {
        let argv = vec![SERVER.to_owned()];
        let mut command = self.spec(place, argv, place.root.clone(), BTreeMap::new())?;
        command.user = Some(USER.to_owned());
        let place_name = place.place.clone();
        let process = ProcessSpec { command, terminal: None, input: false, place: place_name };
        let id = match self.commands.start(cx, place.workspace, process).await {
            Err(error) if is_of_guest(&error) => {
                return Err(self.no_interpreter(cx, place, &error.message).await);
            }
            started => started?.id,
        };
        let listens = async {
            let (mut said, mut from) = (String::new(), 0);
            loop {
                let wait = Duration::from_secs(5);
                let window =
                    ProcessWindow { stdout_from: 0, stderr_from: from, max_bytes: 4096, wait };
                let read = self.commands.output(cx, id, window).await?;
                if !read.stdout.bytes.is_empty() {
                    return Ok(None);
                }
                from = read.stderr.next();
                if !read.stderr.bytes.is_empty() {
                    said = String::from_utf8_lossy(&read.stderr.bytes).into_owned();
                }
                // Status of a shell for a program that cannot be executed.
                if let ProcessState::Exited(126 | 127) = read.process.state {
                    return Err(self.no_interpreter(cx, place, said.trim()).await);
                }
                if read.process.state != ProcessState::Running {
                    return Ok(Some(format!("the interpreter did not start: {}", said.trim())));
                }
            }
        };
        match tokio::time::timeout(START, cx.guard(listens)).await {
            Ok(listens) => listens,
            Err(_) => {
                Err(failed(format!("the interpreter did not listen within {} s", START.as_secs())))
            }
        }
    }

    /// Refusal for a place without an interpreter, with the name of its image where that is known.
    async fn no_interpreter(&self, cx: &CallCx, place: &PlaceWorkspace, why: &str) -> ToolError {
        let call = InternalCall {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            progress: Progress::default(),
            reserved: None,
        };
        let asked = json!({ "workspace_id": place.workspace });
        let told = self.daemon_tools.call(call, "workspace_info", asked).await.ok();
        let image = told.as_ref().and_then(|info| info["base_image"].as_str()).unwrap_or("unknown");
        let message = format!(
            "the place `{}` has no code interpreter: its image is `{image}` ({why})",
            place.place
        );
        ToolError::new(Layer::Guest, codes::NO_INTERPRETER, message).detail("image", image)
    }
}

/// Whether a guest refused for good: it has no listener, or no such program or user.
fn is_of_guest(error: &ToolError) -> bool {
    error.layer == Layer::Guest && !error.retryable
}

pub(crate) fn failed(why: String) -> ToolError {
    ToolError::new(Layer::Guest, codes::INTERPRETER_FAILED, why)
}

/// Longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Longest line of an answer: a result with its forms.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// Longest text of an answer that has no lines.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A connection that nothing was sent on.
pub(crate) struct Exchange {
    sender: http1::SendRequest<String>,
    /// Ends with the exchange, and the connection with it.
    connection: JoinSet<()>,
}

/// CommandResult as it comes.
pub(crate) struct Coming {
    pub(crate) status: StatusCode,
    body: Incoming,
    read: Vec<u8>,
    _connection: JoinSet<()>,
    _sender: http1::SendRequest<String>,
}

impl Exchange {
    async fn over(stream: Box<dyn ByteStream>) -> CommandResult<Self> {
        let handshake =
            http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream));
        let (sender, driven) = handshake.await.map_err(broken)?;
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            if let Err(error) = driven.await {
                tracing::debug!(%error, "a connection to an interpreter broke");
            }
        });
        Ok(Self { sender, connection })
    }

    /// Sends a request; the answer has begun.
    pub(crate) async fn send(
        mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> CommandResult<Coming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string())
            .map_err(|error| failed(format!("the request cannot be made: {error}")))?;
        let (head, body) = self.sender.send_request(request).await.map_err(broken)?.into_parts();
        let (_connection, _sender) = (self.connection, self.sender);
        Ok(Coming { status: head.status, body, read: Vec::new(), _connection, _sender })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(
        self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> CommandResult<(StatusCode, String)> {
        let mut answer = self.send(method, path, body).await?;
        Ok((answer.status, answer.text().await?))
    }
}

impl Coming {
    /// The next line, without its end; `None` at the end of the answer.
    pub(crate) async fn line(&mut self) -> CommandResult<Option<Vec<u8>>> {
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.read[looked_at..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(looked_at + end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            looked_at = self.read.len();
            if !self.more(MAX_LINE_BYTES).await? {
                let last = std::mem::take(&mut self.read);
                return Ok((!last.is_empty()).then_some(last));
            }
        }
    }

    /// Reads the whole body as text.
    pub(crate) async fn text(&mut self) -> CommandResult<String> {
        while self.more(MAX_TEXT_BYTES).await? {}
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned())
    }

    /// Reads a piece; false at the end.
    async fn more(&mut self, most: usize) -> CommandResult<bool> {
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(false) };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            self.read.extend_from_slice(&data);
        }
        match self.read.len() <= most {
            true => Ok(true),
            false => {
                Err(failed(format!("an answer of the interpreter has more than {most} bytes")))
            }
        }
    }
}

fn broken(error: hyper::Error) -> ToolError {
    failed(format!("the connection to the interpreter broke: {error}"))
}
