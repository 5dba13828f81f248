//! Transports to the guest: one small trait, four implementations, one protocol over all.

mod paced;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio_vsock::{VsockAddr, VsockStream};

use crate::error::AttemptError;

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

/// Carrier to the sandbox's guest daemon, which listens on a Unix socket.
#[derive(Debug)]
pub struct UnixCarrier {
    /// The listening socket.
    pub path: PathBuf,
    /// Uid of the process that called `listen` on it.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for UnixCarrier {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        Ok(dial_unix(&self.path, self.peer_uid).await?.into())
    }
}

/// Carrier over QEMU's end of a virtio-serial port, a chardev that listens on a Unix socket.
///
/// QEMU accepts the connection whether or not the guest has opened the port, and buffers what is
/// written until it does.
#[derive(Debug)]
pub struct VirtioSerialCarrier {
    /// The chardev's socket.
    pub path: PathBuf,
    /// Uid of the process that called `listen` on it.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for VirtioSerialCarrier {
    fn name(&self) -> &'static str {
        "virtio-serial"
    }

    fn has_connections(&self) -> bool {
        false
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let stream = dial_unix(&self.path, self.peer_uid).await?;
        paced::connection(stream).map_err(AttemptError::Connect)
    }
}

/// Carrier over the host kernel's AF_VSOCK. The peer is the CID that was dialled: the kernel routes
/// by it, so nothing else is checked.
#[derive(Debug)]
pub struct VsockCarrier {
    /// The guest's context id.
    pub cid: u32,
    /// Port that the guest listens on.
    pub port: u32,
}

#[async_trait]
impl Carrier for VsockCarrier {
    fn name(&self) -> &'static str {
        "vsock"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let stream = VsockStream::connect(VsockAddr::new(self.cid, self.port))
            .await
            .map_err(AttemptError::Connect)?;
        let (reader, writer) = stream.into_split();
        Ok(Connection { reader: Box::new(reader), writer: Box::new(writer) })
    }
}

/// Maximum length of the answer line: `OK ` and a port, with room to spare.
const MAX_LINE_BYTES: usize = 64;

/// Carrier over a vhost-user-vsock device process, which connects to the guest's AF_VSOCK ports for
/// clients that write `CONNECT port` to its Unix socket.
///
/// The device closes the socket without a reply for a closed port; for a guest that is not up yet
/// it resets, or does nothing at all.
#[derive(Debug)]
pub struct VhostUserCarrier {
    /// The device process's socket.
    pub uds_path: PathBuf,
    /// Guest port.
    pub port: u32,
    /// Uid of the process that called `listen` on the socket.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for VhostUserCarrier {
    fn name(&self) -> &'static str {
        "vhost-user-vsock"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let mut stream = dial_unix(&self.uds_path, self.peer_uid).await?;
        let order = format!("CONNECT {}\n", self.port);
        stream.write_all(order.as_bytes()).await.map_err(AttemptError::Connect)?;
        // Read byte by byte: anything after the line already belongs to the guest.
        let mut line = Vec::with_capacity(MAX_LINE_BYTES);
        loop {
            let mut byte = [0];
            if stream.read(&mut byte).await.map_err(AttemptError::Connect)? == 0 {
                return Err(AttemptError::Closed);
            }
            if byte == *b"\n" {
                break;
            }
            if line.len() == MAX_LINE_BYTES {
                return Err(AttemptError::NotAGuest("the vsock device sent an endless line"));
            }
            line.push(byte[0]);
        }
        if line != b"OK" && !line.starts_with(b"OK ") {
            return Err(AttemptError::NotAGuest("the vsock device did not answer OK"));
        }
        Ok(stream.into())
    }
}

/// Registers a descriptor until the result is dropped. Must be called within the runtime.
///
/// # Errors
/// Fails when the descriptor cannot be polled, or is registered already.
#[allow(unsafe_code)]
fn register(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an owned descriptor stays the same and open while it is owned, and the
    // watcher shares the ownership.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
