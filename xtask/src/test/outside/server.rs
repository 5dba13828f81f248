//! Programs under test that live as long as a step.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::image;
use crate::repo::Repo;

const PATIENCE: Duration = Duration::from_secs(60);

/// The HTTP door over the tools that the conformance suite calls. It ends with
/// its standard input.
pub(super) struct Fixture {
    child: Child,
    pub(super) url: String,
    pub(super) token: String,
}

impl Fixture {
    pub(super) fn start(repo: &Repo) -> Result<Self> {
        let program = repo.target.join("debug/examples/conformance_server");
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("its output is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let about: Value = serde_json::from_str(&line).context("it says where it is")?;
        let text = |key: &str| about[key].as_str().with_context(|| format!("its {key}"));
        let token = std::fs::read_to_string(text("token_file")?)?.trim().to_owned();
        Ok(Self { url: text("url")?.to_owned(), token, child })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A daemon in a home of its own. Its workspaces end with it.
pub(crate) struct ServedDaemon {
    child: Child,
    home: PathBuf,
    hivekeep: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
}

impl ServedDaemon {
    /// Starts it and waits until it answers.
    pub(super) fn start(repo: &Repo, home: &Path) -> Result<Self> {
        Self::start_with(repo, home, &[])
    }

    /// The same, with more variables.
    pub(crate) fn start_with(
        repo: &Repo,
        home: &Path,
        more: &[(&'static str, &str)],
    ) -> Result<Self> {
        let mut environment: Vec<_> = image::environment(repo).into();
        environment.retain(|(name, _)| *name != "HIVEKEEP_HOME");
        environment.push(("HIVEKEEP_HOME", home.to_owned()));
        environment.push(("HIVEKEEP_REGISTRY__RATE__ENABLED", "false".into()));
        // No bridge in the namespace of whoever runs the tests.
        environment.push(("HIVEKEEP_NETWORK__MODE", "off".into()));
        environment.extend(more.iter().map(|(name, value)| (*name, value.into())));
        let log = File::create(home.join("daemon.stderr"))?;
        let child = Command::new(repo.hivekeep())
            .arg("daemon")
            .envs(environment.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let (home, hivekeep) = (home.to_owned(), repo.hivekeep());
        let mut daemon = Self { child, home, hivekeep, environment };
        let begun = Instant::now();
        while !daemon.command(&["status"]).status()?.success() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("the daemon ended with {status}: {}", daemon.last_words());
            }
            ensure!(begun.elapsed() < PATIENCE, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    /// Variables that tell a client the server's place.
    pub(super) fn environment(&self) -> &[(&'static str, PathBuf)] {
        &self.environment
    }

    /// What a command of the daemon's home prints.
    pub(crate) fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).stdout(Stdio::piped()).output()?;
        ensure!(output.status.success(), "hivekeep {}: {}", arguments.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Kills it, as a crash does.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.hivekeep);
        command.args(arguments).envs(self.environment.clone());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.home.join("daemon.stderr")).unwrap_or_default();
        text.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for ServedDaemon {
    fn drop(&mut self) {
        let stopped = self.command(&["stop", "--stop-workspaces"]).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
