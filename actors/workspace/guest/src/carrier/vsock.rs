//! AF_VSOCK.

mod pieces;

use std::io;

use tokio_vsock::{OwnedReadHalf, OwnedWriteHalf, VMADDR_CID_ANY, VsockAddr, VsockListener};

use self::pieces::Pieces;
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
