//! apt-get, without questions and with one known conflict solved.
//!
//! A machine may carry `qemu-utils` from backports while `qemu-system-x86` comes
//! from the release: both need one `qemu-system-common`, so the plain line
//! cannot be satisfied. Taking the release's `qemu-utils` solves it, which is a
//! downgrade and has to be asked for by name.

use std::fs;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

const INSTALL: [&str; 4] = ["install", "-y", "--no-install-recommends", "-q"];
const QEMU: &str = "qemu-system-x86";
const QEMU_UTILS: &str = "qemu-utils";

/// What a person types.
pub(crate) fn line(shell: &Shell, packages: &[&str]) -> String {
    // The lists may be missing before the update; then the plain line is the best guess.
    let arguments = satisfiable(shell, packages).unwrap_or_else(|_| owned(packages));
    let install = INSTALL.join(" ");
    format!("sh -c 'apt-get update; apt-get {install} {}'", arguments.join(" "))
}

/// Installs packages; as root.
pub(crate) fn install(shell: &Shell, packages: &[&str]) -> Result<()> {
    let _quiet = shell.push_env("DEBIAN_FRONTEND", "noninteractive");
    // A source that fails must not keep the others from serving what is needed.
    if let Err(error) = cmd!(shell, "apt-get update -q").run() {
        println!("apt-get update failed ({error}); going on with the lists there are");
    }
    let arguments = satisfiable(shell, packages)?;
    cmd!(shell, "apt-get {INSTALL...} {arguments...}")
        .run()
        .context("apt-get could not install them")
}

/// Arguments that apt-get can satisfy.
fn satisfiable(shell: &Shell, packages: &[&str]) -> Result<Vec<String>> {
    let plain = owned(packages);
    let mut refusals = Vec::new();
    for arguments in [Some(plain.clone()), same_suite(&plain)].into_iter().flatten() {
        let simulated = cmd!(shell, "apt-get --simulate {INSTALL...}")
            .args(&arguments)
            .quiet()
            .ignore_status()
            .output()?;
        if simulated.status.success() {
            return Ok(arguments);
        }
        refusals.push(String::from_utf8_lossy(&simulated.stderr).trim().to_owned());
    }
    bail!("apt-get refuses {}:\n{}", packages.join(" "), refusals.join("\n"))
}

fn owned(packages: &[&str]) -> Vec<String> {
    packages.iter().map(|&package| package.to_owned()).collect()
}

/// The packages with QEMU's parts from one suite.
fn same_suite(packages: &[String]) -> Option<Vec<String>> {
    let suite = codename(&fs::read_to_string("/etc/os-release").ok()?)?;
    one_suite(packages, &suite)
}

fn one_suite(packages: &[String], suite: &str) -> Option<Vec<String>> {
    if !packages.iter().any(|package| package == QEMU) {
        return None;
    }
    let others = packages.iter().filter(|package| *package != QEMU_UTILS).cloned();
    let mut arguments = vec!["--allow-downgrades".to_owned()];
    arguments.extend(others);
    arguments.push(format!("{QEMU_UTILS}/{suite}"));
    Some(arguments)
}

fn codename(os_release: &str) -> Option<String> {
    let line = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conflict_is_solved_by_taking_both_from_the_release() {
        let arguments = one_suite(&owned(&["bubblewrap", QEMU]), "bookworm").unwrap();
        let expected = ["--allow-downgrades", "bubblewrap", QEMU, "qemu-utils/bookworm"];
        assert_eq!(arguments, expected);
        assert_eq!(one_suite(&owned(&["bubblewrap"]), "bookworm"), None);
        // Named once, even when it is missing itself.
        let both = one_suite(&owned(&[QEMU, QEMU_UTILS]), "trixie").unwrap();
        assert_eq!(both.iter().filter(|name| name.starts_with(QEMU_UTILS)).count(), 1);
    }

    #[test]
    fn the_codename_is_read_with_and_without_quotes() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"trixie\"").as_deref(), Some("trixie"));
        assert_eq!(codename("ID=arch"), None);
    }
}
