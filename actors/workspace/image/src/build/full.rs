//! Full build: packages, kernel, root filesystem, initrd, manifest.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::Utc;
use hivekeep_fs::remove_tree;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::apt::Apt;
use super::kernel::{self, Kernel};
use super::{
    BuildRequest, BuildResult, BuildStep, Guest, RebuiltPart, Steps, base, debian, ext4, initrd,
};
use crate::requirements::requirements;
use crate::store::Inner;
use crate::tree::{self, List, Owners};
use crate::{
    ContentHash, Error, ImageName, ImageStore, KernelChoice, Manifest, Package, RequirementPurpose,
    Result, Suite,
};

/// Context of a build's parts.
pub(super) struct Workshop<'a> {
    pub(super) store: &'a ImageStore,
    /// Work folder of this build, removed at its end; after a crash, at the next open.
    pub(super) work: PathBuf,
    pub(super) suite: Suite,
    pub(super) cancel: &'a CancellationToken,
}

/// Builds everything of the image, except a kernel that another image has already.
pub(super) async fn build(
    store: &ImageStore,
    request: &BuildRequest,
    recipe: ContentHash,
    guest: Guest,
    report: &(dyn Fn(BuildStep) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<BuildResult> {
    check_requirements(request)?;
    let work = store.inner.temp().join(format!("build-{}", Uuid::new_v4().simple()));
    fs::create_dir(&work).map_err(Error::io("create", &work))?;
    let shop = Workshop { store, work, suite: request.suite, cancel };
    let mut steps = Steps { report, step: 0, steps: 5 };
    let parts = stages(&shop, &mut steps, request).await;
    let manifest = match parts {
        Ok(_) if cancel.is_cancelled() => Err(Error::Cancelled),
        Ok(parts) => {
            steps.next("initrd and manifest");
            let request = request.clone();
            store.blocking(move |inner| finish(inner, request, recipe, guest, parts)).await
        }
        Err(error) => Err(error),
    };
    let work = shop.work;
    let removed =
        store.blocking(move |_| remove_tree(&work).map_err(Error::io("remove", &work))).await;
    if let Err(error) = removed {
        tracing::warn!(%error, "left for the next open of the store");
    }
    Ok(BuildResult { manifest: manifest?, change: RebuiltPart::All })
}

/// Parts of a full build, ready to go into the store.
struct Parts {
    kernel: Kernel,
    packages: Vec<Package>,
    ext4: PathBuf,
    tree: PathBuf,
    list: List,
}

async fn stages(
    shop: &Workshop<'_>,
    steps: &mut Steps<'_>,
    request: &BuildRequest,
) -> Result<Parts> {
    steps.next(format!("package lists of Debian {}", request.suite));
    let apt = Apt::open(&shop.work.join("apt"), request.suite, shop.cancel).await?;
    steps.next(format!("kernel ({})", request.kernel));
    let kernel = get_kernel(shop, &apt, request).await?;
    steps.next(format!("root filesystem of {}", request.name));
    let (tree, owners, mut packages) = match &request.name {
        ImageName::Debian => debian::make(shop, &debian::PLAIN).await?,
        ImageName::CodeInterpreter => debian::make(shop, &debian::CODE_INTERPRETER).await?,
        // A pulled image is not built.
        ImageName::Base | ImageName::Pulled(_) => base::make(shop, &apt).await?,
    };
    packages.push(kernel.package.clone());
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages.dedup();
    steps.next("ext4 image");
    let (ext4, list) = make_ext4(shop.store, &tree, &owners, &shop.work, shop.cancel).await?;
    Ok(Parts { kernel, packages, ext4, tree, list })
}

fn finish(
    inner: &Inner,
    request: BuildRequest,
    recipe: ContentHash,
    guest: Guest,
    parts: Parts,
) -> Result<Manifest> {
    let modules = inner.objects.path(&parts.kernel.modules);
    let modules = fs::read(&modules).map_err(Error::io("read", &modules))?;
    let initrd = initrd::assemble(&modules, &guest.bytes)?;
    let manifest = Manifest {
        format: Manifest::FORMAT,
        name: request.name.clone(),
        built_at: Utc::now(),
        kernel: parts.kernel.kernel,
        kernel_choice: request.kernel,
        modules: parts.kernel.modules,
        initrd: inner.objects.put_bytes(&initrd, "initrd", None)?,
        rootfs_ext4: inner.objects.put_file(&parts.ext4, "rootfs.ext4", None)?,
        rootfs_tree: Some(inner.objects.put_tree(&parts.tree, &parts.list)?),
        guest_hash: guest.hash,
        debian_suite: request.suite,
        packages: parts.packages,
        recipe,
        kernel_recipe: kernel::recipe(request.kernel, request.suite),
    };
    manifest.save(&inner.manifest_path(&manifest.name))?;
    Ok(manifest)
}

/// Makes the disk of a tree in the work folder. The tree's list comes with it: it was read for that.
pub(crate) async fn make_ext4(
    store: &ImageStore,
    tree: &Path,
    owners: &Owners,
    work: &Path,
    cancel: &CancellationToken,
) -> Result<(PathBuf, List)> {
    let out = work.join("rootfs.ext4");
    let (scanned, owners) = (tree.to_path_buf(), owners.clone());
    let list = store.blocking(move |_| tree::scan(&scanned, &owners)).await?;
    ext4::make(tree, &list, &out, work, cancel).await?;
    Ok((out, list))
}

/// Kernel from the same recipe of another image, or a new one.
async fn get_kernel(shop: &Workshop<'_>, apt: &Apt<'_>, request: &BuildRequest) -> Result<Kernel> {
    let wanted = kernel::recipe(request.kernel, request.suite);
    if !request.refresh {
        let found = shop.store.blocking(move |inner| Ok(shared_kernel(inner, wanted))).await?;
        if let Some(kernel) = found {
            return Ok(kernel);
        }
    }
    match request.kernel {
        KernelChoice::Debian => kernel::debian(shop, apt).await,
        KernelChoice::Small => kernel::small(shop, apt).await,
    }
}

fn shared_kernel(inner: &Inner, wanted: ContentHash) -> Option<Kernel> {
    ImageName::BUILT.iter().find_map(|name| {
        let manifest = inner.manifest(name).ok()??;
        if manifest.kernel_recipe != wanted {
            return None;
        }
        inner.verified.object(&inner.objects, &manifest.kernel, name).ok()?;
        inner.verified.object(&inner.objects, &manifest.modules, name).ok()?;
        let package = manifest.packages.iter().find(|package| {
            ["linux-image-", "linux-source-"].iter().any(|kind| package.name.starts_with(kind))
        })?;
        Some(Kernel {
            package: package.clone(),
            kernel: manifest.kernel,
            modules: manifest.modules,
        })
    })
}

fn check_requirements(request: &BuildRequest) -> Result<()> {
    let wanted = |purpose| match purpose {
        RequirementPurpose::Overlay | RequirementPurpose::Build => true,
        RequirementPurpose::BuildDebian => {
            matches!(request.name, ImageName::Debian | ImageName::CodeInterpreter)
        }
        RequirementPurpose::BuildSmallKernel => request.kernel == KernelChoice::Small,
    };
    match requirements().into_iter().find(|it| wanted(it.purpose) && !it.found) {
        None => Ok(()),
        Some(lacking) => Err(Error::Requirement {
            what: lacking.what.to_owned(),
            remedy: lacking.remedy.to_string(),
        }),
    }
}
