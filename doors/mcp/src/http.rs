//! MCP over streamable HTTP at `/mcp`, behind a bearer token.
//!
//! ```text
//! connection (bounds, TLS) ─▶ token ─▶ user's place ─▶ body size, pace ─▶ Host, Origin (rmcp) ─▶ handler
//! ```
//!
//! The token is that of the door's file, or a credential that the operator has made.
//! Clients with `initialize` get a session of their own with their first call, for as long as their HTTP
//! session lives; both are kept through a restart (`kept_sessions.rs`). Requests of 2026-07-28 have no
//! session on the wire: all that carry the same token share one lasting session.

mod kept_sessions;
mod owners;
mod resumable;
mod tolerance;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use hivekeep_config::HttpOptions;
use hivekeep_door_server::{
    DaemonServices,
    credentials::Credentials,
    http::{
        body::{BodyGate, BodyRefusal},
        caller::{self, BearerToken, HttpCaller, LastingSessions},
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        server::{self, ServerBounds},
    },
};
use hivekeep_kernel::{Door, SharedPool};
use hivekeep_ports::SessionQuotas as _;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

pub use kept_sessions::KeptClients;

use super::McpHandler;
use owners::{Newcomers, SessionOwners};
use resumable::ResumableSessions;
use tolerance::AnswerForm;

/// Option that bounds requests, and with them sessions.
const PLACES: &str = "daemon.max_connections";
/// Sessions of the protocol for each request that may be answered at a time. Most are idle.
const SESSIONS_PER_PLACE: usize = 4;
/// Name of the session of requests without a handshake.
const LASTING_SESSION: &str = "mcp-http";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Checks and bounds that stand before the handler.
struct Guard {
    token: BearerToken,
    credentials: Credentials,
    owners: SessionOwners,
    /// Requests at a time, streams included: a place is held to the end of the answer.
    places: SharedPool,
    bodies: BodyGate,
    newcomers: Newcomers,
}

/// Opens the door.
///
/// # Errors
/// When the address is taken or a file unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    end: CancellationToken,
) -> Result<HttpDoor, DoorError> {
    let options = &core.config.http.mcp;
    let token = BearerToken::load_or_create(&core.folders.token_file)?;
    let listener = DoorListener::bind("http.mcp", &options.listener)?;
    let daemon = &core.config.daemon;
    let sessions = ResumableSessions::new(Duration::from_secs(options.session_idle_secs));
    let patience = Duration::from_secs(daemon.handshake_timeout_secs);
    let most = daemon.max_connections.saturating_mul(SESSIONS_PER_PLACE);
    let kept = kept_clients(&core, most).await.map_err(DoorError::Clients)?;
    let guard = Arc::new(Guard {
        token,
        credentials: core.credentials.clone(),
        owners: SessionOwners::new(sessions.clone(), kept.clone(), most),
        places: SharedPool::new(PLACES, daemon.max_connections),
        bodies: BodyGate::new(&core, options.max_body_mb),
        newcomers: Newcomers::new(sessions.clone(), kept.clone(), patience, most),
    });
    let url = format!("{}://{}/mcp", listener.scheme(HTTP), listener.address);
    let mut bounds = ServerBounds::of(&core.config.http);
    // Requests are bounded by places; those beyond them come in to be told so.
    bounds.connections = bounds.connections.max(daemon.max_connections.saturating_add(1));
    let router = router(guard, service(core.clone(), sessions, kept, end.clone()));
    Ok(HttpDoor { url, listener, router, bounds, end })
}

async fn kept_clients(core: &DaemonServices, most: usize) -> io::Result<KeptClients> {
    let (folder, sessions) = (core.folders.state.join("mcp-clients"), core.sessions.clone());
    let open = move || KeptClients::open(folder, most, |session| sessions.user(session).is_some());
    tokio::task::spawn_blocking(open).await.map_err(io::Error::other)?
}

type Service = StreamableHttpService<McpHandler, ResumableSessions>;

fn service(
    core: Arc<DaemonServices>,
    sessions: ResumableSessions,
    kept: KeptClients,
    end: CancellationToken,
) -> Service {
    let HttpOptions { allowed_hosts, allowed_origins, mcp, .. } = core.config.http.clone();
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(allowed_hosts)
        .with_allowed_origins(allowed_origins)
        // An empty list means: no page of a browser at all.
        .enforce_origin_validation()
        .with_max_request_body_bytes(mcp.max_body_mb * 1024 * 1024)
        .with_cancellation_token(end);
    config.session_store = Some(Arc::new(kept.clone()));
    let lasting = LastingSessions::new(core.sessions.clone(), Door::McpHttp, LASTING_SESSION);
    let (view, shared) = (Arc::new(core.usual_view()), Arc::new(lasting));
    let handler = move || {
        let (core, view) = (core.clone(), view.clone());
        Ok(McpHandler::for_http(core, view, shared.clone(), kept.clone()))
    };
    StreamableHttpService::new(handler, Arc::new(sessions), config)
}

fn router(guard: Arc<Guard>, service: Service) -> Router {
    Router::new().nest_service("/mcp", service).layer(middleware::from_fn_with_state(guard, admit))
}

async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let caller = match guard.caller(request.headers()) {
        Ok(caller) => caller,
        Err(refused) => return *refused,
    };
    let user = caller.user;
    let place = match guard.places.take(user) {
        Ok(place) => place,
        Err(full) => return unavailable(&full.to_string()),
    };
    let known = session(request.headers());
    if let Some(known) = &known {
        if !guard.owners.may_use(known, user).await {
            // rmcp's own answer for a session that does not exist.
            return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        }
        guard.newcomers.mark_active(known);
    }
    let request = match guard.bodies.weigh(user, request).await {
        Ok(request) => request,
        Err(BodyRefusal { status: StatusCode::SERVICE_UNAVAILABLE, why }) => {
            return unavailable(&why);
        }
        Err(BodyRefusal { status, why }) => return (status, why).into_response(),
    };
    let (mut request, form) = AnswerForm::of(request).await;
    request.extensions_mut().insert(caller);
    let answer = kept_sessions::serving(user, next.run(request)).await;
    if let (None, Some(made)) = (known, session(answer.headers())) {
        guard.owners.made(&made, user).await;
        let own = guard.owners.live_of(user).await;
        if let Err(full) = guard.newcomers.made(made.into(), own).await {
            return unavailable(&full.to_string());
        }
    }
    server::hold_place(place, form.apply(answer).await)
}

impl Guard {
    fn caller(&self, headers: &HeaderMap) -> Result<HttpCaller, Box<Response>> {
        let given = caller::bearer_of(headers);
        let known = |given: &&[u8]| self.token.is(given);
        let caller = match given.filter(known) {
            Some(_) => Some(HttpCaller::bearer()),
            None => given.and_then(|given| self.credentials.find(given)).map(HttpCaller::from),
        };
        let Some(caller) = caller else {
            let challenge =
                if given.is_some() { caller::INVALID_CHALLENGE } else { caller::CHALLENGE };
            let challenge = [(header::WWW_AUTHENTICATE, challenge)];
            let why = "a bearer token is required";
            return Err(Box::new((StatusCode::UNAUTHORIZED, challenge, why).into_response()));
        };
        // Whoever speaks MCP calls tools.
        if !caller.may_change() {
            let challenge = [(header::WWW_AUTHENTICATE, caller::INSUFFICIENT_CHALLENGE)];
            let why = "a read-only credential does not reach MCP";
            return Err(Box::new((StatusCode::FORBIDDEN, challenge, why).into_response()));
        }
        Ok(caller)
    }
}

fn session(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION)?.to_str().ok().map(str::to_owned)
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why.to_owned()).into_response()
}
