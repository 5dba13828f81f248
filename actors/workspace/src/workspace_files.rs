//! Files of the guests for other families: the port through which the file engine's operations go.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_kernel::{
    CallCx, ToolError, WorkspaceId,
    ports::{FoundWorkspace, WorkspaceFiles, WorkspaceReadiness},
};
use hivekeep_link::{CallTerms, link_error};
use tokio::sync::oneshot;

use crate::{phase::Phase, shared::Shared, workspace::Msg};

/// Reaches the files of every workspace. Cheap to clone.
#[derive(Clone)]
pub struct WorkspaceFilesHandle(Arc<Shared>);

impl WorkspaceFilesHandle {
    /// For the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }
}

#[async_trait]
impl WorkspaceFiles for WorkspaceFilesHandle {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let card = self.0.directory.card(id_or_name).ok()?;
        let readiness = match card.phase {
            Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Destroying => {
                WorkspaceReadiness::Changing
            }
            Phase::Stopped | Phase::Crashed => WorkspaceReadiness::Off,
            // A parked one wakes over it.
            Phase::Parked
            | Phase::Running
            | Phase::Paused
            | Phase::HostDiskFull
            | Phase::Failed => WorkspaceReadiness::Ready,
        };
        Some(FoundWorkspace {
            id: card.id,
            name: card.name.to_string(),
            owner: card.owner,
            readiness,
        })
    }

    async fn run(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        operation: Vec<u8>,
        walks: bool,
        max_bytes: u64,
    ) -> Result<Vec<u8>, ToolError> {
        let address = self.0.directory.card(&id.to_string())?.address;
        let (reply, link) = oneshot::channel();
        // The actor judges whose it is, and waits for a link that is being made.
        address.send(Msg::Enter(cx.clone(), reply))?;
        let gone = |_| ToolError::internal("the workspace's actor ended over the call");
        let link = cx.guard(async { link.await.map_err(gone)? }).await?;
        let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        link.run_file_operation(operation, walks, max_bytes, terms).await.map_err(link_error)
    }
}
