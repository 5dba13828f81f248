//! Requirements of the vsock carriers' tests beside the daemon.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::lane;
use crate::guest;
use crate::repo::{Repo, cargo_home};
use crate::steps::{StepOutcome, passed};

/// The device process whose behaviour the daemon is tested against.
const VERSION: &str = "0.3.0";
/// Share of `the_hosts_vsock_carrier_inside_a_guest`, as tests/vm/table/vm.rs has it.
const PROBED: &str = "2/3";
/// Share of `vsock_carries_the_link`.
const CARRIED: &str = "3/3";

/// Builds the probe, and installs the device process unless it is there, if scenes of this share take
/// them. Without the network for it the test that needs it says that it did not run.
pub(crate) fn prepare(repo: &Repo, share: &str) -> Result<StepOutcome> {
    if [PROBED, lane::ALL].contains(&share) {
        guest::build_vsock_probe(repo)?;
    }
    if ![CARRIED, lane::ALL].contains(&share) {
        return Ok(passed(format!("{share} takes no device process")));
    }
    let (kept, device) = (kept()?, device(repo));
    let program = kept.join("bin/vhost-device-vsock");
    if !program.exists() && !installed(repo, &kept) {
        return Ok(StepOutcome::Skipped(format!(
            "vhost-device-vsock {VERSION} cannot be installed"
        )));
    }
    fs::create_dir_all(device.parent().context("it has a folder")?)?;
    fs::copy(program, &device)?;
    Ok(passed(device.display()))
}

/// The device process, if [`prepare`] could install it. Machines run as users of their own, who do not
/// enter the home of another one.
pub(super) fn device(repo: &Repo) -> PathBuf {
    repo.target.join("tools/vhost-device-vsock")
}

/// A folder of this version beside cargo's other programs: a clean clone finds it there.
fn kept() -> Result<PathBuf> {
    Ok(cargo_home()?.join(format!("vhost-device-vsock-{VERSION}")))
}

fn installed(repo: &Repo, root: &Path) -> bool {
    println!("compiling vhost-device-vsock {VERSION}; a minute or two, once on this machine");
    let install = ["install", "vhost-device-vsock", "--version", VERSION, "--locked", "--debug"];
    let install = cmd!(repo.shell, "cargo {install...} --root {root}");
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").run().is_ok()
}
