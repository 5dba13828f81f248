//! Volumes as the workspaces see them.

use std::path::PathBuf;

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_kernel::{
    SessionId, ToolError, WorkspaceId,
    ports::{AttachedVolume, VolumeWish, Volumes},
};

use crate::volumes::VolumeService;

#[async_trait]
impl Volumes for VolumeService {
    fn attach(
        &self,
        session: SessionId,
        workspace: WorkspaceId,
        wanted: &[VolumeWish],
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let owner = self.owner(session)?;
        self.supported()?;
        let mut held = self.held();
        let resolve = |wish: &VolumeWish| {
            let (volume, _) = held.usable(owner, &wish.volume, Utc::now())?;
            Ok(AttachedVolume { volume, path: wish.path.clone(), read_only: wish.read_only })
        };
        let attached: Vec<_> = wanted.iter().map(resolve).collect::<Result<_, ToolError>>()?;
        let beside = held.attached.entry(workspace).or_default();
        beside.extend(attached.iter().map(|attached| attached.volume));
        Ok(attached)
    }

    fn set(&self, workspace: WorkspaceId, attached: &[AttachedVolume]) {
        let mut held = self.held();
        if attached.is_empty() {
            held.attached.remove(&workspace);
        } else {
            let volumes = attached.iter().map(|attached| attached.volume).collect();
            held.attached.insert(workspace, volumes);
        }
    }

    fn all_set(&self) {
        self.told_all();
    }

    async fn mount(&self, attached: &[AttachedVolume]) -> Result<Vec<PathBuf>, ToolError> {
        let mut folders = Vec::with_capacity(attached.len());
        for AttachedVolume { volume, .. } in attached {
            self.supported()?;
            let id = *volume;
            let mounted = self.on_mount(id, move |images| {
                images.mount(id).map(|_handle_until_it_is_attached| images.mounted(id))
            });
            folders.push(mounted.await?);
        }
        Ok(folders)
    }
}
