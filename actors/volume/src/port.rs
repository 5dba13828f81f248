//! Volumes as the workspaces see them.

use std::os::unix::fs::MetadataExt as _;

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_kernel::{
    Layer, SessionId, ToolError, VolumeId, WorkspaceId,
    ports::{
        AttachedVolume, MountSource, MountedFolder, PlaceFolder, PlaceFolders, VolumeWish, Volumes,
    },
};

use crate::{
    codes,
    volumes::{VolumeService, failed},
};

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
        let mut held = self.held();
        let resolve = |wish: &VolumeWish| {
            let volume = match wish.volume.strip_prefix(MountSource::PLACE) {
                Some(name) => {
                    self.place(name, wish.read_only)?;
                    MountSource::Place(name.to_owned())
                }
                None => {
                    self.supported()?;
                    MountSource::Volume(held.usable(owner, &wish.volume, Utc::now())?.0)
                }
            };
            Ok(AttachedVolume { volume, path: wish.path.clone(), read_only: wish.read_only })
        };
        let attached: Vec<_> = wanted.iter().map(resolve).collect::<Result<_, ToolError>>()?;
        held.attached.entry(workspace).or_default().extend(volumes(&attached));
        Ok(attached)
    }

    fn set(&self, workspace: WorkspaceId, attached: &[AttachedVolume]) {
        let mut held = self.held();
        if attached.is_empty() {
            held.attached.remove(&workspace);
        } else {
            held.attached.insert(workspace, volumes(attached).collect());
        }
    }

    fn all_set(&self) {
        self.told_all();
    }

    async fn mount(&self, attached: &[AttachedVolume]) -> Result<Vec<MountedFolder>, ToolError> {
        let mut folders = Vec::with_capacity(attached.len());
        for AttachedVolume { volume, read_only, .. } in attached {
            folders.push(match volume {
                MountSource::Place(name) => self.place(name, *read_only)?,
                MountSource::Volume(id) => {
                    self.supported()?;
                    let id = *id;
                    let mounted = self.on_mount(id, move |images| {
                        images.mount(id).map(|_handle_until_it_is_attached| images.mounted(id))
                    });
                    MountedFolder { folder: mounted.await?, read_only: *read_only, owner: None }
                }
            });
        }
        Ok(folders)
    }
}

impl VolumeService {
    /// Folder of the host as a workspace mounts it: its owner's files are the workspace's root's.
    ///
    /// # Errors
    /// `place_unknown`; `volume_failed` for one that is not there; `volumes_unsupported` for one that is to be
    /// written and belongs to root: whoever writes its files in a workspace could have the host trust them.
    fn place(&self, name: &str, read_only: bool) -> Result<MountedFolder, ToolError> {
        let PlaceFolder { folder, read_only: closed } =
            self.ports.need::<dyn PlaceFolders>()?.folder(name)?;
        let read_only = read_only || closed;
        let found = std::fs::metadata(&folder);
        let found = found.map_err(|error| failed("find the folder of the place of", &error))?;
        if !read_only && found.uid() == 0 {
            let message = format!("the folder of the place `{name}` belongs to root");
            return Err(ToolError::new(Layer::Machine, codes::VOLUMES_UNSUPPORTED, message)
                .next("give the folder to a user of the host, or mount it with `read_only`"));
        }
        Ok(MountedFolder { folder, read_only, owner: Some((found.uid(), found.gid())) })
    }
}

fn volumes(attached: &[AttachedVolume]) -> impl Iterator<Item = VolumeId> {
    attached.iter().filter_map(|attached| match attached.volume {
        MountSource::Volume(id) => Some(id),
        MountSource::Place(_) => None,
    })
}
