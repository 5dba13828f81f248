//! Compiler of the small kernel from Debian's source package.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::apt::Apt;
use super::full::Workshop;
use super::run::{run, tool};
use crate::{Error, Package, Result};

/// Options switched on over `make tinyconfig`.
pub(super) const FRAGMENT: &str = include_str!("../../../../../examples/mini-kernel.fragment");

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
pub(super) async fn compile(shop: &Workshop<'_>, apt: &Apt<'_>) -> Result<Compiled> {
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
