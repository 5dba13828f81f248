//! Lookup of the images that a workspace boots from, and of the base of its disk.

use std::path::PathBuf;

use hivekeep_image::{ImageDefaults, ImageName, ImageStore, VerifiedImage};
use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_machine::{Images, Isolation};
use hivekeep_oci::{ImagePuller, PullProgress};

use crate::{codes, handle::WorkspaceHandle, records::Planned};

/// Base of a new disk and its image's defaults, to be recorded.
#[derive(Debug, Clone)]
pub(crate) struct DiskBase {
    pub(crate) base: PathBuf,
    pub(crate) defaults: Option<ImageDefaults>,
}

/// Images to boot from. The first start decides about the base of the disk, which is returned to be
/// recorded; later starts must find that base again, whatever image is current by then. An image
/// that is not on this host is pulled for the first start, where the policy allows it.
pub(crate) async fn images(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    base: Option<PathBuf>,
    cx: &CallCx,
) -> Result<(Images, Option<DiskBase>), ToolError> {
    let name = image_name(&plan.spec.image)?;
    let store = &workspace.shared.images;
    let first = base.is_none();
    let image = match first {
        true => {
            let tell =
                |step: PullProgress| cx.progress.report(share(&step), Some(4.0), text(&step));
            workspace.shared.puller.ensure(&name, &tell, &cx.cancel).await?
        }
        false => store.resolve(name.clone()).await?,
    };
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
    if vm && image.kernel().is_none() {
        return Err(no_kernel(&name));
    }
    let user = format!("{}.{}", workspace.shared.image_user(), workspace.id);
    store.hold(base.clone(), user).await?;
    let made = first.then(|| DiskBase { base: base.clone(), defaults: image.defaults().cloned() });
    Ok((of(&image, base, vm), made))
}

fn of(image: &VerifiedImage, base: PathBuf, vm: bool) -> Images {
    Images {
        kernel: image.kernel().map(Into::into),
        initrd: image.initrd().map(Into::into),
        rootfs_ext4: vm.then(|| base.clone()),
        rootfs_tree: (!vm).then_some(base),
    }
}

fn no_kernel(name: &ImageName) -> ToolError {
    let message = format!("image {name} boots with the kernel of base, which is not built");
    ToolError::new(Layer::Machine, codes::IMAGE_MISSING, message)
        .next("run: hivekeep image build base")
}

/// Progress of a pull as a part of the start's first step.
fn share(step: &PullProgress) -> f64 {
    match step {
        PullProgress::Waiting => 0.01,
        #[expect(clippy::cast_precision_loss, reason = "it is shown")]
        PullProgress::Fetching { bytes, total } => {
            0.02 + 0.6 * (*bytes as f64 / (*total).max(1) as f64).min(1.0)
        }
        // How much there is to unpack is not known.
        #[expect(clippy::cast_precision_loss, reason = "it is shown")]
        PullProgress::Unpacking { bytes } => {
            let mb = (*bytes >> 20) as f64;
            0.65 + 0.2 * mb / (mb + 500.0)
        }
        PullProgress::Storing => 0.9,
    }
}

fn text(step: &PullProgress) -> String {
    match step {
        PullProgress::Waiting => "waiting for another build or pull of an image".to_owned(),
        PullProgress::Fetching { bytes, total } => {
            format!("pulling the image: {} of {} MiB", bytes >> 20, total >> 20)
        }
        PullProgress::Unpacking { bytes } => format!("unpacking the image: {} MiB", bytes >> 20),
        PullProgress::Storing => "making the image's disk".to_owned(),
    }
}

/// The recorded base, or the same object in the images folder that is used now.
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

/// Parses the name of an image.
///
/// # Errors
/// `image_unknown` for an invalid name, `image_reference` for an invalid reference.
pub(crate) fn image_name(text: &str) -> Result<ImageName, ToolError> {
    ImagePuller::name_of(text).map_err(|error| match error {
        hivekeep_oci::Error::Store(_) => unknown_image(text),
        other => other.into(),
    })
}

fn unknown_image(name: &str) -> ToolError {
    ToolError::not_found(Layer::Machine, codes::IMAGE_UNKNOWN, "image", name)
        .next("`hivekeep image list` shows the images; `hivekeep image build base` makes one")
}
