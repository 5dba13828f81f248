//! Volume file port: operations on the files of a volume, as seen by whoever offers file tools.
//!
//! Operations and their outcomes travel encoded, as in a workspace: only the file engine on both ends reads
//! them.

use async_trait::async_trait;

use crate::{CallCx, SessionId, ToolError, VolumeId};

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
