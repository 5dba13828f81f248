//! Guest HTTP port: the daemon's HTTP server for connections that come out of workspaces, for whoever answers there.

use std::{io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use hivekeep_kernel::User;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ByteStream;

/// Request, whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestHttpRequest {
    /// Method, as it was sent.
    pub method: String,
    /// Path with its query.
    pub target: String,
    /// Headers whose values are text, by lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body, decoded from its transfer.
    pub body: Bytes,
}

impl GuestHttpRequest {
    /// Value of the first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }
}

/// Answer, whose body comes while it is sent.
#[derive(Debug)]
pub struct GuestHttpAnswer {
    /// Status of HTTP, from 200.
    pub status: u16,
    /// Value of `content-type`.
    pub content_type: String,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u64>,
    /// Pieces of the body. An error cuts the connection, so that nobody takes the body for whole.
    pub body: mpsc::Receiver<io::Result<Bytes>>,
}

impl GuestHttpAnswer {
    /// An answer that is whole.
    pub fn whole(status: u16, content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let (piece, pieces) = mpsc::channel(1);
        // The channel is new and has room for one.
        let _fits = piece.try_send(Ok(body.into()));
        Self { status, content_type: content_type.into(), retry_after: None, body: pieces }
    }
}

/// Whoever answers requests out of a workspace.
#[async_trait]
pub trait GuestHttpHandler: Send + Sync {
    /// Answers a request. Dropped when its client has gone.
    async fn answer(&self, request: GuestHttpRequest) -> GuestHttpAnswer;

    /// Answer to a request that was not taken in, for this reason.
    fn refuse(&self, target: &str, status: u16, why: &str) -> GuestHttpAnswer;
}

/// HTTP server of the daemon, with its bounds on heads, bodies and times.
#[async_trait]
pub trait GuestHttp: Send + Sync {
    /// Serves a connection on a user's account until its client leaves or the end token fires.
    async fn serve(
        &self,
        user: User,
        stream: Box<dyn ByteStream>,
        handler: Arc<dyn GuestHttpHandler>,
        end: CancellationToken,
    );
}
