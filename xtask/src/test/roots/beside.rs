//! A machine whose `qemu-utils` fits no QEMU of its archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::root::{Root, User};

/// Newer than any that a Debian 12 has, and as unfriendly to it as backports' was.
const VERSION: &str = "1:99.0+beside";
const CONTROL: &str = "\
Package: qemu-utils
Source: qemu
Version: 1:99.0+beside
Architecture: amd64
Maintainer: Nobody <nobody@localhost>
Breaks: qemu-system-common (<< 1:99.0~)
Description: stands in for one of another version
";
const LIST: &str = "etc/apt/sources.list.d/beside.list";

/// Takes QEMU and more from a machine that is set up, gives it a `qemu-utils` of
/// another version, and sets it up: with the source of that version still known,
/// as nobody, and then with the source gone, as root.
pub(super) fn a_version_from_elsewhere(root: &Root) -> Result<()> {
    publish(root)?;
    let apt = |arguments: &[&str]| {
        root.command(&[&["apt-get", "-q", "-y"], arguments].concat(), User::Root)?.done()
    };
    apt(&["remove", "qemu-system-x86", "qemu-system-common", "bubblewrap", "ripgrep"])?;
    // The archive's lists stay as they are.
    let only = ["-oDir::Etc::SourceList=/dev/null", "-oAPT::Get::List-Cleanup=0"];
    apt(&[only[0], only[1], "update"])?;
    apt(&["install", &format!("qemu-utils={VERSION}")])?;
    ensure!(version(root, "qemu-utils")? == VERSION, "the machine is not as it was to be");

    let told = root.setup(&[], User::Nobody)?.refused()?;
    let downgrade = format!("apt-get downgrades qemu-utils from {VERSION} to ");
    for needed in ["sudo sh -c 'apt-get update;", "--allow-downgrades", " qemu-utils=", &downgrade]
    {
        ensure!(told.contains(needed), "nobody is not told `{needed}`: {told}");
    }
    fs::remove_file(root.path(LIST))?;
    let told = root.setup(&[], User::Root)?.done()?;
    ensure!(told.contains(&downgrade), "the downgrade is not said: {told}");
    ensure!(!told.contains("apt-get removes"), "something was removed: {told}");
    ensure!(!told.contains("once more"), "one transaction was not enough: {told}");
    let versions = [version(root, "qemu-utils")?, version(root, "qemu-system-x86")?];
    ensure!(versions[0] == versions[1], "QEMU is of two versions: {versions:?}");
    root.setup(&["--check"], User::Root)?.done()?;
    Ok(())
}

/// A repository of one package, beside the archive.
fn publish(root: &Root) -> Result<()> {
    let (folder, tree) = (root.path("srv/beside"), root.path("srv/tree"));
    for sub in [folder.clone(), tree.join("DEBIAN"), tree.join("usr/bin")] {
        fs::create_dir_all(sub)?;
    }
    fs::write(tree.join("DEBIAN/control"), CONTROL)?;
    let program = tree.join("usr/bin/qemu-img");
    fs::write(&program, "#!/bin/sh\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let package = folder.join("qemu-utils.deb");
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([&tree, &package])
        .output()
        .context("dpkg-deb")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let hashed = root.command(&["sha256sum", "/srv/beside/qemu-utils.deb"], User::Root)?.done()?;
    let hash = hashed.split(' ').next().unwrap_or_default();
    let size = fs::metadata(&package)?.len();
    let index = format!("{CONTROL}Filename: ./qemu-utils.deb\nSize: {size}\nSHA256: {hash}\n");
    fs::write(folder.join("Packages"), index)?;
    fs::write(root.path(LIST), "deb [trusted=yes] file:/srv/beside ./\n")?;
    Ok(())
}

fn version(root: &Root, package: &str) -> Result<String> {
    root.command(&["dpkg-query", "--show", "--showformat=${Version}", package], User::Root)?.done()
}
