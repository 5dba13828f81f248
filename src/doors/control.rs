//! The control door: what the command line asks of a running daemon. Requests
//! and replies are JSON lines; requests of one connection run side by side.

mod backup;
mod messages;
mod policy;
mod requests;
mod stores;

use std::{io, sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ReceiptPad, ToolError};
use tokio::{
    io::{AsyncBufRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

pub use policy::{ApprovalsMethod, ExplainedCall, PolicyMethod};

#[cfg(feature = "full")]
pub use messages::TeamSnapshot;
pub use messages::{
    BackupMade, ControlMethod, ControlReply, ControlRequest, CredentialMade, DaemonStatus,
    LogFolderSize, ReplyBody,
};

use crate::codes;

use super::{
    DaemonServices, StopOrder,
    lines::{LineOutcome, LineReader},
    seats::ConnectionSlot,
};

/// Requests of one connection that run at a time; more wait unread.
const SIDE_BY_SIDE: usize = 64;
/// Replies that wait for a client to read; then their requests wait.
const REPLIES_WAITING: usize = 64;

/// A connection with nothing to do is closed after this.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// Serves one connection until its client leaves, the daemon stops, or its place is needed while
/// nothing runs. Requests that still run are dropped, and their calls cancelled.
///
/// # Errors
/// When the connection breaks.
pub async fn serve<R, W>(
    core: Arc<DaemonServices>,
    uid: u32,
    mut lines: LineReader<R>,
    writer: W,
    end: CancellationToken,
    seat: ConnectionSlot,
) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (replies, waiting) = mpsc::channel(REPLIES_WAITING);
    let writing = tokio::spawn(write(writer, waiting));
    let mut running = JoinSet::new();
    let outcome = loop {
        seat.set_busy(!running.is_empty());
        let line = tokio::select! {
            biased;
            () = end.cancelled() => break Ok(()),
            () = seat.lost() => break Ok(()),
            // Ends are collected so that there is room for new requests.
            Some(_ended) = running.join_next() => continue,
            line = lines.next(), if running.len() < SIDE_BY_SIDE => line,
            () = tokio::time::sleep(IDLE), if running.is_empty() => break Ok(()),
        };
        match line {
            Ok(LineOutcome::Whole(line)) => {
                let request = serde_json::from_slice::<ControlRequest>(line);
                let (core, replies) = (core.clone(), replies.clone());
                running.spawn(async move {
                    match request {
                        Ok(request) => handle(&core, uid, request, replies).await,
                        Err(error) => {
                            let outlet = Outlet { id: None, replies };
                            outlet.end(Err(unreadable(&error)), None).await;
                        }
                    }
                });
            }
            Ok(LineOutcome::TooLong) => {
                let outlet = Outlet { id: None, replies: replies.clone() };
                let error =
                    ToolError::new(Layer::Door, codes::REQUEST_TOO_LONG, "the request is too long");
                outlet.end(Err(error), None).await;
            }
            Ok(LineOutcome::End) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    running.shutdown().await;
    drop(replies);
    // Queued replies are still written, as long as the client reads them.
    let _gone = tokio::time::timeout(Duration::from_secs(5), writing).await;
    outcome
}

async fn handle(
    core: &Arc<DaemonServices>,
    uid: u32,
    request: ControlRequest,
    replies: mpsc::Sender<Outgoing>,
) {
    let outlet = Outlet { id: Some(request.id), replies };
    let order = match request.wanted {
        ControlMethod::Stop { workspaces } => StopOrder::Stop { workspaces },
        _ => StopOrder::None,
    };
    let mut receipt = None;
    let end = requests::answer(core, uid, request.wanted, &outlet, &mut receipt).await;
    outlet.end(end, receipt).await;
    // Only now: the stop ends this very connection.
    if order != StopOrder::None {
        core.stop.send_replace(order);
    }
}

fn unreadable(error: &serde_json::Error) -> ToolError {
    ToolError::new(Layer::Door, codes::INVALID_REQUEST, error.to_string())
        .next("use the `hivekeep` of the daemon's own version")
}

/// A reply on its way, with the receipt to sign once it is written.
struct Outgoing(ControlReply, Option<ReceiptPad>);

async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut replies: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing(reply, receipt)) = replies.recv().await {
        let mut line = serde_json::to_vec(&reply).expect("replies are plain data");
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            // Nobody reads: the senders find the channel closed.
            return;
        }
        receipt.into_iter().for_each(ReceiptPad::sign);
    }
}

/// Destination of the replies to one request.
struct Outlet {
    id: Option<u64>,
    replies: mpsc::Sender<Outgoing>,
}

impl Outlet {
    /// Sends one of several items. False when the client is gone.
    async fn item(&self, value: serde_json::Value) -> bool {
        let reply = ControlReply { id: self.id, body: ReplyBody::Item(value) };
        self.replies.send(Outgoing(reply, None)).await.is_ok()
    }

    async fn end(self, end: Result<serde_json::Value, ToolError>, receipt: Option<ReceiptPad>) {
        let body = match end {
            Ok(value) => ReplyBody::Result(value),
            Err(error) => ReplyBody::Error(Box::new(error)),
        };
        // A client that is gone needs no answer.
        let _gone = self.replies.send(Outgoing(ControlReply { id: self.id, body }, receipt)).await;
    }
}
