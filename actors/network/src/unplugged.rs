//! No network at all.

use async_trait::async_trait;
use hivekeep_kernel::ports::{
    Attachment, Cable, Network, NetworkMode, NetworkPolicy, NetworkView, NetworkWish, PortForward,
    Transport,
};
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};

/// The network of a daemon without one: it says so and refuses everything.
#[derive(Debug, Clone)]
pub struct Unplugged(String);

impl Unplugged {
    /// For a reason that callers are told.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    fn refuse<T>(&self) -> Result<T, ToolError> {
        let message = format!("workspaces have no network: {}", self.0);
        Err(ToolError::new(Layer::Machine, "network_unavailable", message))
    }
}

#[async_trait]
impl Network for Unplugged {
    async fn mode(&self) -> Result<NetworkMode, ToolError> {
        Ok(NetworkMode::Off { reason: self.0.clone() })
    }

    async fn join(&self, _: WorkspaceId, _: NetworkWish) -> Result<Attachment, ToolError> {
        self.refuse()
    }

    async fn cable(&self, _: WorkspaceId) -> Result<Cable, ToolError> {
        self.refuse()
    }

    async fn settled(&self, _: WorkspaceId) -> Result<(), ToolError> {
        self.refuse()
    }

    async fn set_policy(&self, _: WorkspaceId, _: NetworkWish) -> Result<NetworkPolicy, ToolError> {
        self.refuse()
    }

    async fn add_forward(
        &self,
        _: WorkspaceId,
        _: Transport,
        _: u16,
        _: Option<u16>,
    ) -> Result<PortForward, ToolError> {
        self.refuse()
    }

    async fn remove_forward(
        &self,
        _: WorkspaceId,
        _: Transport,
        _: u16,
        _: Option<u16>,
    ) -> Result<Vec<PortForward>, ToolError> {
        self.refuse()
    }

    fn view(&self, _: WorkspaceId) -> Option<NetworkView> {
        None
    }

    async fn leave(&self, _: WorkspaceId) -> Result<(), ToolError> {
        Ok(())
    }

    async fn retain(&self, _: Vec<WorkspaceId>) -> Result<(), ToolError> {
        Ok(())
    }
}
