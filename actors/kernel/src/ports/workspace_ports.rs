//! Workspace port port: connections to TCP ports inside workspaces, over the link to their guests.

use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{CallCx, ToolError, WorkspaceId};

/// Connection as a value: bytes both ways, half-closed by a shutdown, ended by being dropped.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Ports of workspaces.
#[async_trait]
pub trait WorkspacePorts: Send + Sync {
    /// Connects to a port of a workspace of the caller's session: of its loopback, or of an address that it
    /// has. The call's deadline and cancellation bound the connecting alone. Needs no network of the
    /// workspace.
    ///
    /// # Errors
    /// `workspace_not_found`; `not_owner`; `workspace_state` when it does not run; `port_closed`;
    /// `guest_unreachable`; `guest_unsupported` for a guest of an older daemon; those of the link.
    async fn dial(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError>;

    /// The same for whoever connects to a forward of the workspace, on its owner's behalf. Within
    /// the patience it also waits for workspaces that a daemon that starts has not taken up yet.
    ///
    /// # Errors
    /// As [`Self::dial`]; `not_owner` for a workspace that nobody owns.
    async fn dial_forward(
        &self,
        workspace: WorkspaceId,
        port: u16,
        patience: Duration,
    ) -> Result<Box<dyn ByteStream>, ToolError>;

    /// Has the machine of a workspace awake, for packets that came for it, on its owner's behalf.
    ///
    /// # Errors
    /// As [`Self::dial_forward`], without those of the port.
    async fn wake(&self, workspace: WorkspaceId, patience: Duration) -> Result<(), ToolError>;
}
