//! MCP over streamable HTTP at `/mcp`, on loopback, behind a bearer token.
//!
//! ```text
//! request ─▶ concurrency ─▶ bearer token ─▶ Host, Origin, body size (rmcp) ─▶ handler
//! ```
//!
//! Clients with `initialize` get a session of their own for as long as their
//! HTTP session lives. Requests of 2026-07-28 have no session on the wire: all
//! that carry the same token share one lasting session.

mod place;
mod token;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use hivekeep_registry::View;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{
    net::TcpListener,
    sync::{OnceCell, Semaphore},
};
use tokio_util::sync::CancellationToken;

pub use token::{Token, TokenError};

use super::{Core, mcp::Handler};
use crate::config::McpHttpOptions;

/// Why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `mcp_http.bind`")]
    Bind {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The open door.
pub struct Door {
    /// Where it listens.
    pub address: SocketAddr,
    listener: TcpListener,
    router: Router,
    end: CancellationToken,
}

/// What stands before the handler.
struct Guard {
    token: Token,
    /// Requests at a time, streams included: a place is held to the end of the answer.
    room: Arc<Semaphore>,
}

/// Opens the door; [`Door::serve`] lets clients in.
///
/// # Errors
/// When the address is taken or the token file unusable.
pub async fn open(core: Arc<Core>, end: CancellationToken) -> Result<Door, Error> {
    let options = &core.config.mcp_http;
    let token = Token::load_or_create(&core.folders.token_file)?;
    let bind = |source| Error::Bind { address: options.bind.clone(), source };
    let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let room = Arc::new(Semaphore::new(core.config.daemon.max_connections));
    let guard = Arc::new(Guard { token, room });
    let router = router(guard, service(core.clone(), end.clone()));
    Ok(Door { address, listener, router, end })
}

impl Door {
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

type Service = StreamableHttpService<Handler, LocalSessionManager>;

fn service(core: Arc<Core>, end: CancellationToken) -> Service {
    let McpHttpOptions { allowed_hosts, allowed_origins, max_body_mb, session_idle_secs, .. } =
        core.config.mcp_http.clone();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(allowed_hosts)
        .with_allowed_origins(allowed_origins)
        // An empty list means: no page of a browser at all.
        .enforce_origin_validation()
        .with_max_request_body_bytes(max_body_mb * 1024 * 1024)
        .with_cancellation_token(end);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(Duration::from_secs(session_idle_secs));
    let (view, shared) = (Arc::new(View::default()), Arc::new(OnceCell::new()));
    let handler = move || Ok(Handler::for_http(core.clone(), view.clone(), shared.clone()));
    StreamableHttpService::new(handler, Arc::new(sessions), config)
}

fn router(guard: Arc<Guard>, service: Service) -> Router {
    Router::new().nest_service("/mcp", service).layer(middleware::from_fn_with_state(guard, admit))
}

async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let Ok(place) = guard.room.clone().try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "1")],
            "too many requests at once",
        )
            .into_response();
    };
    let given =
        request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    if !given.is_some_and(|given| guard.token.is(given)) {
        let challenge = [(header::WWW_AUTHENTICATE, r#"Bearer realm="hivekeep""#)];
        return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is required").into_response();
    }
    place::hold(place, next.run(request).await)
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
