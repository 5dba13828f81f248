//! Volumes as others have them: attached and mounted for the workspaces, and, for `aegis.file.*` and by the port
//! [`VolumeFiles`] for whoever else offers file tools, work beneath the root of a volume of the session's user,
//! with the file engine. What fails there is a tool error.

use std::{io, os::unix::fs::MetadataExt as _};

use async_trait::async_trait;
use cap_std::fs::Dir;
use chrono::Utc;
use hivekeep_file_engine::{
    FileError, FileErrorKind, FileOperation, FileRoot, PlacePath, decode, encode, run,
};
use hivekeep_kernel::{CallCx, ErrorCode, Layer, SessionId, ToolError, VolumeId, WorkspaceId};
use hivekeep_ports::{
    AttachedVolume, MountSource, MountedFolder, PlaceFolder, PlaceFolders, VolumeFiles,
    VolumeRequest, Volumes,
};
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    images::free_bytes,
    volume::VolumeResult,
    volumes::{VolumeService, failed},
};

#[async_trait]
impl Volumes for VolumeService {
    fn attach(
        &self,
        session: SessionId,
        workspace: WorkspaceId,
        wanted: &[VolumeRequest],
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let owner = self.sessions.caller(session)?;
        let mut held = self.held();
        let resolve = |request: &VolumeRequest| {
            let volume = match request.volume.strip_prefix(MountSource::PLACE) {
                Some(name) => {
                    self.place(name, request.read_only)?;
                    MountSource::Place(name.to_owned())
                }
                None => {
                    self.supported()?;
                    MountSource::Volume(held.usable(owner, &request.volume, Utc::now())?.0)
                }
            };
            Ok(AttachedVolume { volume, path: request.path.clone(), read_only: request.read_only })
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
        let path = parsed(path)?;
        self.beneath(cx, volume, move |root| work(root, &path)).await
    }
}

#[async_trait]
impl VolumeFiles for VolumeService {
    fn find(&self, session: SessionId, volume: &str) -> Result<VolumeId, ToolError> {
        let owner = self.sessions.caller(session)?;
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

/// Parses a path: absolute ones begin at the volume's root. A folder that is left again is not passed, for it
/// may be a link to another; links on the way are the kernel's to judge.
///
/// # Errors
/// `invalid_path`.
pub(crate) fn parsed(text: &str) -> VolumeResult<PlacePath> {
    let path = PlacePath::parse(text).map_err(refused)?;
    let mut names = Vec::new();
    for name in path.as_str().split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let path = if names.is_empty() { ".".to_owned() } else { names.join("/") };
    PlacePath::parse(&path).map_err(refused)
}

/// Tool error of an operation that did not fail for want of room.
pub(crate) fn refused(error: FileError) -> ToolError {
    use FileErrorKind as Kind;
    let code: &ErrorCode = match error.kind {
        Kind::InvalidPath | Kind::Outside => {
            return ToolError::new(Layer::Actor, codes::INVALID_PATH, error.message)
                .next("name a path relative to the volume's root, with `/` between folders");
        }
        Kind::NotFound => codes::NOT_FOUND,
        Kind::PermissionDenied => codes::PERMISSION_DENIED,
        Kind::NotADirectory => codes::NOT_A_DIRECTORY,
        Kind::IsADirectory => codes::IS_A_DIRECTORY,
        Kind::NotAFile => codes::VOLUME_NOT_A_FILE,
        _ => codes::VOLUME_FAILED,
    };
    ToolError::new(Layer::Actor, code, error.message)
}

/// Like [`refused`]; lack of room is reported with the volume's sizes, as far as they can be read.
pub(crate) fn refused_in(error: FileError, root: &Dir) -> ToolError {
    if error.kind != FileErrorKind::NoSpace {
        return refused(error);
    }
    let told = ToolError::new(Layer::Quota, codes::VOLUME_FULL, error.message).next(
        "delete files, or use a larger volume; a file that is replaced needs room beside the old one",
    );
    match (free_bytes(root), total_bytes(root)) {
        (Ok(free), Ok(size)) => told.detail("free_bytes", free).detail("size_bytes", size),
        _ => told,
    }
}

fn total_bytes(root: &Dir) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(root)?;
    Ok(fs.f_blocks.saturating_mul(fs.f_frsize))
}
