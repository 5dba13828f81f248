//! Adoption of a tree: an unpacked container image becomes an image of the store.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use chrono::Utc;
use hivekeep_kernel::fault_point;
use tokio_util::sync::CancellationToken;

use crate::build::make_ext4;
use crate::manifest::PULLED_FORMAT;
use crate::store::Inner;
use crate::tree::{List, Owners};
use crate::{FileOwner, ImageDefaults, ImageName, ImageStore, PulledImage, PulledName, Result};

/// Tree that shall become an image.
#[derive(Debug)]
pub struct TreeAdoption {
    /// Name to be.
    pub name: PulledName,
    /// See [`PulledImage`].
    pub reference: String,
    /// See [`PulledImage`].
    pub digest: Option<String>,
    /// See [`PulledImage`].
    pub defaults: ImageDefaults,
    /// See [`PulledImage`].
    pub devices_left_out: u64,
    /// See [`PulledImage`].
    pub xattrs_left_out: u64,
    /// Folder of the work, with the tree in it; below the store's folder of unfinished work.
    pub work: PathBuf,
    /// The tree.
    pub tree: PathBuf,
    /// Owners and capabilities of what is not plainly root's, by path.
    pub owners: HashMap<String, FileOwner>,
}

/// Makes an image of a tree; see [`ImageStore::adopt`].
pub(super) async fn adopt(
    store: &ImageStore,
    adoption: TreeAdoption,
    cancel: &CancellationToken,
) -> Result<PulledImage> {
    let owners = Owners::Listed(adoption.owners.clone());
    let made = make_ext4(store, &adoption.tree, &owners, &adoption.work, cancel).await?;
    fault_point!("image.after_disk");
    store.blocking(move |inner| finish(inner, adoption, &made.0, &made.1)).await
}

fn finish(inner: &Inner, adoption: TreeAdoption, ext4: &Path, list: &List) -> Result<PulledImage> {
    // Each reads and syncs hundreds of megabytes.
    let (disk, tree) = std::thread::scope(|both| {
        let disk = both.spawn(|| inner.objects.put_file(ext4, "rootfs.ext4", None));
        let tree = inner.objects.put_tree(&adoption.tree, list);
        (disk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), tree)
    });
    let image = PulledImage {
        format: PULLED_FORMAT,
        name: ImageName::Pulled(adoption.name),
        reference: adoption.reference,
        digest: adoption.digest,
        pulled_at: Utc::now(),
        rootfs_ext4: disk?,
        rootfs_tree: tree?,
        defaults: adoption.defaults,
        devices_left_out: adoption.devices_left_out,
        xattrs_left_out: adoption.xattrs_left_out,
    };
    fault_point!("image.before_manifest");
    image.save(&inner.manifest_path(&image.name))?;
    fault_point!("image.after_manifest");
    Ok(image)
}
