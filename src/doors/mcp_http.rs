//! MCP over streamable HTTP at `/mcp`, on loopback, behind a bearer token.
//!
//! ```text
//! request ─▶ concurrency ─▶ bearer token ─▶ body size, pace ─▶ Host, Origin (rmcp) ─▶ handler
//! ```
//!
//! Clients with `initialize` get a session of their own with their first call, for as
//! long as their HTTP session lives; both are kept through a restart (`kept_sessions.rs`). Requests of 2026-07-28 have no session on the wire: all
//! that carry the same token share one lasting session.

mod kept_sessions;
mod newcomers;
mod place;
mod token;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{
    net::TcpListener,
    sync::{OnceCell, Semaphore},
};
use tokio_util::sync::CancellationToken;

use hivekeep_kernel::ports::SessionQuotas as _;
use http_body::Body as _;
pub use kept_sessions::KeptClients;
use newcomers::Newcomers;
pub use token::{BearerToken, TokenError};

use super::{
    DaemonServices,
    incoming::{MessageRoom, SHORT_BYTES},
    mcp::McpHandler,
    rate::{LARGE_BYTES, MessageCost, RateBuckets},
};
use crate::config::McpHttpOptions;

/// The reason why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `mcp_http.bind`")]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// What is kept of clients cannot be read.
    #[error("the folder of HTTP clients in the state folder: {0}")]
    Kept(io::Error),
}

/// The open door.
pub struct HttpDoor {
    /// The address that it listens on.
    pub address: SocketAddr,
    listener: TcpListener,
    router: Router,
    end: CancellationToken,
}

/// Time that the body of a request may take.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Sessions of the protocol for each request that may be answered at a time. Most are idle.
const SESSIONS_PER_PLACE: usize = 4;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Checks and bounds that stand before the handler.
struct Guard {
    token: BearerToken,
    /// Requests at a time, streams included: a place is held to the end of the answer.
    room: Arc<Semaphore>,
    pace: RateBuckets,
    incoming: MessageRoom,
    max_body_bytes: usize,
    newcomers: Newcomers,
}

/// Opens the door; [`HttpDoor::serve`] lets clients in.
///
/// # Errors
/// When the address is taken or the token file unusable.
pub async fn open(core: Arc<DaemonServices>, end: CancellationToken) -> Result<HttpDoor, Error> {
    let options = &core.config.mcp_http;
    let token = BearerToken::load_or_create(&core.folders.token_file)?;
    let bind = |source| Error::Bind { address: options.bind.clone(), source };
    let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let daemon = &core.config.daemon;
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(Duration::from_secs(options.session_idle_secs));
    let sessions = Arc::new(sessions);
    let patience = Duration::from_secs(daemon.handshake_timeout_secs);
    let most = daemon.max_connections.saturating_mul(SESSIONS_PER_PLACE);
    let kept = kept_clients(&core, most).await.map_err(Error::Kept)?;
    let guard = Arc::new(Guard {
        token,
        room: Arc::new(Semaphore::new(daemon.max_connections)),
        pace: RateBuckets::new(daemon),
        incoming: core.incoming.clone(),
        max_body_bytes: options.max_body_mb * 1024 * 1024,
        newcomers: Newcomers::new(sessions.clone(), kept.clone(), patience, most),
    });
    let router = router(guard, service(core.clone(), sessions, kept, end.clone()));
    Ok(HttpDoor { address, listener, router, end })
}

async fn kept_clients(core: &DaemonServices, most: usize) -> io::Result<KeptClients> {
    let (folder, sessions) = (core.folders.state.join("mcp-clients"), core.sessions.clone());
    let open = move || KeptClients::open(folder, most, |session| sessions.user(session).is_some());
    tokio::task::spawn_blocking(open).await.map_err(io::Error::other)?
}

impl HttpDoor {
    /// Serves until the end token fires.
    ///
    /// # Errors
    /// When listening fails.
    pub async fn serve(self) -> io::Result<()> {
        // Nagle's algorithm would hold each small event back for 40 ms.
        let listener = self.listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "no TCP_NODELAY");
            }
        });
        let end = self.end;
        axum::serve(listener, self.router)
            .with_graceful_shutdown(async move { end.cancelled().await })
            .await
    }
}

type Service = StreamableHttpService<McpHandler, LocalSessionManager>;

fn service(
    core: Arc<DaemonServices>,
    sessions: Arc<LocalSessionManager>,
    kept: KeptClients,
    end: CancellationToken,
) -> Service {
    let McpHttpOptions { allowed_hosts, allowed_origins, max_body_mb, .. } =
        core.config.mcp_http.clone();
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(allowed_hosts)
        .with_allowed_origins(allowed_origins)
        // An empty list means: no page of a browser at all.
        .enforce_origin_validation()
        .with_max_request_body_bytes(max_body_mb * 1024 * 1024)
        .with_cancellation_token(end);
    config.session_store = Some(Arc::new(kept.clone()));
    let (view, shared) = (Arc::new(core.usual_view()), Arc::new(OnceCell::new()));
    let handler = move || {
        let (core, view) = (core.clone(), view.clone());
        Ok(McpHandler::for_http(core, view, shared.clone(), kept.clone()))
    };
    StreamableHttpService::new(handler, sessions, config)
}

fn router(guard: Arc<Guard>, service: Service) -> Router {
    Router::new().nest_service("/mcp", service).layer(middleware::from_fn_with_state(guard, admit))
}

async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let Ok(room) = guard.room.clone().try_acquire_owned() else {
        return unavailable("too many requests at once");
    };
    let given =
        request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    if !given.is_some_and(|given| guard.token.is(given)) {
        let challenge = [(header::WWW_AUTHENTICATE, r#"Bearer realm="hivekeep""#)];
        return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is required").into_response();
    }
    let known = session(request.headers());
    if let Some(known) = &known {
        guard.newcomers.mark_active(known);
    }
    let request = match guard.weigh(request).await {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    let answer = next.run(request).await;
    if let (None, Some(made)) = (known, session(answer.headers()))
        && !guard.newcomers.made(made.into()).await
    {
        return unavailable("too many sessions at once");
    }
    place::hold(room, answer)
}

impl Guard {
    /// Takes the body in, and lets it wait for what it costs before anybody parses it.
    async fn weigh(&self, request: Request) -> Result<Request, Response> {
        if request.method() != Method::POST {
            return Ok(request);
        }
        let (parts, body) = request.into_parts();
        let mut reserved = match body.size_hint().upper() {
            Some(bytes) if bytes <= SHORT_BYTES as u64 => None,
            _ => match tokio::time::timeout(BODY_PATIENCE, self.incoming.reserve()).await {
                Ok(reserved) => reserved,
                Err(_) => return Err(unavailable("too many long requests at once")),
            },
        };
        let whole = axum::body::to_bytes(body, self.max_body_bytes);
        let body: Bytes = match tokio::time::timeout(BODY_PATIENCE, whole).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                let text = format!("a body of at most {} bytes is taken", self.max_body_bytes);
                return Err((StatusCode::PAYLOAD_TOO_LARGE, text).into_response());
            }
            Err(_) => {
                let status = StatusCode::REQUEST_TIMEOUT;
                return Err((status, "the body took too long").into_response());
            }
        };
        let mut weight = match body.len() > LARGE_BYTES {
            true => {
                let body = body.clone();
                let weighing = tokio::task::spawn_blocking(move || MessageCost::of(&body));
                let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
                weighing.await.map_err(failed)?
            }
            false => MessageCost::of(&body),
        };
        if weight.excessive() {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "too many values").into_response());
        }
        if let Some(reserved) = &mut reserved {
            reserved.shrink(body.len());
        }
        self.pace.pass(&mut weight).await;
        let mut request = Request::from_parts(parts, Body::from(body));
        // It goes with the request's handler: the answer may wait for a client that does not read.
        request.extensions_mut().insert(reserved.map(Arc::new));
        Ok(request)
    }
}

fn session(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION)?.to_str().ok().map(str::to_owned)
}

fn unavailable(why: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why).into_response()
}

/// The token of an `Authorization: Bearer` header; the scheme's case is free.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_header_has_a_token() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"Bearerabc", b"", b"abc"] {
            assert_eq!(bearer(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
