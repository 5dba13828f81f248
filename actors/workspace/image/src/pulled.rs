//! Pulled images: manifests of container images, kept beside those of built ones.
//!
//! A pulled image has no kernel of its own: a machine boots it with the kernel and the initrd of
//! `base`, or else of `debian`, and so always with the present guest daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::files::write_durably;
use super::{Error, ImageName, ObjectRef, Result, TreeRef};

/// Version of the format, raised when a field changes its meaning.
pub(super) const FORMAT: u32 = 1;

/// Defaults of a workspace's commands, as the image gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageDefaults {
    /// Environment.
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
    /// User.
    pub uid: u32,
    /// Group.
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
        if image.format != FORMAT {
            let format = image.format;
            return Err(refuse(format!("it has format {format}, this version reads {FORMAT}")));
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
