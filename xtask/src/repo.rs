//! Paths of the checkout and of its build products.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::{Cmd, Shell, cmd};

/// The target triple that the guest is linked for and the daemon runs on.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Package that is selected beside others, so that each selection has the features of the whole
/// workspace, crash points among them: nothing is compiled twice, and no daemon takes the place of
/// another one.
pub(crate) const UNIFY: &str = "hivekeep-unify";
/// Package that only the bench builds; its dependencies are nobody else's.
pub(crate) const BENCH_ONLY: &str = "hivekeep-bare-browser";

/// The checkout.
pub(crate) struct Repo {
    /// A shell standing in the checkout's root.
    pub(crate) shell: Shell,
    /// The root.
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    /// True when the toolchain has clippy.
    pub(crate) clippy: bool,
}

impl Repo {
    /// The checkout that this program was built from, wherever it is called.
    pub(crate) fn open() -> Result<Self> {
        let shell = Shell::new()?;
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let metadata = cmd!(
            shell,
            "cargo metadata --offline --no-deps --format-version 1 --manifest-path {manifest}"
        )
        .quiet()
        .read()?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let folder = |key: &str| {
            let text = metadata[key].as_str().with_context(|| format!("cargo names no {key}"))?;
            anyhow::Ok(PathBuf::from(text))
        };
        let (root, target) = (folder("workspace_root")?, folder("target_directory")?);
        shell.change_dir(&root);
        Ok(Self { shell, root, target, clippy: has_clippy() })
    }

    /// A command of cargo over all packages, as a development build, linted while it is compiled.
    pub(crate) fn cargo_all(&self, command: &[&str]) -> Cmd<'_> {
        self.linted(cmd!(self.shell, "cargo {command...} --workspace --exclude {BENCH_ONLY}"))
    }

    /// The same over some packages: what they share with others is compiled once.
    pub(crate) fn cargo(&self, command: &[&str], packages: &[&str]) -> Cmd<'_> {
        let packages = packages.iter().chain([&UNIFY]).flat_map(|name| ["--package", name]);
        self.linted(cmd!(self.shell, "cargo {command...} {packages...}"))
    }

    /// Clippy compiles the workspace's own packages, where the toolchain has it: then nothing is
    /// compiled once more to be linted. It leaves optimisations of MIR out, so it is for development
    /// builds alone.
    pub(crate) fn linted<'s>(&self, cargo: Cmd<'s>) -> Cmd<'s> {
        match self.clippy {
            true => cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
            false => cargo,
        }
    }

    /// Builds the daemon that tests, images and documents use.
    pub(crate) fn build_daemon(&self) -> Result<()> {
        Ok(self.cargo(&["build", "--bin", "hivekeep"], &["hivekeep"]).run()?)
    }

    /// The daemon of a debug build.
    pub(crate) fn hivekeep(&self) -> PathBuf {
        self.target.join("debug/hivekeep")
    }

    /// Unpacks a revision of the history and returns where.
    pub(crate) fn source_of(&self, revision: &str) -> Result<PathBuf> {
        let folder = self.target.join("revisions").join(revision);
        let (source, packed) = (folder.join("source"), folder.join("source.tar"));
        std::fs::create_dir_all(&source)?;
        cmd!(self.shell, "git archive --output {packed} {revision}")
            .run()
            .with_context(|| format!("this clone has no history back to {revision}"))?;
        cmd!(self.shell, "tar -xf {packed} -C {source}").run()?;
        Ok(source)
    }

    /// The images that tests boot.
    pub(crate) fn images(&self) -> PathBuf {
        self.target.join("images")
    }
}

/// Folder of cargo's own programs and caches.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}

fn has_clippy() -> bool {
    let mut clippy = Command::new("clippy-driver");
    clippy.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    clippy.status().is_ok_and(|status| status.success())
}
