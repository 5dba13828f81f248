//! Image store: opening, listing, and the lock that lets one build run.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hivekeep_fs::remove_tree;
use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use super::build::{self, BuildRequest, BuildResult, BuildStep};
use super::files::sweep;
use super::objects::{OBJECTS, ObjectName, Objects, PENDING};
use super::uses::{PruneTerms, RemovedImages, bytes_on_disk};
use super::verify::Verified;
use super::{
    Error, ImageName, Manifest, PulledImage, Result, TreeAdoption, VerifiedImage, adopt, overlay,
};

/// Folder of images. Cheap to clone; clones share the record of verified files.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(super) inner: Arc<Inner>,
}

/// Lock of builds and pulls.
#[derive(Debug)]
pub struct BuildLock(#[expect(dead_code, reason = "held until it is dropped")] File);

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
    /// The same of an image that was pulled.
    Pulled(Box<PulledImage>),
    /// The image was not built yet.
    NotBuilt,
    /// The manifest cannot be used; the reason names the remedy.
    Unreadable {
        /// Reason, with the path of the manifest.
        reason: String,
    },
}

impl ImageStore {
    /// Opens a store, making its folders where needed, and removes what a crashed build left.
    /// Blocks for milliseconds (longer after a crash).
    pub fn open(root: PathBuf) -> Result<Self> {
        for folder in [OBJECTS, PENDING, "images", "overlays", "tmp", "uses"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        }
        // Overlays record absolute paths, so the root must be absolute.
        let root = fs::canonicalize(&root).map_err(Error::io("resolve", &root))?;
        let inner = Inner { objects: Objects::new(&root), verified: Verified::default(), root };
        // If the lock is taken, its holder runs a build and still uses its temporary files.
        let _lock_of_the_moment = inner.lock();
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

    /// Takes the lock that lets one build or pull run. Released when it is dropped.
    ///
    /// # Errors
    /// `Busy` while another has it.
    pub async fn lock(&self) -> Result<BuildLock> {
        self.blocking(|inner| inner.lock().map(BuildLock)).await
    }

    /// Makes a folder for unfinished work, which the next open removes after a crash. Legal under
    /// the lock.
    pub async fn work_folder(&self, _lock: &BuildLock) -> Result<PathBuf> {
        self.blocking(|inner| {
            let work = inner.temp().join(format!("pull-{}", uuid::Uuid::new_v4().simple()));
            // Set-user-id programs of a tree in it are not for others.
            fs::DirBuilder::new().mode(0o700).create(&work).map_err(Error::io("create", &work))?;
            Ok(work)
        })
        .await
    }

    /// Removes a folder of unfinished work.
    pub async fn remove_work(&self, work: PathBuf) -> Result<()> {
        self.blocking(move |_| remove_tree(&work).map_err(Error::io("remove", &work))).await
    }

    /// Makes an image of a tree that was unpacked in a folder of unfinished work: its disk, its
    /// directory form and its manifest, which is written last. An image of the same name is
    /// replaced; workspaces go on with what they began with.
    pub async fn adopt(
        &self,
        _lock: &BuildLock,
        adoption: TreeAdoption,
        cancel: &CancellationToken,
    ) -> Result<PulledImage> {
        adopt::adopt(self, adoption, cancel).await
    }

    /// Manifest of a pulled image.
    pub async fn pulled(&self, name: ImageName) -> Result<Option<PulledImage>> {
        self.blocking(move |inner| inner.pulled(&name)).await
    }

    /// True if an image is here, false if it is not, `None` if that cannot be read. Blocks for the
    /// reading of one small file.
    pub fn is_present(&self, name: &ImageName) -> Option<bool> {
        match self.inner.state(name) {
            ImageState::Built(_) | ImageState::Pulled(_) => Some(true),
            ImageState::NotBuilt => Some(false),
            ImageState::Unreadable { .. } => None,
        }
    }

    /// Finds an image and checks its content, in full the first time and by file stamps later.
    pub async fn resolve(&self, name: ImageName) -> Result<VerifiedImage> {
        self.blocking(move |inner| {
            if let ImageName::Pulled(_) = name {
                let image = inner.pulled(&name)?;
                let image = image.ok_or_else(|| Error::missing(&name, "it was never pulled"))?;
                return inner.verified.pulled(&inner.objects, image, inner.boot_image()?);
            }
            let manifest = inner
                .manifest(&name)?
                .ok_or_else(|| Error::missing(&name, "it was never built"))?;
            inner.verified.image(&inner.objects, manifest)
        })
        .await
    }

    /// Path of the directory form of an image, checked; the sandbox's read-only lower layer.
    pub async fn resolve_tree(&self, image: &VerifiedImage) -> Result<PathBuf> {
        let (name, tree) = (image.name.clone(), image.tree.clone());
        self.blocking(move |inner| {
            let tree = tree.ok_or_else(|| Error::missing(&name, "it was built without a tree"))?;
            inner.verified.tree(&inner.objects, &tree, &name)
        })
        .await
    }

    /// Lists all images that can be built, built or not, and those that were pulled.
    pub async fn list(&self) -> Result<Vec<ImageRow>> {
        self.blocking(|inner| {
            let names = ImageName::BUILT.into_iter().chain(inner.pulled_names()?);
            Ok(names.map(|name| ImageRow { state: inner.state(&name), name }).collect())
        })
        .await
    }

    /// Name of the image that has this root filesystem.
    pub async fn image_of(&self, rootfs: &Path) -> Result<Option<ImageName>> {
        let rows = self.list().await?;
        let objects = &self.inner.objects;
        let is_of = |row: &ImageRow| match &row.state {
            ImageState::Built(image) => objects.path(&image.rootfs_ext4) == rootfs,
            ImageState::Pulled(image) => objects.path(&image.rootfs_ext4) == rootfs,
            ImageState::NotBuilt | ImageState::Unreadable { .. } => false,
        };
        Ok(rows.into_iter().find(is_of).map(|row| row.name))
    }

    /// Records that a user, `<daemon>.<name>`, has a disk over an object, which is then not removed.
    ///
    /// # Errors
    /// When the object is gone.
    pub async fn hold(&self, base: PathBuf, user: String) -> Result<()> {
        self.blocking(move |inner| inner.hold(&base, &user)).await
    }

    /// Forgets what a user has.
    pub async fn release(&self, user: String) -> Result<()> {
        self.blocking(move |inner| inner.release(&user)).await
    }

    /// Makes the uses of a daemon exactly these, pairs of a user, `<daemon>.<name>`, and a base. Its
    /// records decide.
    pub async fn replace_uses(&self, daemon: String, uses: Vec<(String, PathBuf)>) -> Result<()> {
        self.blocking(move |inner| inner.replace_uses(&daemon, &uses)).await
    }

    /// Users of a pulled image's objects.
    pub async fn users_of(&self, image: &PulledImage) -> Result<BTreeSet<String>> {
        let hashes = [image.rootfs_ext4.hash, image.rootfs_tree.hash].map(|hash| hash.to_string());
        let users = self.blocking(|inner| inner.users()).await?;
        Ok(hashes.iter().filter_map(|hash| users.get(hash)).flatten().cloned().collect())
    }

    /// Room that a pulled image takes on the disk.
    pub async fn bytes_on_disk(&self, image: PulledImage) -> Result<u64> {
        self.blocking(move |inner| {
            let disk = bytes_on_disk(&inner.objects.path(&image.rootfs_ext4));
            Ok(disk + bytes_on_disk(&inner.objects.tree_path(&image.rootfs_tree)))
        })
        .await
    }

    /// Removes a pulled image.
    ///
    /// # Errors
    /// `InUse` with the users, `UsesUnknown`, `Missing`.
    pub async fn remove(&self, _lock: &BuildLock, name: ImageName) -> Result<RemovedImages> {
        self.blocking(move |inner| inner.remove_image(&name)).await
    }

    /// Removes what nothing uses, by age and free room.
    ///
    /// # Errors
    /// `UsesUnknown`.
    pub async fn prune(&self, _lock: &BuildLock, terms: PruneTerms) -> Result<RemovedImages> {
        self.blocking(move |inner| inner.prune(terms)).await
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

    pub(super) fn manifest_path(&self, name: &ImageName) -> PathBuf {
        // No name has a `+`.
        let file = name.as_str().replace('/', "+");
        self.root.join("images").join(format!("{file}.json"))
    }

    pub(super) fn manifest(&self, name: &ImageName) -> Result<Option<Manifest>> {
        Manifest::load(&self.manifest_path(name), name)
    }

    pub(super) fn pulled(&self, name: &ImageName) -> Result<Option<PulledImage>> {
        PulledImage::load(&self.manifest_path(name), name)
    }

    /// State of an image. Blocks.
    pub(super) fn state(&self, name: &ImageName) -> ImageState {
        let found = match name {
            ImageName::Pulled(_) => {
                self.pulled(name).map(|it| it.map(|it| ImageState::Pulled(Box::new(it))))
            }
            _ => self.manifest(name).map(|it| it.map(|it| ImageState::Built(Box::new(it)))),
        };
        match found {
            Ok(found) => found.unwrap_or(ImageState::NotBuilt),
            Err(error) => ImageState::Unreadable { reason: error.to_string() },
        }
    }

    /// Names of the pulled images, sorted.
    pub(super) fn pulled_names(&self) -> Result<Vec<ImageName>> {
        let folder = self.root.join("images");
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
            let file = entry.map_err(Error::io("list", &folder))?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            let name = name.and_then(|name| ImageName::named(&name.replace('+', "/")).ok());
            names.extend(name.filter(|name| matches!(name, ImageName::Pulled(_))));
        }
        names.sort();
        Ok(names)
    }

    /// Image whose kernel and initrd pulled images boot with.
    fn boot_image(&self) -> Result<Option<Manifest>> {
        let built = ImageName::BUILT.iter().map(|name| self.manifest(name));
        built.filter_map(Result::transpose).next().transpose()
    }

    /// Takes the build lock and removes what the last holder left unfinished; released when the
    /// file is closed, also by a crash.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.root.join("build.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                self.recover();
                Ok(file)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy { root: self.root.clone() }),
            Err(error) => Err(Error::io("lock", &path)(error)),
        }
    }
}
