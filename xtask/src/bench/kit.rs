//! Kit of a measurement: the programs that were built and found.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::{guest, image, repo::Repo};

/// The programs of a run, and how much of it was asked for.
pub(crate) struct BenchPrograms<'r> {
    pub(crate) repo: &'r Repo,
    quick: bool,
    dev: bool,
    only: Vec<String>,
}

impl<'r> BenchPrograms<'r> {
    pub(crate) fn new(repo: &'r Repo, quick: bool, dev: bool, only: Vec<String>) -> Self {
        Self { repo, quick, dev, only }
    }

    /// Builds everything that is measured, and the image that is booted.
    pub(crate) fn build(&self) -> Result<()> {
        let shell = &self.repo.shell;
        let profile = self.profile();
        // Beside the daemon, with the features of both: what they share is compiled once.
        let packages = ["--package", "hivekeep", "--package", "hivekeep-baselines"];
        cmd!(shell, "cargo build --profile {profile} {packages...} --bins").run()?;
        for (figure, package, example) in [
            ("rag_query_100k", "hivekeep-ingest", "bare_engine"),
            ("metrics_query", "hivekeep-metrics", "year_of_metrics"),
        ] {
            if self.wants(figure) {
                cmd!(
                    shell,
                    "cargo build --profile {profile} --package {package} --example {example}"
                )
                .run()?;
            }
        }
        if self.wants("webview_click") || self.wants("webview_screenshot") {
            let package = "hivekeep-bare-browser";
            cmd!(shell, "cargo build --profile {profile} --package {package}").run()?;
        }
        self.build_daemon()
    }

    /// Builds the daemon, and the image that it boots.
    pub(crate) fn build_daemon(&self) -> Result<()> {
        let shell = &self.repo.shell;
        guest::build(self.repo)?;
        let profile = self.profile();
        cmd!(shell, "cargo build --profile {profile} --package hivekeep --bin hivekeep").run()?;
        let hivekeep = self.hivekeep();
        cmd!(shell, "{hivekeep} image build base").envs(image::environment(self.repo)).run()?;
        Ok(())
    }

    fn profile(&self) -> &'static str {
        if self.dev { "dev" } else { "release" }
    }

    fn folder(&self) -> PathBuf {
        self.repo.target.join(if self.dev { "debug" } else { "release" })
    }

    pub(crate) fn hivekeep(&self) -> PathBuf {
        self.folder().join("hivekeep")
    }

    /// A program of a package of baselines.
    pub(crate) fn baseline(&self, name: &str) -> Command {
        Command::new(self.folder().join(name))
    }

    /// An example of a family's crate.
    pub(crate) fn example(&self, name: &str) -> Command {
        Command::new(self.folder().join("examples").join(name))
    }

    /// True when a figure was asked for.
    pub(crate) fn wants(&self, figure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == figure)
    }

    /// So many rounds of a whole run, fewer of a quick one.
    pub(crate) fn rounds(&self, whole: usize) -> usize {
        if self.quick { whole.div_ceil(5) } else { whole }
    }
}

/// A program's standard output; it has to succeed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {stderr}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
