//! Carriers: transports that the link runs over.
//!
//! | carrier | where | who may speak |
//! |---|---|---|
//! | [`vsock`] | a VM on a host with vhost-vsock | the host's CID |
//! | [`virtio`] | a VM on any host | whoever holds QEMU's socket |
//! | [`Unix`] | a sandbox | processes of the allowed users, outside of it |
//!
//! A peer that may speak still has to know the token.

pub mod virtio;
pub mod vsock;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::session::StreamKind;

/// Accepts byte streams of the host.
pub trait GuestCarrier: Send + 'static {
    /// Name of the carrier in messages and reports.
    const NAME: &'static str;
    /// Whether a stream ends with its connection.
    const STREAM: StreamKind;
    /// Bytes from the host.
    type Reader: AsyncRead + Unpin + Send + 'static;
    /// Bytes to the host.
    type Writer: AsyncWrite + Unpin + Send + 'static;

    /// The next stream. Peers that may not speak are dropped here. Cancel-safe.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Reader, Self::Writer)>> + Send;
}

/// Accepts processes of the allowed users.
#[derive(Debug)]
pub struct Unix {
    listener: UnixListener,
    peer_uids: Vec<u32>,
    /// Set in a sandbox: only what is not in its PID namespace. A user of the host looks like `nobody`
    /// there, and so does the sandbox's own `nobody`.
    from_outside: bool,
}

impl Unix {
    /// Takes a socket that somebody else bound and listens on, for processes outside of this PID
    /// namespace.
    ///
    /// # Errors
    /// When the descriptor is no such socket. Must be called within the runtime.
    pub fn inherited(socket: OwnedFd, peer_uids: Vec<u32>) -> io::Result<Self> {
        let listener = StdListener::from(socket);
        listener.local_addr()?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, peer_uids, from_outside: true })
    }

    /// Binds `path`.
    ///
    /// # Errors
    /// As bind(2). Must be called within the runtime.
    pub fn bind(path: &Path, peer_uids: Vec<u32>) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, peer_uids, from_outside: false })
    }
}

impl GuestCarrier for Unix {
    const NAME: &'static str = "unix";
    const STREAM: StreamKind = StreamKind::Connection;
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred()?;
            // A process that has no id here is numbered 0.
            let is_where = !self.from_outside || peer.pid() == Some(0);
            if is_where && self.peer_uids.contains(&peer.uid()) {
                return Ok(stream.into_split());
            }
            crate::say!("unix: refused process {:?} of user {}", peer.pid(), peer.uid());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Whether a process of this user and PID namespace may speak.
    async fn lets_in(listen: impl FnOnce(&Path, Vec<u32>) -> Unix) -> bool {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("socket");
        let mut carrier = listen(&path, vec![rustix::process::getuid().as_raw()]);
        let mut stream = UnixStream::connect(&path).expect("it listens");
        let dropped = tokio::task::spawn_blocking(move || stream.read(&mut [0]));
        tokio::select! {
            accepted = carrier.accept() => accepted.is_ok(),
            dropped = dropped => !matches!(dropped, Ok(Ok(0))),
        }
    }

    #[tokio::test]
    async fn a_sandbox_serves_nobody_of_its_own() {
        let inherited = |path: &Path, uids| {
            let listener = StdListener::bind(path).expect("bound");
            Unix::inherited(listener.into(), uids).expect("a socket that listens")
        };
        assert!(!lets_in(inherited).await);
        assert!(lets_in(|path, uids| Unix::bind(path, uids).expect("bound")).await);
    }
}
