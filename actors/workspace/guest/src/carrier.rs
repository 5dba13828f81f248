//! Carriers: transports that the link runs over.
//!
//! | carrier | where | who may speak |
//! |---|---|---|
//! | [`vsock`] | a VM on a host with vhost-vsock | the host's CID |
//! | [`virtio`] | a VM on any host | whoever holds QEMU's socket |
//! | [`unix`] | a sandbox | processes of the allowed users, outside of it |
//!
//! A peer that may speak still has to know the token.

pub mod unix;
pub mod virtio;
pub mod vsock;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

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
