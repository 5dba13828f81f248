//! Manifests: of an image, the objects of it, as stored in `images/<name>.json`; and of container images that were
//! pulled, kept beside those.
//!
//! A pulled image has no kernel of its own: a machine boots it with the kernel and the initrd of `base`, or else of
//! `debian`, and so always with the present guest daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::files::write_durably;
use crate::{ContentHash, Error, ImageName, KernelChoice, Result, Suite};

/// Version of the format, raised when a field changes its meaning; a manifest of another format is
/// refused.
const FORMAT: u32 = 1;

/// File in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// BLAKE3 of the content, and the name of the object's folder.
    pub hash: ContentHash,
    /// Name of the file in that folder.
    pub file: String,
    /// Length of the content in bytes; a sparse file takes less on disk.
    pub bytes: u64,
    /// Version of the file's content, where it has one (the kernel's release).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Directory in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeRef {
    /// BLAKE3 of `entries.jsonl`, which lists every path with type, mode, owner and content hash.
    pub hash: ContentHash,
    /// Number of files, directories and links.
    pub entries: u64,
    /// Sum of the file sizes in bytes.
    pub bytes: u64,
}

/// Debian package that went into the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Version that was installed.
    pub version: String,
}

/// Manifest of an image: its objects, and what they were made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub(super) format: u32,
    /// Name of the image; the same as the file's.
    pub name: ImageName,
    /// Time when the objects were last put together.
    pub built_at: DateTime<Utc>,
    /// Kernel: an ELF with a PVH entry.
    pub kernel: ObjectRef,
    /// Origin of the kernel.
    pub kernel_choice: KernelChoice,
    /// Modules of the kernel and their load order, as the part of the initrd that outlives a change
    /// of the guest binary.
    pub modules: ObjectRef,
    /// Initrd: the guest daemon as `/init`, and the modules.
    pub initrd: ObjectRef,
    /// Root filesystem: raw ext4, sparse.
    pub rootfs_ext4: ObjectRef,
    /// Root filesystem as a directory, for the sandbox's read-only lower layer.
    pub rootfs_tree: Option<TreeRef>,
    /// BLAKE3 of the guest binary inside the initrd.
    pub guest_hash: ContentHash,
    /// Suite that the packages came from.
    pub debian_suite: Suite,
    /// Packages that went in, sorted by name.
    pub packages: Vec<Package>,
    /// Hash of everything but the guest binary that decides the result of a build. Differs from the
    /// current one when a newer hivekeep would build the image differently.
    pub recipe: ContentHash,
    /// Part of the recipe that decides the kernel, so images can share one.
    pub kernel_recipe: ContentHash,
}

impl Manifest {
    pub(super) const FORMAT: u32 = FORMAT;

    /// Reads and checks a manifest. `Ok(None)` when there is no such file. Blocks.
    pub(super) fn load(path: &Path, name: &ImageName) -> Result<Option<Self>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path)(error)),
        };
        let refuse = |reason: String| Error::Manifest { path: path.to_path_buf(), reason };
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(refuse(format!(
                "it has format {}, this version reads format {FORMAT}; run: hivekeep image build {name}",
                manifest.format
            )));
        }
        if manifest.name != *name {
            return Err(refuse(format!("it describes image `{}`", manifest.name)));
        }
        for object in [&manifest.kernel, &manifest.modules, &manifest.initrd, &manifest.rootfs_ext4]
        {
            if object.file.contains('/') || object.file.starts_with('.') {
                return Err(refuse(format!("`{}` is not a file name", object.file)));
            }
        }
        Ok(Some(manifest))
    }

    /// Writes the manifest in one step: readers see the old one or this one. Blocks.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a manifest has no map with keys that are not text");
        text.push('\n');
        write_durably(path, text.as_bytes())
    }
}

/// Version of the format, raised when a field changes its meaning.
pub(super) const PULLED_FORMAT: u32 = 1;

/// Defaults of a workspace's commands, as the image gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageDefaults {
    /// Variables by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// User, `NAME|ID[:GROUP|ID]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// True where commands run as that user. Images that were pulled by earlier versions, and the
    /// workspaces made from them, keep root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub user_applies: bool,
    /// Working directory, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Program and its first arguments. Recorded; nothing is started by itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments, or the program where there is no entry point. Recorded as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// Owner of an entry of a tree, and what only root could put on a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FileOwner {
    /// User id in the image; 0 is root.
    pub uid: u32,
    /// Group id in the image; 0 is root's.
    pub gid: u32,
    /// Attribute `security.capability` in hexadecimal digits.
    pub capability: Option<String>,
}

/// Manifest of a pulled image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulledImage {
    pub(super) format: u32,
    /// Name of the image.
    pub name: ImageName,
    /// Where it came from, as it was asked for.
    pub reference: String,
    /// Digest of its manifest or index, where it came with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Time of the pull.
    pub pulled_at: DateTime<Utc>,
    /// Root filesystem: raw ext4, sparse.
    pub rootfs_ext4: ObjectRef,
    /// Root filesystem as a directory.
    pub rootfs_tree: TreeRef,
    /// Defaults of commands.
    pub defaults: ImageDefaults,
    /// Number of devices and pipes below `dev/` that the tree does not have.
    #[serde(default)]
    pub devices_left_out: u64,
    /// Number of extended attributes that the tree does not have.
    #[serde(default)]
    pub xattrs_left_out: u64,
}

impl PulledImage {
    /// Reads and checks a manifest. `Ok(None)` when there is no such file. Blocks.
    pub(super) fn load(path: &Path, name: &ImageName) -> Result<Option<Self>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path)(error)),
        };
        let refuse = |reason: String| Error::Manifest { path: path.to_path_buf(), reason };
        let image: Self =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        if image.format != PULLED_FORMAT {
            let format = image.format;
            return Err(refuse(format!(
                "it has format {format}, this version reads {PULLED_FORMAT}"
            )));
        }
        if image.name != *name {
            return Err(refuse(format!("it describes image `{}`", image.name)));
        }
        if image.rootfs_ext4.file.contains('/') || image.rootfs_ext4.file.starts_with('.') {
            return Err(refuse(format!("`{}` is not a file name", image.rootfs_ext4.file)));
        }
        Ok(Some(image))
    }

    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest is plain data");
        text.push('\n');
        write_durably(path, text.as_bytes())
    }
}
