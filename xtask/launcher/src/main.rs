//! `cargo xtask`: builds the package `xtask` and becomes it.
//!
//! It is compiled by itself in a second, from the standard library alone. What `xtask` shares with the
//! daemon and the tests is compiled once for all of them, because `hivekeep-unify` is selected beside
//! it, and by the compiler that tests are built with (`RUSTC_WORKSPACE_WRAPPER`; xtask/src/repo.rs).

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Checkout that this program was built from.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() -> ExitCode {
    let program = match build() {
        Ok(program) => program,
        Err(why) => {
            eprintln!("xtask: {why}");
            return ExitCode::FAILURE;
        }
    };
    let error = command(&program).args(std::env::args_os().skip(1)).exec();
    eprintln!("xtask: {} could not be started: {error}", program.display());
    ExitCode::FAILURE
}

/// A command without what `cargo run` says of this package. Build scripts may ask cargo to run them again
/// when such a variable changes, as ring's does, and a plain `cargo build` has none of them.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let said = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(said) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds `xtask` and returns its path.
fn build() -> Result<PathBuf, String> {
    let target = target()?;
    let program = target.join("debug/xtask");
    let mut cargo = command("cargo");
    cargo.current_dir(CHECKOUT).args([
        "build",
        "--package",
        "xtask",
        "--package",
        "hivekeep-unify",
    ]);
    cargo.args(["--bin", "xtask"]);
    if program.exists() {
        // A build of some seconds says nothing but errors.
        cargo.arg("--quiet");
    } else {
        eprintln!("xtask: it is built first, from about 240 units: a minute or two");
    }
    if has_clippy() {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(format!("it could not be built: cargo ended with {status}")),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}

/// Cargo's target folder: the one that this program lies in, below `debug`.
fn target() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().and_then(Path::parent);
    folder.map(Path::to_owned).ok_or_else(|| format!("{} has no folder", program.display()))
}

/// True when the toolchain brings clippy, as rustup's default profile does.
fn has_clippy() -> bool {
    let mut clippy = Command::new("clippy-driver");
    clippy.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    clippy.status().is_ok_and(|status| status.success())
}
