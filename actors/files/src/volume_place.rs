//! Volume as a place: the volumes' family runs the operations, beneath the handle of its mount.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_file_engine::{FileError, FileOperation, FileOutcome, PlacePath, decode, encode};
use hivekeep_kernel::{CallCx, ToolError, ports::VolumeFiles};

use crate::{
    file_place::{CommandHost, FilePlace},
    refuse::refused,
};

/// Prefix of the names of volume places.
pub(crate) const VOLUME_PREFIX: &str = "volume:";

/// Files of a volume of the session's user.
pub(crate) struct VolumePlace {
    /// Name as the caller gave it, with the prefix.
    pub(crate) name: String,
    pub(crate) volumes: Arc<dyn VolumeFiles>,
}

impl VolumePlace {
    /// Id or label.
    fn volume(&self) -> &str {
        self.name.strip_prefix(VOLUME_PREFIX).unwrap_or(&self.name)
    }
}

#[async_trait]
impl FilePlace for VolumePlace {
    fn name(&self) -> &str {
        &self.name
    }

    fn lasting(&self, cx: &CallCx) -> Result<String, ToolError> {
        let id = self.volumes.find(cx.session, self.volume())?;
        Ok(format!("{VOLUME_PREFIX}{id}"))
    }

    fn shown(&self, path: &str) -> Result<String, FileError> {
        Ok(PlacePath::parse(path)?.to_string())
    }

    fn command_host(&self) -> CommandHost {
        CommandHost::Beside { source: self.volume().to_owned(), read_only: false }
    }

    async fn run(&self, cx: &CallCx, operation: FileOperation) -> Result<FileOutcome, ToolError> {
        let encoded = encode(&operation).map_err(refused)?;
        let answer = self.volumes.run(cx, self.volume(), encoded).await?;
        let outcome: Result<FileOutcome, FileError> = decode(&answer)
            .map_err(|why| ToolError::internal(format!("the outcome in a volume: {why}")))?;
        outcome.map_err(refused)
    }
}
