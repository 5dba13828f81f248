//! QMP client: QEMU's control protocol, one JSON object per line over a Unix socket.
//!
//! QEMU serves one client at a time and a second one waits, so the drivers connect for each request
//! and close again; that is also why a later daemon finds the socket free.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

/// Maximum length of a line. QEMU's description of a disk names, for each layer, all layers below
/// it: with eighty that is more than 1 MiB, and a disk has up to a hundred.
const LINE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of commands that wait to be written.
const QUEUE: usize = 16;
/// Maximum number of events that wait to be read; more are dropped and counted.
const EVENT_QUEUE: usize = 64;

/// Failure of a control socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens.
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// No answer in time. The connection stays usable.
    #[error("no answer to {what} within {} ms", after.as_millis())]
    Timeout {
        /// Name of the command, or "the greeting".
        what: String,
        /// Deadline of the answer.
        after: Duration,
    },
    /// QEMU refused the command.
    #[error("{class}: {description}")]
    Refused {
        /// Error class of QEMU, such as `CommandNotFound`.
        class: String,
        /// Description for people.
        description: String,
    },
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Closed(String),
}

struct Command {
    id: u64,
    line: String,
    /// Descriptor sent with the line's first byte; QEMU keeps it under the name that the command
    /// gives.
    fd: Option<OwnedFd>,
    reply: oneshot::Sender<Result<Value, Error>>,
}

/// Connection to QEMU. Dropping it closes the connection.
#[derive(Debug)]
pub struct QmpClient {
    commands: mpsc::Sender<Command>,
    next_id: AtomicU64,
    dropped_events: Arc<AtomicU64>,
}

/// Events of QEMU in order; the newest are dropped while the queue is full.
pub type QmpEvents = mpsc::Receiver<QmpEvent>;

impl QmpClient {
    /// Connects, reads the greeting and leaves negotiation mode, all within `timeout`.
    pub async fn connect(path: &Path, timeout: Duration) -> Result<(Self, QmpEvents), Error> {
        let connect = async {
            let stream = UnixStream::connect(path).await.map_err(Error::Connect)?;
            Self::over(stream, timeout).await
        };
        let late = |_| Error::Timeout { what: "the greeting".into(), after: timeout };
        tokio::time::timeout(timeout, connect).await.map_err(late)?
    }

    /// Sets up a client like [`QmpClient::connect`] on a stream that is connected already.
    pub async fn over(stream: UnixStream, timeout: Duration) -> Result<(Self, QmpEvents), Error> {
        let connect = async {
            let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(LINE_BYTES));
            match next(&mut lines).await? {
                Incoming::Greeting => {}
                other => return Err(Error::Closed(format!("expected a greeting, got {other:?}"))),
            }
            let (commands, queued) = mpsc::channel(QUEUE);
            let (event_tx, events) = mpsc::channel(EVENT_QUEUE);
            let dropped_events = Arc::new(AtomicU64::new(0));
            let pump = Pump {
                lines,
                queued,
                events: event_tx,
                dropped: Arc::clone(&dropped_events),
                waiting: HashMap::new(),
            };
            tokio::spawn(pump.run());
            let client = Self { commands, next_id: AtomicU64::new(0), dropped_events };
            client.execute("qmp_capabilities", Value::Null, timeout).await?;
            Ok((client, events))
        };
        let late = |_| Error::Timeout { what: "the greeting".into(), after: timeout };
        tokio::time::timeout(timeout, connect).await.map_err(late)?
    }

    /// Runs one command. Several may be in progress at once. `arguments` is an object or null.
    pub async fn execute(
        &self,
        command: &str,
        arguments: Value,
        timeout: Duration,
    ) -> Result<Value, Error> {
        self.run(command, arguments, None, timeout).await
    }

    /// Runs `getfd` or `add-fd` like [`QmpClient::execute`]: the descriptor is sent with the command.
    pub async fn execute_with(
        &self,
        command: &str,
        arguments: Value,
        fd: OwnedFd,
        timeout: Duration,
    ) -> Result<Value, Error> {
        self.run(command, arguments, Some(fd), timeout).await
    }

    async fn run(
        &self,
        command: &str,
        arguments: Value,
        fd: Option<OwnedFd>,
        timeout: Duration,
    ) -> Result<Value, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = command_line(id, command, arguments);
        let (reply, answer) = oneshot::channel();
        let closed = || Error::Closed("QEMU hung up".into());
        let ask = async {
            self.commands.send(Command { id, line, fd, reply }).await.map_err(|_| closed())?;
            answer.await.map_err(|_| closed())?
        };
        let late = |_| Error::Timeout { what: command.to_owned(), after: timeout };
        tokio::time::timeout(timeout, ask).await.map_err(late)?
    }

    /// Number of events dropped because nobody read them.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events.load(Ordering::Relaxed)
    }
}

/// Sends the beginning of a line together with a descriptor; returns the number of bytes sent. The
/// codec's own buffer is empty between two commands, so nothing is overtaken.
async fn send_with(stream: &UnixStream, line: &[u8], fd: &OwnedFd) -> std::io::Result<usize> {
    let send = || {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        // The space was made for one descriptor, so the push succeeds.
        control.push(SendAncillaryMessage::ScmRights(&fds));
        // A single byte is either sent or not, and leaves a boundary of UTF-8, because lines begin
        // with `{`.
        let first = [IoSlice::new(&line[..1])];
        Ok(rustix::net::sendmsg(stream, &first, &mut control, SendFlags::NOSIGNAL)?)
    };
    stream.async_io(Interest::WRITABLE, send).await
}

type Lines = Framed<UnixStream, LinesCodec>;

async fn next(lines: &mut Lines) -> Result<Incoming, Error> {
    match lines.next().await {
        Some(Ok(line)) => parse(&line).map_err(|error| Error::Closed(error.to_string())),
        Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
            Err(Error::Closed(format!("a line of more than {LINE_BYTES} bytes")))
        }
        Some(Err(LinesCodecError::Io(error))) => Err(Error::Closed(error.to_string())),
        None => Err(Error::Closed("QEMU hung up".into())),
    }
}

/// Task that owns the socket; ends with the client or with the connection.
struct Pump {
    lines: Lines,
    queued: mpsc::Receiver<Command>,
    events: mpsc::Sender<QmpEvent>,
    dropped: Arc<AtomicU64>,
    waiting: HashMap<u64, oneshot::Sender<Result<Value, Error>>>,
}

impl Pump {
    async fn run(mut self) {
        let why = loop {
            tokio::select! {
                command = self.queued.recv() => {
                    let Some(command) = command else { return };
                    // Callers that gave up need no answer any more.
                    self.waiting.retain(|_, reply| !reply.is_closed());
                    self.waiting.insert(command.id, command.reply);
                    if let Err(error) = self.write(command.line, command.fd).await {
                        break error;
                    }
                }
                incoming = next(&mut self.lines) => match incoming {
                    Ok(incoming) => self.take(incoming),
                    Err(error) => break error.to_string(),
                },
            }
        };
        for (_, reply) in self.waiting.drain() {
            let _ = reply.send(Err(Error::Closed(why.clone())));
        }
    }

    async fn write(&mut self, mut line: String, fd: Option<OwnedFd>) -> Result<(), String> {
        if let Some(fd) = fd {
            let first = send_with(self.lines.get_ref(), line.as_bytes(), &fd).await;
            // The codec sends the rest of the line, and its end.
            line = line.split_off(first.map_err(|error| error.to_string())?);
        }
        self.lines.send(line).await.map_err(|error| error.to_string())
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Answer { id, result } => {
                if let Some(reply) = self.waiting.remove(&id) {
                    let refused = |(class, description)| Error::Refused { class, description };
                    let _ = reply.send(result.map_err(refused));
                }
            }
            Incoming::Event(event) => {
                if self.events.try_send(event).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            Incoming::Greeting => {}
        }
    }
}

/// Event in QEMU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct QmpEvent {
    /// Name, such as `SHUTDOWN` or `BLOCK_IO_ERROR`.
    #[serde(rename = "event")]
    pub name: String,
    /// Data as QEMU's schema says for this event.
    #[serde(default)]
    pub data: Value,
}

/// Line from QEMU.
#[derive(Debug, PartialEq)]
enum Incoming {
    Greeting,
    Answer {
        id: u64,
        /// Result, or the error's class and description.
        result: Result<Value, (String, String)>,
    },
    Event(QmpEvent),
}

/// Encodes a line to QEMU, without its end.
fn command_line(id: u64, name: &str, arguments: Value) -> String {
    let mut object = json!({ "execute": name, "id": id });
    if !arguments.is_null() {
        object["arguments"] = arguments;
    }
    object.to_string()
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
    id: Option<u64>,
    #[serde(rename = "return")]
    done: Option<Value>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    class: String,
    desc: String,
}

fn parse(line: &str) -> Result<Incoming, serde_json::Error> {
    use serde::de::Error;
    let line: Line = serde_json::from_str(line)?;
    if line.greeting.is_some() {
        return Ok(Incoming::Greeting);
    }
    if let Some(name) = line.event {
        return Ok(Incoming::Event(QmpEvent { name, data: line.data }));
    }
    let id = line.id.ok_or_else(|| serde_json::Error::custom("an answer without an id"))?;
    let result = match (line.done, line.error) {
        (_, Some(refusal)) => Err((refusal.class, refusal.desc)),
        (Some(value), None) => Ok(value),
        // `"return": null` reads as absent.
        (None, None) => Ok(Value::Null),
    };
    Ok(Incoming::Answer { id, result })
}

#[cfg(test)]
mod tests;
