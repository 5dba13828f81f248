//! A daemon of the demo's own, in a folder of its own.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::DemoPrograms;

/// For the daemon to serve, and to stop with its machines.
const PATIENCE: Duration = Duration::from_secs(150);
/// For destroyed disks to be removed; a busy disk takes its time over a tree of files.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(120);
/// Where the daemon keeps them until then.
const TRASH: &str = ".hivekeep-trash";
/// Output of the daemon that is shown after a failure.
const LAST_LINES: usize = 20;

/// The daemon and its folder. Both end with [`DemoDaemon::close`].
pub(super) struct DemoDaemon {
    folder: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    hivekeep: PathBuf,
    daemon: Option<Child>,
}

impl DemoDaemon {
    /// Makes the folder.
    pub(super) fn new(programs: &DemoPrograms) -> Result<Self> {
        // Not below the target folder: a socket's path has 107 bytes at most.
        let folder = PathBuf::from(format!("/tmp/hivekeep-demo-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        // Machines run as users of their own and have to reach their sockets.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
        let mut environment = programs.environment();
        environment.push(("HIVEKEEP_HOME", folder.clone()));
        // No bridge in the namespace of whoever looks at the demo.
        environment.push(("HIVEKEEP_NETWORK__MODE", "off".into()));
        Ok(Self { folder, environment, hivekeep: programs.hivekeep.clone(), daemon: None })
    }

    /// A program that finds this daemon and no other.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HIVEKEEP_") {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Starts the daemon and waits until it serves.
    pub(super) fn start(&mut self) -> Result<()> {
        let stderr = fs::OpenOptions::new().create(true).append(true).open(self.stderr())?;
        let mut command = self.command(&self.hivekeep);
        command.arg("daemon").stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        // A terminal's interruption is not for the daemon: it is stopped in order.
        let mut daemon = command.process_group(0).spawn().context("the daemon does not start")?;
        let until = Instant::now() + PATIENCE;
        while !self.serves()? {
            if let Some(status) = daemon.try_wait()? {
                bail!("the daemon ended at once: {status}");
            }
            if Instant::now() > until {
                let _ended = daemon.kill();
                let _reaped = daemon.wait();
                bail!("the daemon does not serve within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    fn serves(&self) -> Result<bool> {
        let mut command = self.command(&self.hivekeep);
        let command = command.arg("status").stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status()?.success())
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// The daemon's process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Output of a subcommand.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(&self.hivekeep).args(arguments).output()?;
        ensure!(
            output.status.success(),
            "hivekeep {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Output of a subcommand with `--json`.
    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.ask(&[arguments, &["--json"]].concat())?)?)
    }

    /// The command line, as a person types it.
    pub(super) fn hivekeep(&self) -> std::path::Display<'_> {
        self.hivekeep.display()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that files are moved from and to.
    pub(super) fn transfers(&self) -> PathBuf {
        self.folder.join("state/transfers")
    }

    /// Processes of machines of this house, and of no other: their command line or
    /// first environment names their run folder.
    pub(super) fn machines(&self) -> Result<Vec<Pid>> {
        let tag = format!("{}/run/machines/", self.folder.display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
            let holds = |file| {
                let text = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(&tag)
            };
            if holds("cmdline") || holds("environ") {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// What of a machine is on the disk: its overlay, sockets. A destroyed disk is
    /// removed after the answer; that is waited for.
    pub(super) fn remains(&self) -> Result<Vec<PathBuf>> {
        let until = Instant::now() + REMOVAL_PATIENCE;
        loop {
            let trash = self.folder.join("state/disks").join(TRASH);
            let mut found = match trash.is_dir() {
                true => entries(&trash)?,
                false => Vec::new(),
            };
            let leaving = !found.is_empty();
            for folder in ["state/disks", "run/machines"] {
                found.extend(entries(&self.folder.join(folder))?);
            }
            found.retain(|path| *path != trash);
            if !leaving || Instant::now() > until {
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The end of what the daemon said and logged.
    pub(super) fn last_words(&self) -> String {
        let mut words = "the daemon's last words:".to_owned();
        for path in [self.folder.join("logs/daemon.jsonl"), self.stderr()] {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let from = lines.len().saturating_sub(LAST_LINES);
            lines[from..].iter().for_each(|line| words.extend(["\n", line]));
        }
        words
    }

    fn stderr(&self) -> PathBuf {
        self.folder.join("daemon.stderr")
    }

    /// Stops machines and daemon and removes the folder.
    ///
    /// # Errors
    /// When a machine was still running after that. It is ended all the same.
    pub(super) fn close(mut self) -> Result<()> {
        let stopped = self.stop();
        let left = self.machines()?;
        for pid in &left {
            let _ended_meanwhile = kill_process(*pid, Signal::KILL);
        }
        fs::remove_dir_all(&self.folder)
            .with_context(|| format!("remove {}", self.folder.display()))?;
        stopped?;
        ensure!(left.is_empty(), "the daemon stopped and left these processes: {left:?}");
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if self.daemon.is_none() && self.machines()?.is_empty() {
            return Ok(());
        }
        if self.daemon.is_none() {
            // It was killed and its machines run: only a daemon stops them in order.
            self.start()?;
        }
        let asked = self.ask(&["stop", "--stop-workspaces", "--wait-secs", "150"]);
        let Some(mut daemon) = self.daemon.take() else { return asked.map(drop) };
        if asked.is_err() {
            let _ended_already = daemon.kill();
        }
        daemon.wait()?;
        asked.map(drop)
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
