//! A daemon of the bench's own, in a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xshell::TempDir;

use super::client::StdioClient;
use super::kit::BenchPrograms;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running daemon. Dropped, it and its machines end, and the folder goes.
pub(crate) struct BenchDaemon {
    program: PathBuf,
    daemon: Child,
    folder: TempDir,
}

impl BenchDaemon {
    /// Starts a daemon. No rate is limited in it; `more` goes into its configuration.
    pub(crate) fn open(kit: &BenchPrograms<'_>, more: &str) -> Result<Self> {
        Self::start(kit, more, false)
    }

    /// The same with a bridge, in a network namespace of its own, which goes with it. Needs root
    /// and util-linux.
    pub(crate) fn open_apart(kit: &BenchPrograms<'_>, more: &str) -> Result<Self> {
        Self::start(kit, more, true)
    }

    fn start(kit: &BenchPrograms<'_>, more: &str, apart: bool) -> Result<Self> {
        let folder = kit.repo.shell.create_temp_dir()?;
        // A machine's own user passes through on the way to its sockets.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
        let config = format!(
            "[daemon]\nmessages_per_sec = 1000000\nread_mb_per_sec = 4096\n\
             [registry.rate]\nenabled = false\n\
             [registry.admission]\nin_flight = 30\nqueued = 2048\nqueue_wait_secs = 600\n\
             [registry.quota]\nmax_workspaces = 250\nmax_memory_mb = 65536\nmax_disk_gb = 2000\n\
             [workspace]\nmax_workspaces = 250\nimage_dir = {:?}\nguest_binary = {:?}\n\
             default_vcpus = 1\ndefault_memory_mb = 256\ndefault_disk_gb = 2\n{more}\n",
            kit.repo.images(),
            crate::guest::installed(kit.repo),
        );
        fs::write(folder.path().join("config.toml"), config)?;
        let program = kit.hivekeep();
        let daemon = spawn(&program, folder.path(), apart)?;
        let mut house = Self { program, daemon, folder };
        house.wait()?;
        Ok(house)
    }

    /// Stops the daemon in order; its folder stays.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.output(&["stop", "--stop-workspaces"])?;
        self.daemon.wait()?;
        Ok(())
    }

    /// Starts the daemon again after [`Self::stop`] or [`Self::kill`].
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.daemon = spawn(&self.program, self.folder.path(), false)?;
        self.wait()
    }

    /// Kills the daemon; its folder stays.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.daemon.kill()?;
        self.daemon.wait()?;
        Ok(())
    }

    /// Kills the daemon and starts it again; the time until it answers.
    pub(crate) fn kill_and_start_again(&mut self) -> Result<Duration> {
        self.kill()?;
        let began = Instant::now();
        self.start_again()?;
        Ok(began.elapsed())
    }

    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.command().args(["status", "--json"]).output()?.status.success() {
            let ended = self.daemon.try_wait()?;
            ensure!(ended.is_none() && began.elapsed() < PATIENCE, "no daemon: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.id()
    }

    fn command(&self) -> Command {
        command(&self.program, self.path())
    }

    /// What a command of `hivekeep` prints; it has to succeed.
    pub(crate) fn output(&self, args: &[&str]) -> Result<String> {
        let mut command = self.command();
        command.args(args);
        super::kit::output(command)
    }

    /// The client that is measured with, and has a session of its own.
    pub(crate) fn attach(&self) -> Result<StdioClient> {
        self.attach_with(&[])
    }

    /// A client that attaches with more arguments.
    pub(crate) fn attach_with(&self, args: &[&str]) -> Result<StdioClient> {
        let mut command = self.mcp();
        command.args(args);
        StdioClient::start(command).with_context(|| format!("the daemon said: {}", self.stderr()))
    }

    /// A client that nothing is measured with.
    pub(crate) fn client(&self) -> Result<hivekeep_mcp_client::blocking::Client> {
        let client = hivekeep_mcp_client::blocking::Client::spawn("xtask", self.mcp());
        client.with_context(|| format!("the daemon said: {}", self.stderr()))
    }

    fn mcp(&self) -> Command {
        let mut command = self.command();
        command.args(["mcp", "--no-spawn"]);
        command
    }

    /// Keeps what the daemon and its machines said, where the next run finds nothing of it: the
    /// house takes its folder along.
    pub(crate) fn keep_logs(&self, into: &Path) -> Result<()> {
        let _none_before = fs::remove_dir_all(into);
        fs::create_dir_all(into)?;
        let status = Command::new("cp")
            .arg("-r")
            .args([self.path().join("logs"), self.path().join("stderr"), into.to_owned()])
            .status()?;
        ensure!(status.success(), "the logs could not be copied to {}", into.display());
        Ok(())
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        let stopped = self.command().args(["stop", "--stop-workspaces"]).output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            eprintln!("xtask: the bench's daemon did not stop in order: {}", self.stderr());
            let _ended = self.daemon.kill();
        }
        let _reaped = self.daemon.wait();
    }
}

fn spawn(program: &Path, folder: &Path, apart: bool) -> Result<Child> {
    let log = fs::File::create(folder.join("stderr"))?;
    let mut command = if apart {
        // Executed in place, so that the daemon's process is this one.
        let mut apart = command(Path::new("unshare"), folder);
        apart.arg("--net").arg(program).env("HIVEKEEP_NETWORK__MODE", "bridge");
        apart
    } else {
        command(program, folder)
    };
    command.arg("daemon").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().with_context(|| format!("start {}", program.display()))
}

fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HIVEKEEP_HOME", folder).env("HIVEKEEP_CONFIG", folder.join("config.toml"));
    // Of a corpus that is measured with, and not a key of the configuration.
    command.env_remove(super::dag_files::CORPUS);
    // No bridge in the namespace of whoever measures.
    command.env("HIVEKEEP_NETWORK__MODE", "off");
    command
}
