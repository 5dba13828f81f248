//! The server for connections that come out of workspaces: the same bounds on heads, bodies and times, over streams
//! of the link, and requests and answers as values.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use futures::stream;
use hivekeep_kernel::User;
use hivekeep_ports::{ByteStream, GuestHttp, GuestHttpAnswer, GuestHttpHandler, GuestHttpRequest};
use tokio::{
    io::{copy_bidirectional, duplex},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    body::BodyGate,
    server::{HttpConnection, ServerBounds},
};
use crate::{DaemonServices, seats::ConnectionSlots};

/// Connections out of all workspaces together.
const MAX_CONNECTIONS: usize = 256;
/// Bytes of one connection on their way, in each direction.
const STREAM_BYTES: usize = 64 * 1024;

/// See the module.
pub struct GuestHttpServer {
    bounds: ServerBounds,
    slots: ConnectionSlots,
    gate: Arc<BodyGate>,
}

impl GuestHttpServer {
    /// A server with the daemon's bounds: a body may be as long as any message (`daemon.max_message_mb`).
    pub fn new(core: &DaemonServices) -> Self {
        let config = &core.config;
        Self {
            bounds: ServerBounds { connections: MAX_CONNECTIONS, ..ServerBounds::of(&config.http) },
            slots: ConnectionSlots::new(MAX_CONNECTIONS),
            gate: Arc::new(BodyGate::new(core, config.daemon.max_message_mb)),
        }
    }
}

/// State of the routes of one connection.
#[derive(Clone)]
struct GuestRoutes {
    user: User,
    gate: Arc<BodyGate>,
    handler: Arc<dyn GuestHttpHandler>,
}

#[async_trait]
impl GuestHttp for GuestHttpServer {
    async fn serve(
        &self,
        user: User,
        mut stream: Box<dyn ByteStream>,
        handler: Arc<dyn GuestHttpHandler>,
        end: CancellationToken,
    ) {
        // Without a place the connection is closed, and the program tries again.
        let Some(slot) = self.slots.take() else { return };
        let routes = GuestRoutes { user, gate: self.gate.clone(), handler };
        let router = Router::new().fallback(answer).with_state(routes);
        let slot = Arc::new(slot);
        let connection = HttpConnection { peer: (), slot, router, bounds: self.bounds };
        // A stream of the link loses what was not taken when it is dropped, as the server does behind its last answer.
        let (ours, mut theirs) = duplex(STREAM_BYTES);
        let mut carried = std::pin::pin!(copy_bidirectional(&mut stream, &mut theirs));
        let left = tokio::select! {
            _ended = carried.as_mut() => true,
            () = connection.run(None, ours, end) => false,
        };
        if !left {
            let _taken_or_late = timeout(self.bounds.write_timeout, carried).await;
        }
    }
}

async fn answer(State(routes): State<GuestRoutes>, request: Request) -> Response {
    let target = request.uri().path_and_query().map_or("/", |it| it.as_str()).to_owned();
    match routes.gate.weigh(routes.user, request).await {
        Ok(request) => {
            let (parts, body) = request.into_parts();
            // The body was taken in whole, within the bound.
            let body = axum::body::to_bytes(body, routes.gate.max_bytes).await.unwrap_or_default();
            let headers = parts.headers.iter().filter_map(|(name, value)| {
                Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
            });
            let request = GuestHttpRequest {
                method: parts.method.as_str().to_owned(),
                target,
                headers: headers.collect(),
                body,
            };
            // Room of a long body is held while the request is handled.
            let answer = routes.handler.answer(request).await;
            drop(parts.extensions);
            response(answer)
        }
        Err(refusal) => {
            response(routes.handler.refuse(&target, refusal.status.as_u16(), &refusal.why))
        }
    }
}

fn response(answer: GuestHttpAnswer) -> Response {
    let GuestHttpAnswer { status, content_type, retry_after, body } = answer;
    let pieces = stream::unfold(body, async |mut body| {
        let piece = body.recv().await?;
        Some((piece, body))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    if let Ok(value) = HeaderValue::try_from(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    if let Some(secs) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, secs.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::mpsc,
    };

    use super::*;

    /// Says what it was asked, in two pieces, and then cuts the answer to `/cut`.
    struct Echo;

    #[async_trait]
    impl GuestHttpHandler for Echo {
        async fn answer(&self, request: GuestHttpRequest) -> GuestHttpAnswer {
            let (piece, body) = mpsc::channel(4);
            let head =
                format!("{} {} {:?};", request.method, request.target, request.header("x-a"));
            let _fits = piece.try_send(Ok(head.into()));
            let _fits = piece.try_send(match request.target.as_str() {
                "/cut" => Err(std::io::Error::other("cut")),
                _ => Ok(request.body),
            });
            let content_type = "text/event-stream".to_owned();
            GuestHttpAnswer { status: 201, content_type, retry_after: Some(3), body }
        }

        fn refuse(&self, target: &str, status: u16, why: &str) -> GuestHttpAnswer {
            GuestHttpAnswer::whole(status, "text/plain", format!("{target}: {why}"))
        }
    }

    /// Answer to what a client sends on one connection, closed afterwards.
    async fn asked(max_bytes: usize, request: &[u8]) -> String {
        let hour = Duration::from_secs(3_600);
        let bounds = ServerBounds {
            connections: 4,
            header_bytes: 16 * 1024,
            header_timeout: hour,
            write_timeout: hour,
        };
        let config = hivekeep_config::Config::default();
        let gate = Arc::new(BodyGate {
            pace: crate::incoming::RateBuckets::new(&config.daemon),
            incoming: crate::incoming::MessageRoom::new(&config),
            max_bytes,
            patience: hour,
        });
        let server = GuestHttpServer { bounds, slots: ConnectionSlots::new(4), gate };
        let (mut client, ours) = tokio::io::duplex(64 * 1024);
        let end = CancellationToken::new();
        let serving = server.serve(User::Uid(0), Box::new(ours), Arc::new(Echo), end);
        let asking = async move {
            client.write_all(request).await.expect("written");
            let mut text = String::new();
            client.read_to_string(&mut text).await.expect("read");
            text
        };
        let ((), text) = tokio::join!(serving, asking);
        text
    }

    #[tokio::test]
    async fn requests_and_answers_are_values_and_bodies_are_bounded() {
        let post = |target: &str, body: &str| {
            format!(
                "POST {target} HTTP/1.1\r\nHost: h\r\nX-A: b\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let text = asked(10, post("/a?b=c", "0123456789").as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 201 ") && text.contains("retry-after: 3"), "{text}");
        assert!(text.contains("POST /a?b=c Some(\"b\");") && text.contains("0123456789"), "{text}");
        assert!(text.ends_with("0\r\n\r\n"), "it ends in order: {text}");
        let cut = asked(10, post("/cut", "").as_bytes()).await;
        assert!(!cut.ends_with("0\r\n\r\n"), "nobody takes it for whole: {cut}");
        let long = asked(10, post("/a", "01234567890").as_bytes()).await;
        assert!(long.starts_with("HTTP/1.1 413 ") && long.contains("/a: "), "{long}");
    }
}
