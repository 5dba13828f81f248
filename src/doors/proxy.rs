//! HTTP/1.1 reverse proxy to a port of a workspace, over its link: one connection a request.
//!
//! ```text
//! request ─▶ hop-by-hop out ─▶ dial ─▶ HTTP/1.1 ─▶ answer, streamed ─▶ hop-by-hop out ─▶ client
//!                                          └─ 101 ─▶ tunnel both ways until either side ends
//! ```
//! Bodies pass as they come in both directions. The kept crates for this connect by URL from a pool of
//! sockets; here a connection is a call of the link that its actor judges, so what is used is hyper's own
//! client for one connection.

mod headers;
mod tunnel;

use std::{error::Error as _, time::Duration};

use axum::{body::Body, http::StatusCode, response::Response};
use hivekeep_kernel::{CallCx, PoolFull, ToolError, WorkspaceId};
use hivekeep_ports::WorkspacePorts;
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;

pub(crate) use headers::ForwardedFor;
pub(crate) use tunnel::Tunnels;

/// Largest head of an answer; a guest is not trusted.
const MAX_ANSWER_HEAD_BYTES: usize = 256 * 1024;
/// Headers of an answer.
const MAX_ANSWER_HEADERS: usize = 256;

/// The reason why there is no answer of the port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// The port was not reached.
    #[error("{}", .0.message)]
    Dial(ToolError),
    /// The port did not begin its answer in time.
    #[error("the port did not begin its answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The connection broke, or what came is no HTTP.
    #[error("{0}")]
    Broken(String),
    /// There are as many upgraded connections as there may be.
    #[error("{0}")]
    Full(#[from] PoolFull),
}

impl ForwardError {
    /// Status of the answer for this error.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Late(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Dial(error) if error.code == crate::codes::DEADLINE_EXCEEDED.name => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Dial(_) | Self::Broken(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Limits of forwarding, and where upgraded connections live.
#[derive(Debug, Clone)]
pub(crate) struct ForwardTerms {
    /// Time for the port to begin its answer.
    pub(crate) answer_timeout: Duration,
    /// Client of the request, for the port to know.
    pub(crate) forwarded: ForwardedFor,
    /// Upgraded connections.
    pub(crate) tunnels: Tunnels,
}

/// Sends a request to a port of a workspace of the context's session, and returns the answer as it begins.
/// The request carries what the client sent; forwarding headers are set here.
///
/// # Errors
/// See [`ForwardError`]. Once an answer has begun, a connection that breaks breaks its body.
pub(crate) async fn forward(
    ports: &dyn WorkspacePorts,
    cx: &CallCx,
    (workspace, port): (WorkspaceId, u16),
    mut request: Request<Body>,
    terms: &ForwardTerms,
) -> Result<Response, ForwardError> {
    let upgrade = headers::for_port(&mut request, &terms.forwarded);
    let place = match upgrade {
        Some(_) => Some(terms.tunnels.place(workspace)?),
        None => None,
    };
    let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let stream = ports.dial(cx, workspace, port).await.map_err(ForwardError::Dial)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_ANSWER_HEAD_BYTES)
        .max_headers(MAX_ANSWER_HEADERS)
        .handshake::<_, Body>(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Ends with the answer's body, or when that is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a port broke");
        }
    });
    let answer = tokio::time::timeout(terms.answer_timeout, sender.send_request(request));
    let late = |_| ForwardError::Late(terms.answer_timeout);
    let mut answer = answer.await.map_err(late)?.map_err(broken)?;
    let switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    match (switched, upgrade, client, place) {
        (false, ..) => headers::for_client(answer.headers_mut(), None),
        (true, Some(asked), Some(client), Some(place)) => {
            headers::switched_to(answer.headers(), &asked).map_err(ForwardError::Broken)?;
            headers::for_client(answer.headers_mut(), Some(asked));
            let port = hyper::upgrade::on(&mut answer);
            terms.tunnels.carry(client, port, place);
        }
        (true, ..) => {
            let why = "the port switched protocols without being asked";
            return Err(ForwardError::Broken(why.to_owned()));
        }
    }
    Ok(answer.map(Body::new))
}

fn broken(error: hyper::Error) -> ForwardError {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    ForwardError::Broken(format!("the port's answer cannot be used: {error}{cause}"))
}
