//! Lookup of the images that a workspace boots from, and of the base of its disk.

use std::path::PathBuf;

use hivekeep_image::{ImageName, ImageStore};
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_machine::{Images, Isolation};

use crate::{codes, handle::WorkspaceHandle, records::Planned};

/// What to boot from. The first start decides about the base of the disk, which is returned
/// to be recorded; later ones must find it again, whatever image is current by then.
pub(super) async fn images(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    base: Option<PathBuf>,
) -> Result<(Images, Option<PathBuf>), ToolError> {
    let name: ImageName = plan.spec.image.parse().map_err(|_| unknown_image(&plan.spec.image))?;
    let store = &workspace.shared.images;
    let image = store.resolve(name).await?;
    let first = base.is_none();
    let base = match (base, plan.spec.isolation) {
        (Some(base), _) => find_base(store, base).await?,
        (None, Isolation::Vm) => image.rootfs().to_owned(),
        (None, Isolation::Sandbox) => store.resolve_tree(&image).await?,
    };
    if first && plan.spec.disk_gb < image.min_disk_gb() {
        let (image, least) = (&plan.spec.image, image.min_disk_gb());
        return Err(ToolError::invalid(format!("image {image} needs disk_gb of at least {least}"))
            .detail("least", least));
    }
    let vm = plan.spec.isolation == Isolation::Vm;
    let made = first.then(|| base.clone());
    let images = Images {
        kernel: Some(image.kernel().to_owned()),
        initrd: Some(image.initrd().to_owned()),
        rootfs_ext4: vm.then(|| base.clone()),
        rootfs_tree: (!vm).then_some(base),
    };
    Ok((images, made))
}

/// The base as it is recorded, or the same object in the folder of images that is used now.
async fn find_base(store: &ImageStore, base: PathBuf) -> Result<PathBuf, ToolError> {
    let there = async |path: &PathBuf| tokio::fs::try_exists(path).await.unwrap_or(false);
    if there(&base).await {
        return Ok(base);
    }
    if let Some(same) = store.same_object(&base)
        && there(&same).await
    {
        return Ok(same);
    }
    let message = format!("the base of the workspace's disk is gone: {}", base.display());
    Err(ToolError::new(Layer::Machine, codes::IMAGE_MISSING, message)
        .next("restore the image directory; the workspace's own data is intact"))
}

pub(crate) fn unknown_image(name: &str) -> ToolError {
    ToolError::not_found(Layer::Machine, codes::IMAGE_UNKNOWN, "image", name)
        .next("`hivekeep image list` shows the images; `hivekeep image build base` makes one")
}
