//! Image store: opening, listing, and the lock that lets one build run.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hivekeep_trees::remove_tree;
use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use super::build::{self, BuildRequest, BuildResult, BuildStep};
use super::files::{has_mounts, sweep};
use super::objects::{OBJECTS, ObjectName, Objects};
use super::verify::Verified;
use super::{Error, ImageName, Manifest, Result, VerifiedImage, overlay};

/// Folder of images. Cheap to clone; clones share the record of verified files.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) root: PathBuf,
    pub(super) objects: Objects,
    pub(super) verified: Verified,
}

/// Row of `image list`.
#[derive(Debug, Clone)]
pub struct ImageRow {
    /// Name of the image.
    pub name: ImageName,
    /// State of the image.
    pub state: ImageState,
}

/// State of an image.
#[derive(Debug, Clone)]
pub enum ImageState {
    /// The manifest is readable and names these objects; their content was not checked.
    Built(Box<Manifest>),
    /// The image was not built yet.
    NotBuilt,
    /// The manifest cannot be used; the reason names the remedy.
    Unreadable {
        /// Reason.
        reason: String,
    },
}

impl ImageStore {
    /// Opens a store, making its folders where needed, and removes what a crashed build left.
    /// Blocks for milliseconds (longer after a crash).
    pub fn open(root: PathBuf) -> Result<Self> {
        for folder in [OBJECTS, "images", "overlays", "tmp"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        }
        // Overlays record absolute paths, so the root must be absolute.
        let root = fs::canonicalize(&root).map_err(Error::io("resolve", &root))?;
        let inner = Inner { objects: Objects::new(&root), verified: Verified::default(), root };
        // A taken lock means that a build is running and uses its temporary files.
        if let Ok(_lock) = inner.lock() {
            clear(&inner.temp())?;
        }
        sweep(&inner.root.join("overlays"))?;
        sweep(&inner.root.join("images"))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Root folder of the store, absolute.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Path where this store has, or would have, the object that another store has at a path.
    /// Objects are named by their content, so both are the same.
    pub fn same_object(&self, elsewhere: &Path) -> Option<PathBuf> {
        let ObjectName { hash, file } = ObjectName::of(elsewhere)?;
        Some(self.inner.root.join(OBJECTS).join(hash.to_string()).join(file))
    }

    /// Builds an image, or the parts of it that are out of date. Safe to kill at any moment: the
    /// present image stays usable until the new one replaces it.
    ///
    /// # Errors
    /// `Busy` while another build runs in this store; `Requirement` before anything was done if a
    /// tool is missing; `Cancelled` after `cancel`, with every child process ended.
    pub async fn build(
        &self,
        request: BuildRequest,
        progress: &(dyn Fn(BuildStep) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<BuildResult> {
        build::build(self, request, progress, cancel).await
    }

    /// Finds an image and checks its content, in full the first time and by file stamps later.
    pub async fn resolve(&self, name: ImageName) -> Result<VerifiedImage> {
        self.blocking(move |inner| {
            let manifest =
                inner.manifest(name)?.ok_or_else(|| Error::missing(name, "it was never built"))?;
            inner.verified.image(&inner.objects, manifest)
        })
        .await
    }

    /// Path of the directory form of an image, checked; the sandbox's read-only lower layer.
    pub async fn resolve_tree(&self, image: &VerifiedImage) -> Result<PathBuf> {
        let manifest = Arc::clone(&image.manifest);
        self.blocking(move |inner| {
            let tree = manifest
                .rootfs_tree
                .as_ref()
                .ok_or_else(|| Error::missing(manifest.name, "it was built without a tree"))?;
            inner.verified.tree(&inner.objects, tree, manifest.name)
        })
        .await
    }

    /// Lists all images, built or not.
    pub async fn list(&self) -> Result<Vec<ImageRow>> {
        self.blocking(|inner| {
            let state = |name| match inner.manifest(name) {
                Ok(Some(manifest)) => ImageState::Built(Box::new(manifest)),
                Ok(None) => ImageState::NotBuilt,
                Err(error) => ImageState::Unreadable { reason: error.to_string() },
            };
            Ok(ImageName::ALL
                .into_iter()
                .map(|name| ImageRow { name, state: state(name) })
                .collect())
        })
        .await
    }

    /// Makes the disk of a workspace: a qcow2 of `disk_gb` GiB over the image's filesystem, which
    /// the guest grows to that size at its first boot. Durable on return.
    ///
    /// # Errors
    /// `DiskSize` outside of the image's limits, `OverlayExists` if `path` is taken.
    pub async fn overlay(&self, image: &VerifiedImage, path: &Path, disk_gb: u64) -> Result<()> {
        overlay::create(self, image, path, disk_gb).await
    }

    /// Runs blocking work on a thread that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Cancelled),
        }
    }
}

impl Inner {
    pub(super) fn temp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn manifest_path(&self, name: ImageName) -> PathBuf {
        self.root.join("images").join(format!("{name}.json"))
    }

    pub(super) fn manifest(&self, name: ImageName) -> Result<Option<Manifest>> {
        Manifest::load(&self.manifest_path(name), name)
    }

    /// Takes the build lock; released when the file is closed, also by a crash.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.root.join("build.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy { root: self.root.clone() }),
            Err(error) => Err(Error::io("lock", &path)(error)),
        }
    }
}

/// Empties the folder of unfinished builds. Legal only under the build lock.
fn clear(temp: &Path) -> Result<()> {
    if has_mounts(temp)? {
        tracing::warn!(path = %temp.display(), "something is mounted below; left unchanged");
        return Ok(());
    }
    for entry in fs::read_dir(temp).map_err(Error::io("list", temp))? {
        let path = entry.map_err(Error::io("list", temp))?.path();
        remove_tree(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}
