//! Hub port: the WebSocket listener that a door runs, for the tools that start it and count its clients.

use std::net::SocketAddr;

use async_trait::async_trait;

use crate::ToolError;

/// Listener of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubListener {
    /// Address that it is bound to.
    pub address: SocketAddr,
    /// URL that clients connect to.
    pub url: String,
    /// False if it ran before.
    pub started: bool,
}

/// Clients of the hub at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HubCounts {
    /// Connections.
    pub clients: usize,
    /// Channels with at least one subscriber.
    pub channels: usize,
}

/// Hub over WebSocket.
#[async_trait]
pub trait HubDoor: Send + Sync {
    /// Listens at an address, or tells where it listens already.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS is not usable.
    async fn start(&self, address: SocketAddr) -> Result<HubListener, ToolError>;

    /// Counts clients and channels.
    fn counts(&self) -> HubCounts;
}
