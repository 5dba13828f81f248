//! Volume ports: durable folders of a user, and folders of the host, as workspaces mount them, and
//! operations on the files of a volume.
//!
//! Operations and their outcomes travel encoded, as in a workspace: only the file engine on both ends reads
//! them.

use std::{fmt, path::PathBuf};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use hivekeep_kernel::{CallCx, SessionId, ToolError, VolumeId, WorkspaceId};

/// A volume that a workspace is to have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// Id or label of a volume of yours; `place:NAME` is a folder of the host that the operator opened, for
    /// sandboxes.
    pub volume: String,
    /// Absolute path of the folder in the workspace where it is mounted; made if it is missing.
    #[schemars(length(min = 2, max = 1024))]
    pub path: String,
    /// Refuse writes from this workspace.
    #[serde(default)]
    pub read_only: bool,
}

/// Source of a mount, written as a volume's id or as `place:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum MountSource {
    /// Volume.
    Volume(VolumeId),
    /// Folder of the host, by the name of its place.
    Place(String),
}

impl MountSource {
    /// Beginning of what names a folder of the host.
    pub const PLACE: &str = "place:";
}

impl fmt::Display for MountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(id) => id.fmt(f),
            Self::Place(name) => write!(f, "{}{name}", Self::PLACE),
        }
    }
}

impl From<MountSource> for String {
    fn from(source: MountSource) -> Self {
        source.to_string()
    }
}

impl TryFrom<String> for MountSource {
    type Error = hivekeep_kernel::IdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.strip_prefix(Self::PLACE) {
            Some(name) => Ok(Self::Place(name.to_owned())),
            None => text.parse().map(Self::Volume),
        }
    }
}

/// Folder of the host that a workspace mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedFolder {
    /// Where it is.
    pub folder: PathBuf,
    /// True if writes are refused, whatever the workspace asked for.
    pub read_only: bool,
    /// User and group whose files are the workspace's root's, for a folder of the host; in a volume they are
    /// those of root.
    pub owner: Option<(u32, u32)>,
}

/// A volume of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedVolume {
    /// Volume, or folder of the host.
    pub volume: MountSource,
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
    /// `volume_not_found`; `place_unknown`; `volumes_unsupported`. Nothing is attached then.
    fn attach(
        &self,
        session: SessionId,
        workspace: WorkspaceId,
        wanted: &[VolumeRequest],
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
    /// `volumes_unsupported`; `volume_failed` when one cannot be mounted; `place_unknown` for a folder that is
    /// not opened any more.
    async fn mount(&self, attached: &[AttachedVolume]) -> Result<Vec<MountedFolder>, ToolError>;
}

/// Files of volumes.
#[async_trait]
pub trait VolumeFiles: Send + Sync {
    /// Finds a volume of the session's user by its id or label.
    ///
    /// # Errors
    /// `volume_not_found`.
    fn find(&self, session: SessionId, volume: &str) -> Result<VolumeId, ToolError>;

    /// Runs an encoded operation in a volume of the session's user, by its id or label; returns the encoded
    /// outcome. The volume is mounted for it where it is not. Whoever drops the future does not want a
    /// search any more; a change is made whole or not at all.
    ///
    /// # Errors
    /// `volume_not_found`; `volumes_unsupported`; `volume_failed` when it cannot be mounted; `volume_full`.
    async fn run(
        &self,
        cx: &CallCx,
        volume: &str,
        operation: Vec<u8>,
    ) -> Result<Vec<u8>, ToolError>;
}
