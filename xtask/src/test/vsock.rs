//! Requirements of the vsock carriers' tests beside the daemon.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use crate::guest;
use crate::repo::{Repo, cargo_home};
use crate::steps::{StepOutcome, passed};

/// The device process whose behaviour the daemon is tested against.
const VERSION: &str = "0.3.0";

/// Builds the probe, and installs the device process unless it is there. Without
/// the network for it the test that needs it says that it did not run.
pub(super) fn prepare(repo: &Repo) -> Result<StepOutcome> {
    guest::build_vsock_probe(repo)?;
    let (shell, root, device) = (&repo.shell, tools()?, device()?);
    if !device.exists() {
        println!("compiling vhost-device-vsock {VERSION}; a minute or two, once on this machine");
    }
    let installed = device.exists()
        || cmd!(
            shell,
            "cargo install vhost-device-vsock --version {VERSION} --locked --debug --root {root}"
        )
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()
        .is_ok();
    Ok(match installed {
        true => passed(device.display()),
        false => StepOutcome::Skipped(format!("vhost-device-vsock {VERSION} cannot be installed")),
    })
}

/// The device process, if [`prepare`] could install it.
pub(super) fn device() -> Result<PathBuf> {
    Ok(tools()?.join("bin/vhost-device-vsock"))
}

/// A folder of this version beside cargo's other programs: a clean clone finds it there.
fn tools() -> Result<PathBuf> {
    Ok(cargo_home()?.join(format!("vhost-device-vsock-{VERSION}")))
}
