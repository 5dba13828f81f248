//! Programs and packages that the daemon, its images and its tests need from the machine.

use std::path::Path;
use std::process::{Command, Stdio};

use super::distribution::Distribution;

/// A program or file and the Debian package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetupNeed {
    /// A program's name, a file's absolute path, or `python3 -m` and a module's name.
    pub(crate) what: &'static str,
    pub(crate) package: &'static str,
    pub(crate) purpose: &'static str,
}

const fn need(what: &'static str, package: &'static str, purpose: &'static str) -> SetupNeed {
    SetupNeed { what, package, purpose }
}

/// Debian 13's names of packages; [`Distribution::package`] knows others.
pub(super) const NEEDS: [SetupNeed; 30] = [
    need("qemu-system-x86_64", "qemu-system-x86", "workspaces in virtual machines"),
    need("qemu-img", "qemu-utils", "workspace disks"),
    need("/usr/lib/qemu/virtiofsd", "virtiofsd", "volumes of virtual machines"),
    need("bwrap", "bubblewrap", "sandboxed workspaces"),
    need("/usr/lib/chromium/chromium", "chromium", "browser sessions"),
    // Chromium's only need that it does not bring: a page without a font has no text.
    need(
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "fonts-dejavu-core",
        "browser sessions",
    ),
    need("newuidmap", "uidmap", "sandboxes of a daemon that is not root"),
    need("nft", "nftables", "workspace networks"),
    need("ip", "iproute2", "workspace networks"),
    need("mke2fs", "e2fsprogs", "building images"),
    need("debugfs", "e2fsprogs", "building images"),
    need("dpkg-deb", "dpkg", "building images"),
    need("mmdebstrap", "mmdebstrap", "building the debian image"),
    need(
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        "debian-archive-keyring",
        "building images from signed packages",
    ),
    need("cc", "build-essential", "linking"),
    // A machine may have a compiler and no make.
    need("make", "build-essential", "building the allocator"),
    need("git", "git", "the tests' repositories"),
    need("busybox", "busybox-static", "the tests of sandboxes"),
    need("curl", "curl", "the tests of the guides"),
    need("jq", "jq", "the tests of the guides"),
    need("setpriv", "util-linux", "the tests of unprivileged machines"),
    need("skopeo", "skopeo", "the tests of container images"),
    need("umoci", "umoci", "the tests of container images"),
    need("docker-registry", "docker-registry", "the tests of container images"),
    need("openssl", "openssl", "the tests of container images and of E2B's SDKs"),
    need("setcap", "libcap2-bin", "the tests of container images"),
    need("influxd", "influxdb", "the tests of metrics"),
    need("patch", "patch", "the baseline of edits in the tests"),
    need("rg", "ripgrep", "the baseline of searches in the tests and the bench"),
    // Debian takes this module out of python3; without it no environment gets its pip.
    need("python3 -m ensurepip", "python3-venv", "the tests with the official clients"),
];

/// Packages of the demo with virtual machines.
const DEMO_MACHINES: [&str; 7] = [
    "build-essential",
    "debian-archive-keyring",
    "dpkg",
    "e2fsprogs",
    "git",
    "qemu-system-x86",
    "qemu-utils",
];
/// Packages of the demo with sandboxes.
const DEMO_SANDBOXES: [&str; 5] = ["bubblewrap", "build-essential", "e2fsprogs", "git", "uidmap"];

/// Needs of the demo.
pub(super) fn for_demo(virtual_machines: bool) -> Vec<SetupNeed> {
    let packages = if virtual_machines { &DEMO_MACHINES[..] } else { &DEMO_SANDBOXES };
    NEEDS.into_iter().filter(|need| packages.contains(&need.package)).collect()
}

/// Needs that this machine lacks.
pub(crate) fn missing() -> Vec<SetupNeed> {
    missing_of(&NEEDS)
}

/// Needs among these that this machine lacks.
pub(super) fn missing_of(needs: &[SetupNeed]) -> Vec<SetupNeed> {
    let here = Distribution::here();
    let lacks = |need: &&SetupNeed| here.has(need.package) && !present(need.what);
    needs.iter().filter(lacks).copied().collect()
}

/// Their packages, each once.
pub(crate) fn packages(needs: &[SetupNeed]) -> Vec<&'static str> {
    let here = Distribution::here();
    let mut packages: Vec<_> = needs.iter().map(|need| here.package(need.package)).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Names of the needs, for people.
pub(super) fn names(needs: &[SetupNeed]) -> String {
    needs.iter().map(|need| need.what).collect::<Vec<_>>().join(", ")
}

fn present(what: &str) -> bool {
    match what.strip_prefix(PYTHON) {
        Some(module) => imported(module),
        None if what.starts_with('/') => Path::new(what).exists(),
        None => program(what),
    }
}

/// Prefix of a need for a Python module.
const PYTHON: &str = "python3 -m ";

/// True when the python in the path has a module.
fn imported(module: &str) -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", &format!("import {module}")]).stdin(Stdio::null());
    python.stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// True when a program is in the path, or in the folders that only root's path has.
pub(crate) fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administration = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(administration).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_is_seen_and_packages_are_named_once() {
        assert!(program("sh") && present("/etc/passwd"));
        assert!(!program("a-program-that-nobody-has") && !present("/a/file/that/nobody/has"));
        assert!(!present("python3 -m a_module_that_nobody_has"));
        assert_eq!(present("python3 -m this"), program("python3"));
        let disks: Vec<SetupNeed> =
            NEEDS.into_iter().filter(|need| need.package == "e2fsprogs").collect();
        assert!(disks.len() > 1);
        assert_eq!(packages(&disks), ["e2fsprogs"]);
        for (machines, named) in [(true, &DEMO_MACHINES[..]), (false, &DEMO_SANDBOXES)] {
            let mut wanted: Vec<_> = for_demo(machines).iter().map(|need| need.package).collect();
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(wanted, named);
        }
    }
}
