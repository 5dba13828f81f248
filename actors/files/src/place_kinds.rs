//! Kinds of places: a folder of the host, which is opened once and kept as a handle, a workspace, whose guest
//! runs the operations and whose answers are checked, and a volume, beneath the handle of its mount.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use hivekeep_file_engine::{
    FileEffect, FileError, FileOperation, FileOutcome, FileRoot, PlacePath, decode, encode, run,
};
use hivekeep_kernel::{CallCx, Layer, Room, ToolError, WorkspaceId};
use hivekeep_ports::{GuestOperation, MountSource, PlaceFolder, VolumeFiles, WorkspaceFiles};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    PlaceOptions, codes,
    place::{CommandHost, FilePlace, VOLUME_PREFIX, WORKSPACE_ROOT, refused, refused_by_guest},
};

/// Calls that work in one place at a time.
const MOST_AT_ONCE: usize = 8;

/// Folder that the operator opened. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HostFolder {
    folder: Arc<Folder>,
    /// Permits of the calls that work; others wait within their deadline. A place on a file
    /// system that hangs holds up its own calls.
    permits: Arc<Semaphore>,
}

struct Folder {
    name: String,
    path: PathBuf,
    read_only: bool,
    /// Handle that every path is resolved beneath, once the folder could be opened.
    root: OnceLock<FileRoot>,
    /// Free space of the host.
    room: Room,
}

impl HostFolder {
    pub(crate) fn new(name: &str, options: &PlaceOptions, room: Room) -> Self {
        let folder = Folder {
            name: name.to_owned(),
            path: options.folder.clone(),
            read_only: options.read_only,
            root: OnceLock::new(),
            room,
        };
        Self { folder: Arc::new(folder), permits: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }
}

impl HostFolder {
    /// The folder for workspaces that mount it.
    pub(crate) fn place_folder(&self) -> PlaceFolder {
        PlaceFolder { folder: self.folder.path.clone(), read_only: self.folder.read_only }
    }
}

impl Folder {
    /// Root folder. One that is not there yet is looked for again at the next call.
    ///
    /// # Errors
    /// `file_failed` when it cannot be opened.
    fn root(&self) -> Result<&FileRoot, ToolError> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let opened = FileRoot::folder(&self.path).map_err(|error| {
            let message = format!("the folder of the place `{}`: {error}", self.name);
            ToolError::new(Layer::Actor, codes::FILE_FAILED, message)
                .next("ask the operator to make it, or work in another place")
        })?;
        Ok(self.root.get_or_init(|| opened))
    }

    /// Whether the place lets an operation have its effect.
    ///
    /// # Errors
    /// `place_read_only`, and `host_disk_full` for what takes room.
    fn admits(&self, effect: FileEffect) -> Result<(), ToolError> {
        if effect != FileEffect::Reads && self.read_only {
            let message = format!("the place `{}` may be read only", self.name);
            return Err(ToolError::new(Layer::Policy, codes::PLACE_READ_ONLY, message)
                .next("write in another place, or ask the operator for `read_only = false`"));
        }
        if effect == FileEffect::Writes { self.room.admit(&self.path) } else { Ok(()) }
    }
}

#[async_trait]
impl FilePlace for HostFolder {
    fn name(&self) -> &str {
        &self.folder.name
    }

    fn lasting(&self, _: &CallCx) -> Result<String, ToolError> {
        Ok(self.folder.name.clone())
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder.path)
    }

    fn shown(&self, path: &str) -> Result<String, FileError> {
        Ok(PlacePath::parse(path)?.to_string())
    }

    fn command_host(&self) -> CommandHost {
        let source = MountSource::Place(self.folder.name.clone()).to_string();
        CommandHost::Beside { source, read_only: self.folder.read_only }
    }

    async fn run(&self, _: &CallCx, operation: FileOperation) -> Result<FileOutcome, ToolError> {
        // Never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let stop = CancellationToken::new();
        let _nobody_waits = stop.clone().drop_guard();
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            folder.admits(operation.effect())?;
            run(folder.root()?, &operation, &|| stop.is_cancelled()).map_err(refused)
        });
        done.await.map_err(|panic| ToolError::internal(format!("a file tool: {panic}")))?
    }
}

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
