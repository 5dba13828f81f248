//! Verification cache: images are handed out only after their content matched the manifest.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dashmap::DashMap;

use super::error::remedy;
use super::objects::Objects;
use super::{
    ContentHash, Error, ImageDefaults, ImageName, Manifest, ObjectRef, PulledImage, Result,
    TreeRef, tree,
};

/// Image whose kernel, initrd and root filesystem matched their hashes.
#[derive(Debug, Clone)]
pub struct VerifiedImage {
    pub(super) name: ImageName,
    boot: Option<BootFiles>,
    pub(super) rootfs: PathBuf,
    rootfs_bytes: u64,
    pub(super) tree: Option<TreeRef>,
    defaults: Option<Arc<ImageDefaults>>,
}

/// Kernel and initrd.
#[derive(Debug, Clone)]
struct BootFiles {
    kernel: PathBuf,
    initrd: PathBuf,
}

impl VerifiedImage {
    /// Absolute path of the ELF kernel; for `-kernel`. A pulled image has none while no image is
    /// built.
    pub fn kernel(&self) -> Option<&Path> {
        self.boot.as_ref().map(|boot| boot.kernel.as_path())
    }

    /// Absolute path of the initrd; for `-initrd`.
    pub fn initrd(&self) -> Option<&Path> {
        self.boot.as_ref().map(|boot| boot.initrd.as_path())
    }

    /// Defaults of commands; `None` for images that were built here.
    pub fn defaults(&self) -> Option<&ImageDefaults> {
        self.defaults.as_deref()
    }

    /// Path of the raw ext4 file that overlays are based on. Open it read-only.
    pub fn rootfs(&self) -> &Path {
        &self.rootfs
    }

    /// Minimum disk size of a workspace of this image, in GiB.
    pub fn min_disk_gb(&self) -> u64 {
        self.rootfs_bytes.div_ceil(1 << 30)
    }
}

/// Metadata stamp that identifies a file's state without reading it. A program cannot set the
/// change time back, so a file that was written to has another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// Cache, for the life of the process, of checked files and their stamps.
#[derive(Debug, Default)]
pub(super) struct Verified {
    seen: DashMap<PathBuf, (Stamp, ContentHash)>,
}

impl Verified {
    /// Checks the three files that a VM is started from. Blocks; takes microseconds for files that
    /// were checked before and are unchanged.
    pub(super) fn image(&self, objects: &Objects, manifest: Manifest) -> Result<VerifiedImage> {
        let name = manifest.name;
        Ok(VerifiedImage {
            boot: Some(BootFiles {
                kernel: self.object(objects, &manifest.kernel, &name)?,
                initrd: self.object(objects, &manifest.initrd, &name)?,
            }),
            rootfs: self.object(objects, &manifest.rootfs_ext4, &name)?,
            rootfs_bytes: manifest.rootfs_ext4.bytes,
            tree: manifest.rootfs_tree,
            defaults: None,
            name,
        })
    }

    /// Checks the disk of a pulled image, and the kernel and initrd of the image that it boots
    /// with. Blocks.
    pub(super) fn pulled(
        &self,
        objects: &Objects,
        image: PulledImage,
        boot: Option<Manifest>,
    ) -> Result<VerifiedImage> {
        let boot = boot.map(|boot| {
            Ok(BootFiles {
                kernel: self.object(objects, &boot.kernel, &boot.name)?,
                initrd: self.object(objects, &boot.initrd, &boot.name)?,
            })
        });
        Ok(VerifiedImage {
            boot: boot.transpose()?,
            rootfs: self.object(objects, &image.rootfs_ext4, &image.name)?,
            rootfs_bytes: image.rootfs_ext4.bytes,
            tree: Some(image.rootfs_tree),
            defaults: Some(Arc::new(image.defaults)),
            name: image.name,
        })
    }

    /// Checks one object and returns its path.
    pub(super) fn object(
        &self,
        objects: &Objects,
        object: &ObjectRef,
        image: &ImageName,
    ) -> Result<PathBuf> {
        let path = objects.path(object);
        let stamp = stamp(&path, image)?;
        if self.knows(&path, stamp, object.hash) {
            return Ok(path);
        }
        let found = ContentHash::of_file(&path)?;
        if found != object.hash {
            return Err(Error::Corrupt {
                path,
                expected: object.hash,
                found,
                remedy: remedy(image),
            });
        }
        self.seen.insert(path.clone(), (stamp, found));
        Ok(path)
    }

    /// Checks a tree object and returns its directory. All files are read the first time; later the
    /// list's stamp stands for the tree, which nothing but this store writes.
    pub(super) fn tree(
        &self,
        objects: &Objects,
        reference: &TreeRef,
        image: &ImageName,
    ) -> Result<PathBuf> {
        let tree = objects.tree_path(reference);
        let entries = objects.entries_path(reference);
        let list_stamp = stamp(&entries, image)?;
        stamp(&tree, image)?;
        if self.knows(&entries, list_stamp, reference.hash) {
            return Ok(tree);
        }
        tree::verify(&tree, &entries, reference).map_err(|error| match error {
            Error::Corrupt { path, expected, found, .. } => {
                Error::Corrupt { path, expected, found, remedy: remedy(image) }
            }
            other => other,
        })?;
        self.seen.insert(entries, (list_stamp, reference.hash));
        Ok(tree)
    }

    fn knows(&self, path: &Path, stamp: Stamp, hash: ContentHash) -> bool {
        self.seen.get(path).is_some_and(|known| *known == (stamp, hash))
    }
}

fn stamp(path: &Path, image: &ImageName) -> Result<Stamp> {
    match Stamp::of(path) {
        Ok(stamp) => Ok(stamp),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::missing(image, path.display().to_string()))
        }
        Err(error) => Err(Error::io("stat", path)(error)),
    }
}
