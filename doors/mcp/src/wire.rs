//! An MCP connection as newline-delimited JSON, with backpressure.
//!
//! ```text
//! line ─► few answers unread? ─► bucket ─► parsed ─► a place among those in work ─► rmcp
//!                                                     └─ none for a while ─► too_many_requests
//! ```
//! While answers wait to be read, nothing more is read: that bounds what a client that does not
//! listen can make the daemon keep. While too many requests are in work the next one waits a moment
//! and is refused then, so that a cancellation behind it is heard.

mod parse;
#[cfg(test)]
mod tests;
mod unread;

use std::{collections::HashMap, io, pin::Pin, sync::Arc, time::Duration};

use hivekeep_door_server::{
    incoming::{MessageCost, RateBuckets, ReservedRoom},
    lines::{LineOutcome, LineReader},
};
use hivekeep_kernel::lock;
use rmcp::{
    RoleServer,
    model::{
        ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, JsonRpcMessage,
        JsonRpcRequest, RequestId, ServerJsonRpcMessage,
    },
    transport::Transport,
};
use tokio::{
    io::{AsyncBufRead, AsyncWrite, AsyncWriteExt},
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use parse::refusal_of;
use parse::{Parsed, Work, parse, refusal, refuse_excessive, too_long};
pub(super) use parse::{refused, too_many};
use unread::Unread;

/// Requests that are in work or whose answers wait to be written.
const IN_WORK: usize = 256;
/// Requests in work that may have large answers.
const LARGE_IN_WORK: usize = 4;
/// Time for which all places may have been taken before requests are refused.
const FULL_FOR: Duration = Duration::from_secs(1);

/// The wire.
pub struct McpTransport<R, W> {
    lines: LineReader<R>,
    pace: RateBuckets,
    /// A whole line that is being weighed.
    weighing: Option<Work<(Vec<u8>, MessageCost)>>,
    /// A line that waits until it is paid for.
    weighed: Option<(Vec<u8>, MessageCost)>,
    parsing: Option<Work<Parsed>>,
    /// A request that waits for a place.
    held: Option<JsonRpcRequest<ClientRequest>>,
    /// Room of the message that is read now, where it is long.
    reserved: Option<ReservedRoom>,
    places: Arc<Semaphore>,
    large: Arc<Semaphore>,
    full_since: Option<Instant>,
    in_work: HashMap<RequestId, Ticket>,
    unread: Unread,
    /// Writer of the connection; `None` once it is closed.
    writer: Arc<Mutex<Option<W>>>,
    closed: CancellationToken,
    _closes: DropGuard,
}

/// A place among the requests in work. A share of it is with the request's handler, and one with
/// its answer until that is written; the last one gives it back.
#[derive(Debug, Clone)]
pub(super) struct Ticket(Arc<Held>);

#[derive(Debug)]
struct Held {
    _place: OwnedSemaphorePermit,
    large: Arc<Semaphore>,
    turn: std::sync::Mutex<Option<OwnedSemaphorePermit>>,
}

impl Ticket {
    /// Waits for a turn among the requests whose answers may be large. It is kept until the answer
    /// is written.
    pub(super) async fn turn(&self, cancelled: &CancellationToken) {
        let turn = tokio::select! {
            () = cancelled.cancelled() => return,
            // The semaphore is never closed.
            turn = self.0.large.clone().acquire_owned() => turn.ok(),
        };
        *lock(&self.0.turn) = turn;
    }
}

impl<R, W> McpTransport<R, W>
where
    R: AsyncBufRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    /// `lines` are of the client.
    pub(super) fn new(lines: LineReader<R>, writer: W, pace: RateBuckets) -> Self {
        let closed = CancellationToken::new();
        Self {
            lines,
            pace,
            weighing: None,
            weighed: None,
            parsing: None,
            held: None,
            reserved: None,
            places: Arc::new(Semaphore::new(IN_WORK)),
            large: Arc::new(Semaphore::new(LARGE_IN_WORK)),
            full_since: None,
            in_work: HashMap::new(),
            unread: Unread::default(),
            writer: Arc::new(Mutex::new(Some(writer))),
            _closes: closed.clone().drop_guard(),
            closed,
        }
    }

    /// The next message. Cancelling it loses nothing.
    async fn next(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.held.is_some() {
                match self.place().await {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            if let Some(parsing) = &mut self.parsing {
                let parsed = parsing.ready().await;
                self.parsing = None;
                match parsed {
                    Some(Parsed::Message(JsonRpcMessage::Request(request))) => {
                        self.held = Some(request);
                    }
                    Some(Parsed::Message(message)) => {
                        self.reserved = None;
                        self.forget(&message);
                        return Some(message);
                    }
                    Some(Parsed::Refused(answer)) => {
                        self.reserved = None;
                        self.answer(answer);
                    }
                    Some(Parsed::Ignored) | None => self.reserved = None,
                }
                continue;
            }
            self.read_step().await?;
        }
    }

    /// A step of the next line on its way to being parsed. None when there are no more lines.
    /// Cancelling it loses nothing.
    async fn read_step(&mut self) -> Option<()> {
        if let Some((_, weight)) = &mut self.weighed {
            self.pace.pass(weight).await;
            let (line, weight) = self.weighed.take()?;
            self.parsing = Some(Work::on(line, move |line| match weight.excessive() {
                true => refuse_excessive(&line),
                false => parse(&line),
            }));
            return Some(());
        }
        if let Some(weighing) = &mut self.weighing {
            self.weighed = weighing.ready().await;
            self.weighing = None;
            return Some(());
        }
        // A line that has begun and has its room is read to its end, or until its time is over.
        if !self.lines.has_reserved() {
            self.unread.room().await;
        }
        match self.lines.next().await {
            Ok(LineOutcome::Whole(_)) => {
                self.reserved = self.lines.take_reserved();
                self.weighing = Some(Work::on(self.lines.take(), |line| {
                    let weight = MessageCost::of(&line);
                    (line, weight)
                }));
            }
            Ok(LineOutcome::TooLong) => self.answer(too_long()),
            Ok(LineOutcome::End) => return None,
            Err(error) => {
                tracing::debug!(%error, "a connection broke");
                return None;
            }
        }
        Some(())
    }

    /// A place for the request that is held. None when it was refused.
    async fn place(&mut self) -> Option<ClientJsonRpcMessage> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => {
                let since = *self.full_since.get_or_insert_with(Instant::now);
                let place = self.places.clone().acquire_owned();
                // The semaphore is never closed.
                tokio::time::timeout_at(since + FULL_FOR, place).await.ok().and_then(Result::ok)
            }
        };
        let (mut request, reserved) = (self.held.take()?, self.reserved.take());
        let Some(place) = place else {
            self.answer(refusal(Some(request.id), &too_many(IN_WORK)));
            return None;
        };
        self.full_since = None;
        let (large, turn) = (self.large.clone(), Default::default());
        let ticket = Ticket(Arc::new(Held { _place: place, large, turn }));
        // The room is the handler's alone: its answer may wait for a client that does not read.
        request.request.extensions_mut().insert(reserved.map(Arc::new));
        request.request.extensions_mut().insert(ticket.clone());
        self.in_work.insert(request.id.clone(), ticket);
        Some(JsonRpcMessage::Request(request))
    }

    /// rmcp answers no request that was cancelled. Its handler keeps its share of the place until
    /// it has noticed.
    fn forget(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(told) = message
            && let ClientNotification::CancelledNotification(cancelled) = &told.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.in_work.remove(id);
        }
    }

    fn answer(&mut self, answer: ServerJsonRpcMessage) {
        let sending = self.send(answer);
        // The task ends with the connection, whose writing fails then.
        tokio::spawn(async move {
            if let Err(error) = sending.await {
                tracing::debug!(%error, "a refusal was not written");
            }
        });
    }
}

impl<R, W> Transport<RoleServer> for McpTransport<R, W>
where
    R: AsyncBufRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let ticket = match &message {
            JsonRpcMessage::Response(answer) => self.in_work.remove(&answer.id),
            JsonRpcMessage::Error(error) => {
                error.id.as_ref().and_then(|id| self.in_work.remove(id))
            }
            _ => None,
        };
        let (mut waiting, writer) = (self.unread.one(), self.writer.clone());
        let closed = self.closed.clone();
        // The future is boxed, since it is moved with the answer in it until it is spawned.
        let sending: Pin<Box<dyn Future<Output = io::Result<()>> + Send>> = Box::pin(async move {
            let mut line = serde_json::to_vec(&message)?;
            drop(message);
            line.push(b'\n');
            waiting.weighs(line.len());
            let mut writer = writer.lock().await;
            let open = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            let written = open.write_all(&line).await;
            drop((ticket, waiting));
            written
        });
        // A client that does not read does not hold up the end.
        async move {
            let sent = closed.run_until_cancelled(sending).await;
            sent.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ClientJsonRpcMessage>> + Send {
        self.next()
    }

    async fn close(&mut self) -> io::Result<()> {
        self.closed.cancel();
        drop(self.writer.lock().await.take());
        Ok(())
    }
}
