//! Ports of the guests for other families and doors.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, SessionId, ToolError, WorkspaceId};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_ports::{ByteStream, ProgramConnections, WorkspacePorts};
use tokio::{sync::oneshot, time::Instant};

use crate::{messages::GuestMsg, shared::Shared};

/// Interval between looks for a workspace that is not known yet.
const LOOK_AGAIN_IN: Duration = Duration::from_millis(100);

/// Reaches the ports of every workspace. Cheap to clone.
#[derive(Clone)]
pub struct WorkspacePortsHandle(Arc<Shared>);

impl WorkspacePortsHandle {
    /// A handle for the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }
}

impl WorkspacePortsHandle {
    /// The link to a guest that is awake. The actor checks the owner, and waits for a link that is being
    /// made.
    async fn link(&self, cx: &CallCx, workspace: WorkspaceId) -> Result<Link, ToolError> {
        let address = self.0.directory.card(&workspace.to_string())?.address;
        let (reply, link) = oneshot::channel();
        address.send(GuestMsg::Enter(Box::new(cx.clone()), reply).into())?;
        let gone = |_| ToolError::internal("the workspace's actor ended over the call");
        cx.guard(async { link.await.map_err(gone)? }).await
    }

    /// A call on behalf of a workspace's owner, once the workspace is known.
    async fn on_behalf_of_owner(
        &self,
        workspace: WorkspaceId,
        patience: Duration,
    ) -> Result<CallCx, ToolError> {
        let until = Instant::now() + patience;
        let card = loop {
            match self.0.directory.card(&workspace.to_string()) {
                Err(unknown) if Instant::now() >= until => return Err(unknown),
                Err(_) => tokio::time::sleep(LOOK_AGAIN_IN).await,
                Ok(card) => break card,
            }
        };
        // A workspace without an owner is not woken: its memory would be on no quota.
        let session = card.owner.unwrap_or_else(SessionId::new);
        let left = until.saturating_duration_since(Instant::now());
        let span = tracing::info_span!("from_outside", %workspace);
        Ok(CallCx::internal(session, left, Default::default(), span))
    }
}

#[async_trait]
impl WorkspacePorts for WorkspacePortsHandle {
    async fn dial(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        let link = self.link(cx, workspace).await?;
        let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let stream = link.open_stream(port, terms).await.map_err(link_error)?;
        Ok(Box::new(stream))
    }

    async fn dial_forward(
        &self,
        workspace: WorkspaceId,
        port: u16,
        patience: Duration,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        let cx = self.on_behalf_of_owner(workspace, patience).await?;
        self.dial(&cx, workspace, port).await
    }

    async fn wake(&self, workspace: WorkspaceId, patience: Duration) -> Result<(), ToolError> {
        let cx = self.on_behalf_of_owner(workspace, patience).await?;
        self.link(&cx, workspace).await.map(drop)
    }
}

#[async_trait]
impl ProgramConnections for WorkspacePortsHandle {
    async fn accept(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        let link = self.link(cx, workspace).await?;
        let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let stream = link.accept_stream(port, terms).await.map_err(link_error)?;
        Ok(Box::new(stream))
    }
}
