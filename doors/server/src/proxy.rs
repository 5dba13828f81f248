//! HTTP/1.1 reverse proxy to a port of a workspace, over its link: one connection a request.
//!
//! ```text
//! request ─▶ hop-by-hop out ─▶ dial ─▶ HTTP/1.1 ─▶ answer, streamed ─▶ hop-by-hop out ─▶ client
//!                                          └─ 101 ─▶ tunnel both ways until a side ends, or nothing passes for long
//! ```
//! Bodies pass as they come in both directions. The kept crates for this connect by URL from a pool of
//! sockets; here a connection is a call of the link that its actor judges, so what is used is hyper's own
//! client for one connection.

pub mod cookies;
mod headers;

use std::{error::Error as _, time::Duration};

use axum::{body::Body, http::StatusCode, response::Response};
use hivekeep_kernel::{CallCx, PoolFull, PoolPlace, SharedPool, ToolError, WorkspaceId};
use hivekeep_ports::WorkspacePorts;
use hyper::{Request, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};
use tokio_util::{io::InspectReader, sync::CancellationToken, task::TaskTracker};

pub use headers::ForwardedFor;

/// Largest head of an answer; a guest is not trusted.
const MAX_ANSWER_HEAD_BYTES: usize = 256 * 1024;
/// Headers of an answer.
const MAX_ANSWER_HEADERS: usize = 256;

/// The reason why there is no answer of the port.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
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
    pub fn status(&self) -> StatusCode {
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
pub struct ForwardTerms {
    /// Time for the port to begin its answer.
    pub answer_timeout: Duration,
    /// Client of the request, for the port to know.
    pub forwarded: ForwardedFor,
    /// Upgraded connections.
    pub tunnels: Tunnels,
}

/// Sends a request to a port of a workspace of the context's session, and returns the answer as it begins.
/// The request carries what the client sent; forwarding headers are set here.
///
/// # Errors
/// See [`ForwardError`]. Once an answer has begun, a connection that breaks breaks its body.
pub async fn forward(
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

/// Size of the buffer of each direction.
const TUNNEL_BUFFER_BYTES: usize = 16 * 1024;
/// Time in which nothing passes either way; then a connection ends. Programs that keep theirs open say something
/// every minute or so.
const TUNNEL_IDLE: Duration = Duration::from_secs(3_600);

/// Upgraded connections of a door, counted by the workspaces that they lead to, and ended with the door.
#[derive(Debug, Clone)]
pub struct Tunnels {
    places: SharedPool<WorkspaceId>,
    inside: TaskTracker,
    end: CancellationToken,
}

impl Tunnels {
    /// At most so many at once, as the option says, until the token fires.
    pub fn new(
        (option, most): (&'static str, usize),
        inside: TaskTracker,
        end: CancellationToken,
    ) -> Self {
        Self { places: SharedPool::new(option, most), inside, end }
    }

    /// A place for one more to a workspace.
    ///
    /// # Errors
    /// When there is none.
    fn place(&self, to: WorkspaceId) -> Result<PoolPlace<WorkspaceId>, PoolFull> {
        self.places.take(to)
    }

    /// Carries bytes between both sides once they have switched.
    fn carry(&self, client: OnUpgrade, port: OnUpgrade, place: PoolPlace<WorkspaceId>) {
        let carrying = async move {
            let _place = place;
            match tokio::try_join!(client, port) {
                Ok((client, port)) => copy(TokioIo::new(client), TokioIo::new(port)).await,
                Err(error) => tracing::debug!(%error, "an upgrade failed"),
            }
        };
        let end = self.end.clone();
        self.inside.spawn(async move {
            let _ended = end.run_until_cancelled(carrying).await;
        });
    }
}

/// Copies both ways, until both have ended or one has broken, or nothing came for long.
async fn copy<C, P>(client: C, port: P)
where
    C: AsyncRead + AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let came = Notify::new();
    let mut client = InspectReader::new(client, |_: &[u8]| came.notify_one());
    let mut port = InspectReader::new(port, |_: &[u8]| came.notify_one());
    let copied = tokio::io::copy_bidirectional_with_sizes(
        &mut client,
        &mut port,
        TUNNEL_BUFFER_BYTES,
        TUNNEL_BUFFER_BYTES,
    );
    let idle = async { while tokio::time::timeout(TUNNEL_IDLE, came.notified()).await.is_ok() {} };
    tokio::select! {
        copied = copied => if let Err(error) = copied {
            tracing::debug!(%error, "an upgraded connection broke");
        },
        () = idle => tracing::debug!("an upgraded connection was idle for too long"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_nothing_passes_for_long_and_not_while_one_side_speaks() {
        let ((mut client, near), (far, mut port)) = (duplex(64), duplex(64));
        let copying = tokio::spawn(copy(near, far));
        for _ in 0..3 {
            tokio::time::sleep(TUNNEL_IDLE - Duration::from_secs(1)).await;
            port.write_all(b"x").await.expect("it is open");
            assert_eq!(client.read_u8().await.expect("it comes"), b'x');
        }
        assert!(!copying.is_finished());
        copying.await.expect("it ends by itself");
        assert_eq!(client.read(&mut [0]).await.expect("closed"), 0);
    }
}
