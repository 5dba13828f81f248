//! Work beneath the root of a volume of the session's user, with the file engine: for `aegis.file.*` and,
//! through the port [`VolumeFiles`], for whoever else offers file tools.

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_file_engine::{FileOperation, FileRoot, PlacePath, decode, encode, run};
use hivekeep_kernel::{CallCx, SessionId, ToolError, VolumeId, ports::VolumeFiles};
use tokio_util::sync::CancellationToken;

use crate::{
    held::VolumeResult,
    refuse::{refused, refused_in},
    volume_path,
    volumes::VolumeService,
};

impl VolumeService {
    /// Runs work beneath the root of a volume, on a thread.
    pub(crate) async fn beneath<T: Send + 'static>(
        &self,
        cx: &CallCx,
        volume: &str,
        work: impl FnOnce(&FileRoot) -> VolumeResult<T> + Send + 'static,
    ) -> VolumeResult<T> {
        let (id, dir) = self.opened(cx, volume).await?;
        let root = self.held().root(id, FileRoot::opened(dir));
        let done = tokio::task::spawn_blocking(move || work(&root)).await;
        done.map_err(|error| ToolError::internal(format!("a file of a volume: {error}")))?
    }

    /// Like [`Self::beneath`], for work on a path.
    pub(crate) async fn at<T: Send + 'static>(
        &self,
        cx: &CallCx,
        volume: &str,
        path: &str,
        work: impl FnOnce(&FileRoot, &PlacePath) -> VolumeResult<T> + Send + 'static,
    ) -> VolumeResult<T> {
        let path = volume_path::parse(path)?;
        self.beneath(cx, volume, move |root| work(root, &path)).await
    }
}

#[async_trait]
impl VolumeFiles for VolumeService {
    fn find(&self, session: SessionId, volume: &str) -> Result<VolumeId, ToolError> {
        let owner = self.owner(session)?;
        Ok(self.held().usable(owner, volume, Utc::now())?.0)
    }

    async fn run(
        &self,
        cx: &CallCx,
        volume: &str,
        operation: Vec<u8>,
    ) -> Result<Vec<u8>, ToolError> {
        let operation: FileOperation = decode(&operation)
            .map_err(|why| ToolError::internal(format!("no operation: {why}")))?;
        let stop = CancellationToken::new();
        let _nobody_waits = stop.clone().drop_guard();
        let work = move |root: &FileRoot| {
            let outcome = run(root, &operation, &|| stop.is_cancelled());
            match outcome {
                Err(error) if error.is_no_space() => Err(refused_in(error, root.dir())),
                outcome => encode(&outcome).map_err(refused),
            }
        };
        self.beneath(cx, volume, work).await
    }
}
