//! Transports to the guest: one small trait, four implementations, one protocol over all.

mod paced;
mod unix;
mod vhost_user;
mod virtio_serial;
mod vsock;
mod watched;

use std::path::Path;

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

pub use self::{
    unix::UnixCarrier, vhost_user::VhostUserCarrier, virtio_serial::VirtioSerialCarrier,
    vsock::VsockCarrier,
};
use super::error::AttemptError;

/// Receiving half of a connection.
pub type CarrierReader = Box<dyn AsyncRead + Send + Unpin>;
/// Sending half of a connection.
pub type CarrierWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Byte stream to the guest in two halves, before any handshake.
pub struct Connection {
    /// Bytes from the guest.
    pub reader: CarrierReader,
    /// Bytes to the guest.
    pub writer: CarrierWriter,
}

/// Transport to a guest.
#[async_trait]
pub trait Carrier: Send + Sync {
    /// Name for reports: `unix`, `virtio-serial`, `vsock` or `vhost-user-vsock`.
    fn name(&self) -> &'static str;

    /// True if a connection here is a new one for the guest too. Where it is not, the stream may
    /// hold bytes of an older connection, the guest does not notice when the host's end closes, and
    /// the preamble has to be repeated until it is answered.
    fn has_connections(&self) -> bool;

    /// Dials once. The caller bounds the time.
    ///
    /// # Errors
    /// Fails when nobody is there yet, or the peer is not the expected one.
    async fn connect(&self) -> Result<Connection, AttemptError>;
}

/// Connects to a Unix socket and checks its owner: `SO_PEERCRED` gives the uid of the process that
/// called `listen`.
async fn dial_unix(path: &Path, peer_uid: u32) -> Result<UnixStream, AttemptError> {
    let stream = UnixStream::connect(path).await.map_err(AttemptError::Connect)?;
    let actual = stream.peer_cred().map_err(AttemptError::Connect)?.uid();
    if actual == peer_uid {
        Ok(stream)
    } else {
        Err(AttemptError::WrongPeer { expected: peer_uid, actual })
    }
}

impl From<UnixStream> for Connection {
    fn from(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: Box::new(reader), writer: Box::new(writer) }
    }
}
