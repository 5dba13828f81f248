//! AF_VSOCK, in writes that a vsock device takes whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio_vsock::{OwnedReadHalf, OwnedWriteHalf, VMADDR_CID_ANY, VsockAddr, VsockListener};

use super::GuestCarrier;
use crate::session::StreamKind;

/// Port that the host dials.
pub const PORT: u32 = 5000;
/// The host's address.
pub const HOST_CID: u32 = 2;

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
    type Reader = OwnedReadHalf;
    type Writer = Pieces<OwnedWriteHalf>;

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
    use tokio::io::AsyncWriteExt;

    use super::*;

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
