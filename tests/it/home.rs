//! A daemon's home in a temporary folder, and clients in it.

use std::{
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// How long anything may take before a test gives up on it. Generous: the host
/// may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A home. Its daemon, if one runs, is ended with it.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), env: Vec::new() }
    }

    /// Sets a variable for every command in it.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/hivekeep.sock")
    }

    /// `hivekeep` with these arguments, in this home and no other.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hivekeep"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HIVEKEEP_")) {
            command.env_remove(name);
        }
        command.args(args).env("HIVEKEEP_HOME", self.dir.path()).stdin(Stdio::null());
        // No bridge in the namespace of whoever runs the tests.
        command.env("HIVEKEEP_NETWORK__MODE", "off");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    /// Runs a command that must succeed; what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", show(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs a command that must succeed; its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let text = self.ok(args);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Starts a daemon in the foreground and waits until it serves.
    pub(crate) fn daemon(&self) -> Daemon {
        let stderr = std::fs::File::create(self.path("daemon.out")).expect("a file");
        let child = self
            .command(&["daemon"])
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("the program runs");
        let mut daemon = Daemon(child);
        wait_until("the daemon serves", || {
            if let Some(status) = daemon.0.try_wait().expect("a child") {
                let output = std::fs::read_to_string(self.path("daemon.out")).unwrap_or_default();
                panic!("the daemon ended: {status}: {output}");
            }
            self.run(&["status"]).status.success()
        });
        daemon
    }

    /// The process that holds the lock, as its file says.
    pub(crate) fn pid(&self) -> Option<i32> {
        std::fs::read_to_string(self.path("run/daemon.lock")).ok()?.trim().parse().ok()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Only a daemon of this very home answers on its socket.
        if self.socket().exists() {
            let _ended_or_gone = self.run(&["stop"]);
        }
    }
}

/// A daemon in the foreground, killed with the test.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let mut ended = None;
        wait_until("the daemon ends", || {
            ended = self.0.try_wait().expect("a child");
            ended.is_some()
        });
        ended.expect("it ended")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Waits for something to become true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a command left behind, for messages.
pub(crate) fn show(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
