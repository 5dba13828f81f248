//! The control door: what the command line asks of a running daemon, as routes of its Unix socket.
//!
//! `POST /control/METHOD` has the method's parameters as JSON. The answer is JSON lines: items, and then a result
//! or an error. A client that leaves cancels its request.

mod backup;
mod messages;
mod policy;
mod requests;
mod stores;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use futures::stream;
use hivekeep_config::HttpOptions;
use hivekeep_door_server::{
    DaemonServices, StopOrder, codes,
    http::{
        body::{BodyGate, BodyRefusal},
        caller::PeerUid,
        server::{HttpConnection, ServerBounds},
    },
    seats::ConnectionSlot,
};
use hivekeep_kernel::{Layer, ReceiptPad, ToolError, User};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

pub use policy::{ApprovalsMethod, ExplainedCall, PolicyMethod};

#[cfg(feature = "full")]
pub use messages::TeamSnapshot;
pub use messages::{
    BackupMade, ControlMethod, CredentialMade, DaemonStatus, LogFolderSize, ReplyBody,
};

/// Lines that wait for a client to read; then their request waits.
const LINES_WAITING: usize = 64;

const JSON_LINES: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

/// Time that a person may leave an answer unread, as events in a pager.
const UNREAD: Duration = Duration::from_secs(24 * 60 * 60);

/// State of the routes.
struct ControlDoor {
    core: Arc<DaemonServices>,
    bodies: BodyGate,
    /// Ends requests that still run.
    end: CancellationToken,
}

/// The routes, for clients of [`serve`].
pub fn routes(core: Arc<DaemonServices>, end: CancellationToken) -> Router {
    let bodies = BodyGate::new(&core, core.config.daemon.max_message_mb);
    let door = Arc::new(ControlDoor { core, bodies, end });
    Router::new().route("/control/{method}", post(enter)).with_state(door)
}

/// A route that answers each request with a refusal.
pub fn refusing(error: ToolError) -> Router {
    let refuse = async move || refused(StatusCode::SERVICE_UNAVAILABLE, error.clone());
    Router::new().fallback(refuse)
}

/// Serves a user of the Unix socket, who may do everything.
pub async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uid: u32,
    slot: ConnectionSlot,
    router: Router,
    http: &HttpOptions,
    end: CancellationToken,
) {
    let bounds = ServerBounds { write_timeout: UNREAD, ..ServerBounds::of(http) };
    let (peer, slot) = (PeerUid(uid), Arc::new(slot));
    HttpConnection { peer, slot, router, bounds }.run(None, stream, end).await;
}

async fn enter(
    State(door): State<Arc<ControlDoor>>,
    Extension(PeerUid(uid)): Extension<PeerUid>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let body = match door.bodies.weigh(User::Uid(uid), request).await {
        Ok(request) => axum::body::to_bytes(request.into_body(), door.bodies.max_bytes).await,
        Err(BodyRefusal { status, why }) => {
            let code = match status {
                StatusCode::PAYLOAD_TOO_LARGE => codes::REQUEST_TOO_LONG,
                _ => codes::TOO_MANY_REQUESTS,
            };
            return refused(status, ToolError::new(Layer::Door, code, why));
        }
    };
    let wanted = match method_of(&method, &body.unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(error) => {
            let error = ToolError::new(Layer::Door, codes::INVALID_REQUEST, error.to_string())
                .next("use the `hivekeep` of the daemon's own version");
            return refused(StatusCode::BAD_REQUEST, error);
        }
    };
    let (lines, waiting) = mpsc::channel(LINES_WAITING);
    let request = handle(door.core.clone(), uid, wanted, Outlet(lines));
    (JSON_LINES, Body::from_stream(told(request, waiting, door.end.clone()))).into_response()
}

/// A method by its name, with its parameters as a body.
fn method_of(name: &str, body: &[u8]) -> serde_json::Result<ControlMethod> {
    let params: Value = match body.is_empty() {
        true => json!({}),
        false => serde_json::from_slice(body)?,
    };
    serde_json::from_value(json!({ "method": name, "params": params }))
}

/// Lines of a request, which goes on for as long as somebody asks for them.
fn told(
    request: impl Future<Output = ()>,
    waiting: mpsc::Receiver<Bytes>,
    end: CancellationToken,
) -> impl stream::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((Box::pin(request), waiting, end), |(mut request, mut waiting, end)| async {
        let line = tokio::select! {
            biased;
            () = &mut request => return None,
            line = waiting.recv() => line?,
            () = end.cancelled() => return None,
        };
        Some((Ok(line), (request, waiting, end)))
    })
}

async fn handle(core: Arc<DaemonServices>, uid: u32, wanted: ControlMethod, outlet: Outlet) {
    let order = match wanted {
        ControlMethod::Stop { workspaces } => StopOrder::Stop { workspaces },
        _ => StopOrder::None,
    };
    let mut receipt = None;
    let end = requests::answer(&core, uid, wanted, &outlet, &mut receipt).await;
    outlet.end(end).await;
    receipt.into_iter().for_each(ReceiptPad::sign);
    // Only now: the stop ends this very connection.
    if order != StopOrder::None {
        core.stop.send_replace(order);
    }
}

fn refused(status: StatusCode, error: ToolError) -> Response {
    (status, JSON_LINES, line(&ReplyBody::Error(error.into()))).into_response()
}

fn line(reply: &ReplyBody) -> Bytes {
    let mut line = serde_json::to_vec(reply).expect("replies are plain data");
    line.push(b'\n');
    line.into()
}

/// Destination of the lines of one request.
struct Outlet(mpsc::Sender<Bytes>);

impl Outlet {
    /// Sends one of several items. The request is dropped with the connection, so there is somebody who takes it.
    async fn item(&self, value: Value) {
        let _taken = self.0.send(line(&ReplyBody::Item(value))).await;
    }

    /// Sends the end, and waits until the connection has taken all lines and had its turn to write them.
    async fn end(&self, end: Result<Value, ToolError>) {
        let end = end.map_or_else(|error| ReplyBody::Error(error.into()), ReplyBody::Result);
        let _taken = self.0.send(line(&end)).await;
        let _all_taken = self.0.reserve_many(LINES_WAITING).await;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_come_in_order_before_the_end_and_it_waits_until_they_are_written() {
        let over = Arc::new(AtomicBool::new(false));
        let (lines, waiting) = mpsc::channel(LINES_WAITING);
        let request = {
            let (outlet, over) = (Outlet(lines), over.clone());
            async move {
                for n in 0..2 * LINES_WAITING {
                    outlet.item(json!(n)).await;
                }
                outlet.end(Ok(Value::Null)).await;
                over.store(true, SeqCst);
            }
        };
        let mut told = std::pin::pin!(told(request, waiting, CancellationToken::new()));
        let items = (0..2 * LINES_WAITING).map(|n| format!("{{\"item\":{n}}}\n"));
        for expected in items.chain(["{\"result\":null}\n".to_owned()]) {
            let Ok(line) = told.next().await.expect("a line");
            assert_eq!(line, expected);
            assert!(!over.load(SeqCst));
        }
        // A connection writes whenever it has nothing to take.
        assert!(futures::poll!(told.next()).is_pending());
        assert!(!over.load(SeqCst));
        assert!(told.next().await.is_none());
        assert!(over.load(SeqCst));
    }

    #[tokio::test]
    async fn a_request_is_dropped_with_its_answer_and_at_the_daemons_end() {
        for stops in [false, true] {
            let (dropped, end) = (CancellationToken::new(), CancellationToken::new());
            let guard = dropped.clone().drop_guard();
            let request = async move {
                let _guard = guard;
                std::future::pending().await
            };
            let (_lines, waiting) = mpsc::channel(1);
            let mut told = Box::pin(told(request, waiting, end.clone()));
            assert!(futures::poll!(told.next()).is_pending());
            if stops {
                end.cancel();
                assert!(told.next().await.is_none());
            }
            assert!(stops == dropped.is_cancelled());
            drop(told);
            assert!(dropped.is_cancelled());
        }
    }
}
