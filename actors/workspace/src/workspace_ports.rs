//! Ports of the guests for other families and doors.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_kernel::{
    CallCx, ToolError, WorkspaceId,
    ports::{ByteStream, WorkspacePorts},
};
use hivekeep_link::{CallTerms, link_error};
use tokio::sync::oneshot;

use crate::{shared::Shared, workspace::Msg};

/// Reaches the ports of every workspace. Cheap to clone.
#[derive(Clone)]
pub struct WorkspacePortsHandle(Arc<Shared>);

impl WorkspacePortsHandle {
    /// For the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
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
        let address = self.0.directory.card(&workspace.to_string())?.address;
        let (reply, link) = oneshot::channel();
        // The actor judges whose it is, and waits for a link that is being made.
        address.send(Msg::Enter(cx.clone(), reply))?;
        let gone = |_| ToolError::internal("the workspace's actor ended over the call");
        let link = cx.guard(async { link.await.map_err(gone)? }).await?;
        let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let stream = link.open_stream(port, terms).await.map_err(link_error)?;
        Ok(Box::new(stream))
    }
}
