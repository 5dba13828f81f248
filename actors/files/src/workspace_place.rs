//! Workspace as a place: its guest runs the operations, and what it answers is checked.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_file_engine::{FileError, FileOperation, FileOutcome, PlacePath, decode, encode};
use hivekeep_kernel::{
    CallCx, Layer, ToolError, WorkspaceId,
    ports::{GuestOperation, WorkspaceFiles},
};

use crate::{
    codes,
    file_place::{CommandHost, FilePlace},
    refuse::{refused, refused_by_guest},
};

/// Folder of a guest that relative paths begin at.
pub(crate) const WORKSPACE_ROOT: &str = "/workspace";

/// Files of one workspace.
pub(crate) struct WorkspacePlace {
    pub(crate) name: String,
    pub(crate) id: WorkspaceId,
    /// Name by which it is found whenever.
    pub(crate) lasting: String,
    /// User whose rights count; `None` is the image's.
    pub(crate) user: Option<String>,
    /// Absolute path of the folder that it begins at.
    pub(crate) root: String,
    pub(crate) files: Arc<dyn WorkspaceFiles>,
}

#[async_trait]
impl FilePlace for WorkspacePlace {
    fn name(&self) -> &str {
        &self.name
    }

    fn lasting(&self, _: &CallCx) -> Result<String, ToolError> {
        Ok(self.lasting.clone())
    }

    fn shown(&self, path: &str) -> Result<String, FileError> {
        Ok(PlacePath::in_system(&self.root, path)?.to_string())
    }

    fn command_host(&self) -> CommandHost {
        let (root, user) = (self.root.clone(), self.user.clone());
        CommandHost::Workspace { id: self.id, root, user }
    }

    async fn run(&self, cx: &CallCx, operation: FileOperation) -> Result<FileOutcome, ToolError> {
        let encoded = encode(&operation).map_err(refused)?;
        let asked = GuestOperation {
            encoded,
            walks: operation.walks(),
            max_bytes: operation.max_answer_bytes(),
            user: self.user.clone(),
            folder: Some(self.root.clone()).filter(|root| root != WORKSPACE_ROOT),
        };
        let answer = self.files.run(cx, self.id, asked).await?;
        let misbehaves = |why: &str| {
            let message = format!("the guest's answer to a file operation is none: {why}");
            ToolError::new(Layer::Guest, codes::GUEST_MISBEHAVES, message)
        };
        let outcome: Result<FileOutcome, FileError> =
            decode(&answer).map_err(|why| misbehaves(&why))?;
        let outcome = outcome.map_err(refused_by_guest)?;
        if !operation.accepts(&outcome) {
            return Err(misbehaves("it is of another operation, or beyond its limits"));
        }
        Ok(outcome)
    }
}
