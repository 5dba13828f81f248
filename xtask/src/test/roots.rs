//! `setup --packages-only` on machines that are not this one: root file systems that
//! mmdebstrap makes below the target folder, from this machine's sources.
//!
//! - Debian 12 and Debian 13 with nothing but apt. The packages are the archive's, and
//!   they are really installed: so their names, and that they bring what is looked for.
//! - Debian 12 with a `qemu-utils` that breaks the archive's QEMU, once from a repository
//!   beside the archive and once from none: what apt solves by removing it.
//!
//! This program is copied into them and runs under chroot, so what it proves is said of
//! it as it was built here. A root file system has no kernel of its own: nothing is said of
//! virtual machines there. Ubuntu's archive is not part of it.

mod archive;
mod beside;
mod root;

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};

use self::archive::Archive;
use self::root::{Root, User};
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};

const PROVEN: &str = "Debian 12 and 13 with nothing, Debian 12 with a qemu-utils from elsewhere; \
    not tried: Ubuntu 24.04, whose archive is no source of this machine";

/// Sets up three machines below cargo's target folder, two at a time.
pub(super) fn check(target: &Path) -> Result<StepOutcome> {
    let archive = match lacking().map_or_else(Archive::of_this_machine, |why| Ok(Err(why)))? {
        Ok(archive) => archive,
        Err(why) => return Ok(StepOutcome::Skipped(why)),
    };
    let folder = target.join("roots");
    fs::create_dir_all(&folder)?;
    let (twelve, thirteen) = thread::scope(|scope| {
        let thirteen = scope.spawn(|| thirteen(&folder, &archive));
        let twelve = twelve(&folder, &archive);
        (twelve, thirteen.join())
    });
    let thirteen = thirteen.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread panicked")));
    let skipped = twelve.context("Debian 12")?.or(thirteen.context("Debian 13")?);
    Ok(skipped.map_or_else(|| passed(PROVEN), StepOutcome::Skipped))
}

/// The things that this machine lacks to make root file systems.
fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a root file system is made and entered as root".to_owned());
    }
    let programs = ["mmdebstrap", "unshare", "timeout", "dpkg-deb", "apt-get"];
    let missing = programs.into_iter().find(|name| !program(name));
    missing.map(|name| format!("{name} is not there: cargo xtask setup"))
}

/// The reason why something did not run; `None` when it ran and holds.
type Skipped = Option<String>;

fn twelve(folder: &Path, archive: &Archive) -> Result<Skipped> {
    let root = match Root::make(folder, "bookworm", archive)? {
        Ok(root) => root,
        Err(why) => return Ok(Some(why)),
    };
    nothing_is_there(&root, "Debian GNU/Linux 12")?;
    beside::a_version_from_elsewhere(&root)?;
    Ok(None)
}

fn thirteen(folder: &Path, archive: &Archive) -> Result<Skipped> {
    let root = match Root::make(folder, "trixie", archive)? {
        Ok(root) => root,
        Err(why) => return Ok(Some(why)),
    };
    nothing_is_there(&root, "Debian GNU/Linux 13")?;
    Ok(None)
}

/// Checks that missing things are named, that one run brings them, that a second finds nothing to
/// do, and that a file deleted behind dpkg's back comes back.
fn nothing_is_there(root: &Root, name: &str) -> Result<()> {
    ensure!(root.read("etc/os-release")?.contains(name), "this is not {name}");
    let told = root.setup(&["--check"], User::Root)?.refused()?;
    for needed in ["qemu-img", "apt-get install bubblewrap", "run `cargo xtask setup`"] {
        ensure!(told.contains(needed), "`setup --check` does not say {needed}: {told}");
    }
    root.setup(&[], User::Root)?.done()?;
    let told = root.setup(&["--check"], User::Nobody)?.done()?;
    ensure!(told.contains("nothing is missing"), "after setup: {told}");
    fs::remove_file(root.path("usr/sbin/nft")).context("nft is not where Debian has it")?;
    let told = root.setup(&[], User::Root)?.done()?;
    ensure!(told.contains("still missing: nft; once more"), "no second round: {told}");
    ensure!(root.path("usr/sbin/nft").exists(), "the second round did not bring nft");
    Ok(())
}
