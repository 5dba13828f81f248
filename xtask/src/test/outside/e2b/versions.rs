//! Pinned versions of Python packages, each installed to a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::repo::Repo;

/// The versions of a package in a file of `tests/clients`, the newest first, each with the folder that it is
/// installed to.
pub(super) fn python_versions(
    repo: &Repo,
    pins: &str,
    package: &str,
) -> Result<Vec<(String, PathBuf)>> {
    let pins = fs::read_to_string(repo.root.join("tests/clients").join(pins))?;
    let lines = pins.lines().filter_map(|line| Some((line, line.strip_prefix(package)?)));
    // A version may stand before that of another package that it is installed with.
    let pinned = lines.filter_map(|(line, rest)| Some((line, rest.strip_prefix("==")?)));
    let install = |(line, version): (&str, &str)| {
        let version = version.split(' ').next().unwrap_or(version);
        let name = package.replace('-', "_");
        let folder = repo.target.join("e2b").join(format!("{name}-{version}"));
        let there = folder.join(format!("{name}-{version}.dist-info/METADATA"));
        if !there.exists() {
            println!("installing {line} to {}", folder.display());
            installed(&folder, line)?;
        }
        Ok((version.to_owned(), folder))
    };
    pinned.map(install).collect()
}

fn installed(folder: &Path, pins: &str) -> Result<()> {
    let shell = Shell::new()?;
    // What a broken installation has left behind is no part of it.
    shell.remove_path(folder)?;
    let python = folder.with_file_name("venv");
    let packages = pins.split(' ');
    // The last that is made of it.
    let pip = python.join("bin/pip");
    if !pip.exists() {
        cmd!(shell, "python3 -m venv --clear {python}").run().context("python3 -m venv")?;
    }
    cmd!(shell, "timeout --kill-after=10 300 {pip} install --quiet --target {folder} {packages...}")
        .run()
        .with_context(|| format!("{pins} cannot be had"))
}
