//! Volume port: durable folders of a user, as workspaces mount them.

use std::path::PathBuf;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{SessionId, ToolError, VolumeId, WorkspaceId};

/// A volume that a workspace is to have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeWish {
    /// Id or label of a volume of yours.
    pub volume: String,
    /// Absolute path of the folder in the workspace where it is mounted; made if it is missing.
    #[schemars(length(min = 2, max = 1024))]
    pub path: String,
    /// Refuse writes from this workspace.
    #[serde(default)]
    pub read_only: bool,
}

/// A volume of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedVolume {
    /// Volume.
    pub volume: VolumeId,
    /// Absolute path in the workspace.
    pub path: String,
    /// True if writes from the workspace are refused.
    pub read_only: bool,
}

/// Volumes of all users. What is attached to a workspace is a record of the workspace; here it is only
/// counted, so that no volume is deleted that a workspace has.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Attaches volumes of a session's user to a workspace, beside those that it has.
    ///
    /// # Errors
    /// `volume_not_found`; `volumes_unsupported`. Nothing is attached then.
    fn attach(
        &self,
        session: SessionId,
        workspace: WorkspaceId,
        wanted: &[VolumeWish],
    ) -> Result<Vec<AttachedVolume>, ToolError>;

    /// Sets what is attached to a workspace to exactly this, as its record says; nothing once it is gone.
    fn set(&self, workspace: WorkspaceId, attached: &[AttachedVolume]);

    /// Ends the wait of deletions for the attachments of workspaces that an earlier daemon made: all
    /// are [set](Self::set).
    fn all_set(&self);

    /// Folders of the host at which these volumes are mounted, in order; mounts what is not. They stay
    /// mounted while they are attached.
    ///
    /// # Errors
    /// `volumes_unsupported`; `volume_failed` when one cannot be mounted.
    async fn mount(&self, attached: &[AttachedVolume]) -> Result<Vec<PathBuf>, ToolError>;
}
