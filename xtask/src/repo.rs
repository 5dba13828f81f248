//! Paths of the checkout and of its build products.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::{Shell, cmd};

/// The target triple that the guest is linked for and the daemon runs on.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Crash points are live in the tests' daemon. Whatever else builds that daemon
/// here builds the same one, so that neither takes the place of the other.
pub(crate) const FEATURES: &str = "hivekeep/failpoints";

/// The checkout.
pub(crate) struct Repo {
    /// A shell standing in the checkout's root.
    pub(crate) shell: Shell,
    /// The root.
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
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
        Ok(Self { shell, root, target })
    }

    /// The checkout, for steps that run beside others: its cargo uses half of the processors and
    /// prints no progress, and the calling thread has the lowest priority from now on, with all
    /// that it starts.
    pub(crate) fn giving_way() -> Result<Self> {
        let repo = Self::open()?;
        // On Linux the nice value belongs to the thread: setpriority(2), "C library/kernel differences".
        rustix::process::nice(19)?;
        let half = (std::thread::available_parallelism()?.get() / 2).max(1);
        repo.shell.set_var("CARGO_BUILD_JOBS", half.to_string());
        repo.shell.set_var("CARGO_TERM_QUIET", "true");
        Ok(repo)
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
