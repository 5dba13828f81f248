//! Workspace disks, cloned from a cached template: an empty qcow2 per image and size.
//!
//! `qemu-img create` costs about 30 ms, nearly all of it the start of the process; a copy of its
//! result takes a fraction of a millisecond.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::build::run::{run, tool};
use super::files::temp_beside;
use super::store::ImageStore;
use super::{ContentHash, Error, Result, VerifiedImage};

/// Maximum disk size in GiB: what the filesystem's reserved descriptor blocks can grow to.
pub const MAX_DISK_GB: u64 = 1024;

/// Creates an overlay; see [`ImageStore::overlay`].
pub(super) async fn create(
    store: &ImageStore,
    image: &VerifiedImage,
    path: &Path,
    disk_gb: u64,
) -> Result<()> {
    let min_gb = image.min_disk_gb();
    if !(min_gb..=MAX_DISK_GB).contains(&disk_gb) {
        return Err(Error::DiskSize {
            image: image.name.clone(),
            asked_gb: disk_gb,
            min_gb,
            max_gb: MAX_DISK_GB,
        });
    }
    let template = template_path(store, image, disk_gb);
    if !template.exists() {
        make_template(&template, image.rootfs(), disk_gb).await?;
    }
    let path = path.to_path_buf();
    store.blocking(move |_| copy_new(&template, &path)).await
}

/// Path of the template. Its key covers the base's path, so a store that was moved makes its
/// templates again.
fn template_path(store: &ImageStore, image: &VerifiedImage, disk_gb: u64) -> PathBuf {
    let key = ContentHash::of(image.rootfs().as_os_str().as_encoded_bytes()).to_string();
    store.root().join("overlays").join(format!("{}-{disk_gb}g.qcow2", &key[..16]))
}

async fn make_template(template: &Path, base: &Path, disk_gb: u64) -> Result<()> {
    let temp = temp_beside(template);
    let mut command = Command::new(tool("qemu-img")?);
    command
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .arg(base)
        .arg(&temp)
        .arg(format!("{disk_gb}G"));
    let made = run(command, Duration::from_secs(30), &CancellationToken::new()).await;
    let finish = async {
        made?;
        let template = template.to_path_buf();
        let temp = temp.clone();
        tokio::task::spawn_blocking(move || publish(&temp, &template))
            .await
            .map_err(|_| Error::Cancelled)?
    };
    let result = finish.await;
    if result.is_err() {
        // Best effort: the sweep at the next open removes it.
        let _ = tokio::fs::remove_file(&temp).await;
    }
    result
}

fn publish(temp: &Path, template: &Path) -> Result<()> {
    hivekeep_fs::sync_file(temp).map_err(Error::io("sync", temp))?;
    // Two concurrent makers produce the same content; the later rename wins.
    hivekeep_fs::rename(temp, template).map_err(Error::io("rename", template))
}

fn copy_new(template: &Path, path: &Path) -> Result<()> {
    let temp = temp_beside(path);
    let copy = || {
        fs::copy(template, &temp).map_err(Error::io("copy", &temp))?;
        hivekeep_fs::sync_file(&temp).map_err(Error::io("sync", &temp))?;
        hivekeep_fs::rename_new(&temp, path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                Error::OverlayExists { path: path.to_path_buf() }
            } else {
                Error::io("rename", path)(error)
            }
        })
    };
    let copied = copy();
    if copied.is_err() {
        // The name is used here only, and nothing else would remove it.
        let _ = fs::remove_file(&temp);
    }
    copied
}
