//! Builder of the kernel and its modules, as objects.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::full::Workshop;
use super::modules::{self, WANTED};
use super::{initrd, small, vmlinux};
use crate::{ContentHash, Error, KernelChoice, ObjectRef, Package, Result, Suite};

/// Kernel in the store.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) kernel: ObjectRef,
    pub(super) modules: ObjectRef,
    /// Package that it came from.
    pub(super) package: Package,
}

/// Hash of everything that decides which kernel a build makes, except new package versions.
pub(super) fn recipe(choice: KernelChoice, suite: Suite) -> ContentHash {
    let extra = match choice {
        KernelChoice::Debian => WANTED.join(","),
        KernelChoice::Small => small::FRAGMENT.to_owned(),
    };
    ContentHash::of(format!("kernel 1\n{choice}\n{suite}\n{extra}").as_bytes())
}

/// Fetches Debian's cloud kernel: downloaded, unpacked, the ELF extracted from its bzImage.
pub(super) async fn debian(shop: &Workshop<'_>, apt: &Apt<'_>) -> Result<Kernel> {
    const META: &str = "linux-image-cloud-amd64";
    let depends = apt.depends(META).await?;
    let name = depends.iter().find(|name| name.starts_with("linux-image-")).ok_or_else(|| {
        Error::Kernel {
            reason: format!(
                "package {META} names no kernel (it depends on: {})",
                depends.join(", ")
            ),
        }
    })?;
    let deb = apt.download(&[name.as_str()]).await?.remove(0);
    let folder = shop.work.join("kernel");
    apt.unpack(&deb, &folder).await?;
    let package = deb.package.clone();
    shop.store
        .blocking(move |inner| {
            let (image, release) = boot_image(&folder)?;
            let bytes = fs::read(&image).map_err(Error::io("read", &image))?;
            let chosen = modules::select(&module_folder(&folder, &release)?, &WANTED)?;
            Ok(Kernel {
                kernel: inner.objects.put_bytes(
                    &vmlinux::extract(&bytes)?,
                    "vmlinux",
                    Some(release.clone()),
                )?,
                modules: inner.objects.put_bytes(
                    &initrd::modules_part(&chosen),
                    "modules.cpio",
                    Some(release),
                )?,
                package,
            })
        })
        .await
}

/// Compiles the small kernel: everything is built in, so its list of modules is empty.
pub(super) async fn small(shop: &Workshop<'_>, apt: &Apt<'_>) -> Result<Kernel> {
    let compiled = small::compile(shop, apt).await?;
    shop.store
        .blocking(move |inner| {
            let bytes =
                fs::read(&compiled.vmlinux).map_err(Error::io("read", &compiled.vmlinux))?;
            vmlinux::check(&bytes)?;
            let release = Some(compiled.release);
            Ok(Kernel {
                kernel: inner.objects.put_bytes(&bytes, "vmlinux", release.clone())?,
                modules: inner.objects.put_bytes(
                    &initrd::modules_part(&[]),
                    "modules.cpio",
                    release,
                )?,
                package: compiled.package,
            })
        })
        .await
}

/// Path and release of the one `boot/vmlinuz-<release>` of an unpacked kernel package.
fn boot_image(folder: &Path) -> Result<(PathBuf, String)> {
    let boot = folder.join("boot");
    for entry in fs::read_dir(&boot).map_err(Error::io("list", &boot))? {
        let entry = entry.map_err(Error::io("list", &boot))?;
        let file = entry.file_name();
        if let Some(release) = file.to_str().and_then(|name| name.strip_prefix("vmlinuz-")) {
            return Ok((entry.path(), release.to_owned()));
        }
    }
    Err(Error::Kernel { reason: "its package does not contain boot/vmlinuz-*".to_owned() })
}

/// Folder of the modules; Debian 13 has it below `usr`.
fn module_folder(folder: &Path, release: &str) -> Result<PathBuf> {
    ["lib/modules", "usr/lib/modules"]
        .map(|place| folder.join(place).join(release))
        .into_iter()
        .find(|path| path.is_dir())
        .ok_or_else(|| Error::Kernel {
            reason: format!("its package does not contain lib/modules/{release}"),
        })
}
