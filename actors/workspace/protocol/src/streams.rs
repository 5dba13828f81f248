//! Byte streams to ports of the guest, as of a proxy's CONNECT.
//!
//! A stream is one call. Content travels both ways on [`crate::Stream::Content`] under credit, of which the
//! host has none at first: the guest's first credit says that the port has taken the connection. Either
//! side half-closes by an end frame. The reply comes when both have ended, or the connection has broken.

use serde::{Deserialize, Serialize};

/// Connects to a TCP port of the guest itself: of its loopback (IPv4, then IPv6), then of its own address.
/// The last of the refusals is answered as [`crate::GuestCode::PortClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStream {
    /// Port, from 1.
    pub port: u16,
}

/// Answer to [`OpenStream`], when both directions have ended in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamClosed {
    /// Number of bytes that came from the port and were sent to the host.
    pub sent_bytes: u64,
}
