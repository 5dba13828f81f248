//! Carriers: transports that the link runs over.
//!
//! | carrier | where | who may speak |
//! |---|---|---|
//! | [`Vsock`] | a VM on a host with vhost-vsock | the host's CID |
//! | [`virtio`] | a VM on any host | whoever holds QEMU's socket |
//! | [`Unix`] | a sandbox | processes of the allowed users, outside of it |
//!
//! A peer that may speak still has to know the token.

pub mod virtio;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_vsock::{VMADDR_CID_ANY, VsockAddr, VsockListener};

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

/// Port that the host dials.
pub const VSOCK_PORT: u32 = 5000;

/// Accepts the host; another VM, or a process of this one, is closed at once.
pub struct Vsock {
    listener: VsockListener,
    allowed_cids: Vec<u32>,
    refused: u64,
}

impl Vsock {
    /// Listens on every address of this machine.
    ///
    /// # Errors
    /// When the kernel has no vsock. Must be called within the runtime.
    pub fn bind(port: u32, allowed_cids: Vec<u32>) -> io::Result<Self> {
        let listener = VsockListener::bind(VsockAddr::new(VMADDR_CID_ANY, port))?;
        Ok(Self { listener, allowed_cids, refused: 0 })
    }
}

impl GuestCarrier for Vsock {
    const NAME: &'static str = "vsock";
    const STREAM: StreamKind = StreamKind::Connection;
    type Reader = tokio_vsock::OwnedReadHalf;
    type Writer = Pieces<tokio_vsock::OwnedWriteHalf>;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        loop {
            let (stream, peer) = self.listener.accept().await?;
            if self.allowed_cids.contains(&peer.cid()) {
                let (reader, writer) = stream.into_split();
                return Ok((reader, Pieces(writer)));
            }
            self.refused += 1;
            // Counted, but not a line each: a local process could fill the console.
            if self.refused.is_power_of_two() {
                crate::say!("vsock: refused CID {} ({} so far)", peer.cid(), self.refused);
            }
        }
    }
}

/// Most bytes of one write, and so of one packet: the kernel never joins two writes.
///
/// Linux puts a packet into one piece of memory up to 32 KiB, the kernel's own part of it (some
/// 400 bytes) included; a larger packet, up to 64 KiB, becomes several descriptors of the queue
/// since 6.17 and in the stable series that took the change. The virtio specification allows
/// that, but the parser of `vhost-device-vsock` (crate `virtio-vsock`, up to 0.10) wants all data
/// in one descriptor: it drops the packet without a word and never gives the descriptors back.
/// The host then misses bytes in the middle of the stream, or waits for ever.
const MAX_PACKET_BYTES: usize = 28 * 1024;

/// Hands on at most [`MAX_PACKET_BYTES`] at a time.
pub struct Pieces<W>(W);

impl<W: AsyncWrite + Unpin> AsyncWrite for Pieces<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let piece = &bytes[..bytes.len().min(MAX_PACKET_BYTES)];
        Pin::new(&mut self.0).poll_write(cx, piece)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use tokio::io::AsyncWriteExt;

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

    /// Takes everything, and notes how it came.
    #[derive(Default)]
    struct Device {
        bytes: Vec<u8>,
        largest: usize,
    }

    impl AsyncWrite for Device {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.largest = self.largest.max(bytes.len());
            self.bytes.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn everything_passes_and_no_packet_is_split_by_the_kernel() {
        let sent: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let mut pieces = Pieces(Device::default());
        pieces.write_all(&sent).await.expect("taken");
        let halves = [io::IoSlice::new(&sent[..40_000]), io::IoSlice::new(&sent[40_000..])];
        let taken = pieces.write_vectored(&halves).await.expect("taken");
        assert!(pieces.0.bytes[..200_000] == sent[..] && taken > 0);
        assert!(pieces.0.largest <= 32 * 1024 - 1024, "{}", pieces.0.largest);
    }
}
