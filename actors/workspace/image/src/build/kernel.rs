//! Builder of the kernel and its modules, as objects, from Debian's package or, small, from its source package.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::apt::Apt;
use super::elf;
use super::full::Workshop;
use super::initrd::{self, WANTED};
use super::run::{run, tool};
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
        KernelChoice::Small => FRAGMENT.to_owned(),
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
            let chosen = initrd::select(&module_folder(&folder, &release)?, &WANTED)?;
            Ok(Kernel {
                kernel: inner.objects.put_bytes(
                    &elf::extract_kernel(&bytes)?,
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
    let compiled = compile(shop, apt).await?;
    shop.store
        .blocking(move |inner| {
            let bytes =
                fs::read(&compiled.vmlinux).map_err(Error::io("read", &compiled.vmlinux))?;
            elf::check(&bytes)?;
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

/// Options switched on over `make tinyconfig`.
const FRAGMENT: &str = include_str!("../../../../../examples/mini-kernel.fragment");

/// Options that a workspace cannot do without. The kernel's configuration drops an option silently
/// when something it depends on is off, so these are checked in the result.
const NEEDED: [&str; 15] = [
    "PVH",
    "VIRTIO_MMIO",
    "VIRTIO_PCI",
    "VIRTIO_BLK",
    "VIRTIO_NET",
    "VIRTIO_CONSOLE",
    "HW_RANDOM_VIRTIO",
    "VIRTIO_VSOCKETS",
    "VSOCKETS_LOOPBACK",
    "EXT4_FS",
    "OVERLAY_FS",
    "VIRTIO_FS",
    "CGROUPS",
    "DEVTMPFS",
    "SERIAL_8250_CONSOLE",
];

const UNPACK_LIMIT: Duration = Duration::from_secs(900);
const CONFIGURE_LIMIT: Duration = Duration::from_secs(900);
const COMPILE_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Compiled kernel, still in the work folder.
pub(super) struct Compiled {
    pub(super) vmlinux: PathBuf,
    pub(super) release: String,
    pub(super) package: Package,
}

/// Downloads the source, configures and compiles it. Takes tens of minutes.
async fn compile(shop: &Workshop<'_>, apt: &Apt<'_>) -> Result<Compiled> {
    const META: &str = "linux-source";
    let depends = apt.depends(META).await?;
    let name = depends
        .iter()
        .find(|name| name.starts_with("linux-source-"))
        .ok_or_else(|| Error::Kernel { reason: format!("package {META} names no source") })?;
    let deb = apt.download(&[name.as_str()]).await?.remove(0);
    let folder = shop.work.join("kernel-source");
    apt.unpack(&deb, &folder).await?;
    let archive = folder.join(format!("usr/src/{name}.tar.xz"));
    let mut tar = Command::new(tool("tar")?);
    tar.arg("-xf").arg(&archive).arg("-C").arg(&folder);
    run(tar, UNPACK_LIMIT, shop.cancel).await?;
    let source = folder.join(name);

    let fragment = source.join("hivekeep.fragment");
    fs::write(&fragment, FRAGMENT).map_err(Error::io("write", &fragment))?;
    make(shop, &source, &["tinyconfig"], CONFIGURE_LIMIT).await?;
    let mut merge = Command::new(source.join("scripts/kconfig/merge_config.sh"));
    merge.args(["-m", ".config", "hivekeep.fragment"]).current_dir(&source);
    run(merge, CONFIGURE_LIMIT, shop.cancel).await?;
    make(shop, &source, &["olddefconfig"], CONFIGURE_LIMIT).await?;
    check_config(&source.join(".config"))?;

    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(shop, &source, &[&format!("-j{jobs}"), "vmlinux"], COMPILE_LIMIT).await?;
    let release = make(shop, &source, &["-s", "kernelrelease"], CONFIGURE_LIMIT).await?;
    Ok(Compiled {
        vmlinux: source.join("vmlinux"),
        release: release.trim().to_owned(),
        package: deb.package,
    })
}

async fn make(
    shop: &Workshop<'_>,
    source: &Path,
    args: &[&str],
    limit: Duration,
) -> Result<String> {
    let mut make = Command::new(tool("make")?);
    make.args(args).current_dir(source);
    // Reproducible build: the same source gives the same kernel, wherever and whenever it is
    // compiled.
    make.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01")
        .env("KBUILD_BUILD_USER", "hivekeep")
        .env("KBUILD_BUILD_HOST", "hivekeep");
    run(make, limit, shop.cancel).await
}

fn check_config(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let set: HashMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let lost: Vec<_> = NEEDED
        .iter()
        .filter(|option| set.get(format!("CONFIG_{option}").as_str()) != Some(&"y"))
        .copied()
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Error::Kernel { reason: format!("this source's configuration drops {}", lost.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fragment_asks_for_all_that_is_needed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), FRAGMENT).unwrap();
        check_config(file.path()).unwrap();
    }

    #[test]
    fn a_dropped_option_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), FRAGMENT.replace("CONFIG_OVERLAY_FS=y\n", "")).unwrap();
        let error = check_config(file.path()).unwrap_err();
        assert!(
            matches!(&error, Error::Kernel { reason } if reason.ends_with("drops OVERLAY_FS")),
            "{error}"
        );
    }
}
