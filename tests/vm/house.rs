//! A daemon of the test's own, in a folder of its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use hivekeep_mcp_client::blocking::Client;
use hivekeep_network::{HostAccess, selftest::test_network::TestNetwork};
use serde_json::{Value, json};

use crate::{
    door::{Door, Refusal},
    needs::{GUEST, IMAGES, named},
};

/// How its workspaces are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sandbox,
    Vm,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Vm => "vm",
        }
    }
}

/// A daemon and its folders; both are gone after the test.
pub struct House {
    /// A file system of its own, unmounted before its folder is removed.
    _disk: Option<Mounted>,
    home: tempfile::TempDir,
    daemon: Option<Child>,
    pub kind: Kind,
    /// The network namespace that the daemon lives in, and a world around it.
    pub stage: Option<TestNetwork>,
    /// As `network.mode` has it.
    network: &'static str,
    /// The daemon and its command line.
    pub program: PathBuf,
    /// True for sandboxes with the default's ids: a recorded state has them in its files.
    pub default_ids: bool,
}

/// A mounted folder.
pub struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// First of the ids that sandboxes of tests have.
const FIRST_ID: u32 = 0x5000_0000;
/// Numbers of machines that one daemon has, more than it may have workspaces.
const MACHINES: u32 = 260;
/// How many tests that run at a time have ids of their own.
const SLOTS: u32 = 32;

/// Which of the tests that run at a time this is, as nextest numbers them.
fn slot() -> u32 {
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse().ok());
    slot.unwrap_or(0) % SLOTS
}

pub const PATIENCE: Duration = Duration::from_secs(60);

impl House {
    /// A running daemon.
    pub fn open(kind: Kind) -> Self {
        Self::open_with(kind, "")
    }

    /// The same with more lines of configuration.
    pub fn open_with(kind: Kind, config: &str) -> Self {
        // No bridge in the namespace of whoever runs the tests.
        Self::open_on(None, "off", kind, config, None)
    }

    /// The same with everything on a file system of this size.
    pub fn open_on_disk(kind: Kind, size: &str) -> Self {
        Self::open_on(None, "off", kind, "", Some(size))
    }

    /// The same with a network of this mode, in a namespace and a world of the test's own.
    pub fn open_networked(network: &'static str, kind: Kind, config: &str) -> Self {
        let stage = TestNetwork::new(HostAccess::default()).expect("network namespaces");
        Self::open_on(Some(stage), network, kind, config, None)
    }

    fn open_on(
        stage: Option<TestNetwork>,
        network: &'static str,
        kind: Kind,
        config: &str,
        disk: Option<&str>,
    ) -> Self {
        // Socket paths are short: not below the target folder.
        let home = tempfile::Builder::new().prefix("hk").tempdir_in("/tmp").expect("a folder");
        let disk = disk.map(|size| mount(home.path(), size));
        let mut house = Self::closed_at(home, kind, &named(IMAGES), &named(GUEST), config);
        (house.stage, house.network, house._disk) = (stage, network, disk);
        house.start();
        house
    }

    /// A daemon that is not started yet, without a network.
    pub fn closed_at(
        home: tempfile::TempDir,
        kind: Kind,
        images: &Path,
        guest: &Path,
        config: &str,
    ) -> Self {
        open_to_all(home.path());
        let text = format!(
            "[registry.rate]\nenabled = false\n\
             [registry.quota]\nmax_workspaces = 250\nmax_memory_mb = 65536\nmax_disk_gb = 2000\n\
             [workspace]\nmax_workspaces = 250\nisolation = \"{}\"\nimage_dir = {:?}\nguest_binary = {:?}\n\
             default_vcpus = 1\ndefault_memory_mb = 256\ndefault_disk_gb = 2\n{config}\n",
            kind.word(),
            images,
            guest
        );
        std::fs::write(home.path().join("config.toml"), text).expect("written");
        let program = env!("CARGO_BIN_EXE_hivekeep").into();
        let (daemon, stage, network) = (None, None, "off");
        Self { home, daemon, kind, stage, network, _disk: None, program, default_ids: false }
    }

    /// The folder of everything.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("HIVEKEEP_HOME", self.path())
            .env("HIVEKEEP_CONFIG", self.path().join("config.toml"))
            .env("HIVEKEEP_NETWORK__MODE", self.network)
            .env_remove("FAILPOINTS");
        // What the kernel counts by user is this daemon's alone, and not of the tests beside it. An
        // older version may not know the options.
        if self.program == Path::new(env!("CARGO_BIN_EXE_hivekeep")) && !self.default_ids {
            let first = FIRST_ID + slot() * (MACHINES + 1) * 65_536;
            command
                .env("HIVEKEEP_WORKSPACE__DRIVER__SANDBOX_FIRST_ID", first.to_string())
                .env("HIVEKEEP_WORKSPACE__DRIVER__MACHINE_UID_COUNT", MACHINES.to_string());
        }
        command
    }

    /// Starts the daemon and waits until it serves.
    pub fn start(&mut self) {
        self.start_armed("");
    }

    /// Starts it with fault points armed, as `point=return(kill)`.
    pub fn start_armed(&mut self, failpoints: &str) {
        assert!(self.daemon.is_none(), "a daemon runs already");
        let log = std::fs::File::create(self.path().join("stderr")).expect("a log");
        let mut command = self.command();
        command.arg("daemon").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if !failpoints.is_empty() {
            command.env("FAILPOINTS", failpoints);
        }
        let spawned = match &self.stage {
            Some(stage) => stage.host.run(move || command.spawn()),
            None => command.spawn(),
        };
        self.daemon = Some(spawned.expect("the daemon starts"));
        let begun = Instant::now();
        while !self.door().serves() {
            let ended = self.daemon.as_mut().expect("just started").try_wait().expect("asked");
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.last_words());
            assert!(begun.elapsed() < PATIENCE, "the daemon does not serve\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn stderr(&self) -> String {
        self.tail("stderr", 40)
    }

    /// Stderr and the log of a daemon that ended, and the room left on its disk: a full one lets
    /// neither be written.
    fn last_words(&self) -> String {
        let log = self.tail(&format!("logs/{}", hivekeep_config::LOG_FILE), 10);
        let room = rustix::fs::statvfs(self.path()).map(|disk| disk.f_bavail * disk.f_frsize);
        format!("{}\nlog: {log}\nbytes free below it: {room:?}", self.stderr())
    }

    fn tail(&self, file: &str, lines: usize) -> String {
        let text = std::fs::read_to_string(self.path().join(file)).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// SIGKILL, then gone.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        daemon.kill().expect("killed");
        daemon.wait().expect("ended");
    }

    /// Starts it again, whatever became of the last one.
    pub fn restart(&mut self) {
        self.end();
        self.start();
    }

    fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ended = daemon.kill();
            let _reaped = daemon.wait();
        }
    }

    /// Waits until the daemon has died of an armed fault point.
    pub fn wait_for_death(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        let begun = Instant::now();
        while daemon.try_wait().expect("asked").is_none() {
            if begun.elapsed() > PATIENCE {
                daemon.kill().expect("killed");
                daemon.wait().expect("ended");
                panic!("the fault point was not passed\n{}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// An ordered stop of the daemon.
    pub fn stop(&mut self, with_workspaces: bool) {
        self.ask(json!({ "method": "stop", "params": { "workspaces": with_workspaces } }))
            .expect("the stop is taken");
        let mut daemon = self.daemon.take().expect("a daemon runs");
        let begun = Instant::now();
        while daemon.try_wait().expect("asked").is_none() {
            assert!(begun.elapsed() < PATIENCE, "the daemon does not stop\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The daemon's control door.
    pub fn door(&self) -> Door {
        // Before the runner of the tests ends this one, so that it can say why.
        let patience = match self.kind {
            Kind::Sandbox => Duration::from_secs(90),
            Kind::Vm => Duration::from_secs(400),
        };
        Door::new(self.path(), patience)
    }

    /// An MCP client with a session of its own, beside the one of the control door.
    pub fn attach(&self) -> Client {
        let mut command = self.command();
        command.args(["mcp", "--no-spawn"]);
        Client::spawn("test", command).expect("a client attaches")
    }

    /// The daemon's process.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon runs").id()
    }

    /// One control request; `Err(None)` when the daemon died over it.
    pub fn ask(&self, request: Value) -> Result<Value, Option<Refusal>> {
        self.door().ask(request).map_err(crate::door::Miss::refusal)
    }

    /// A tool call that may be refused, or end with the daemon's death.
    pub fn try_call(&self, tool: &str, args: Value) -> Result<Value, Option<Refusal>> {
        self.ask(json!({ "method": "call", "params": { "tool": tool, "args": args } }))
    }

    /// A tool call that must succeed.
    pub fn call(&self, tool: &str, args: Value) -> Value {
        match self.try_call(tool, args) {
            Ok(result) => result,
            Err(Some(refusal)) => panic!("{tool} was refused: {}\n{}", refusal.text, self.stderr()),
            Err(None) => panic!("the daemon died over {tool}\n{}", self.stderr()),
        }
    }

    /// A tool call that must be refused.
    pub fn refused(&self, tool: &str, args: Value) -> Refusal {
        match self.try_call(tool, args) {
            Err(Some(refusal)) => refusal,
            Ok(result) => panic!("{tool} was not refused: {result}"),
            Err(None) => panic!("the daemon died over {tool}\n{}", self.stderr()),
        }
    }

    /// Makes a workspace.
    pub fn create(&self, name: &str) -> Value {
        self.call("workspace_create", json!({ "name": name }))
    }

    /// Runs a command that must exit with 0; its stdout.
    pub fn exec(&self, workspace: &str, command: &str) -> String {
        let result = self.call("exec", json!({ "workspace_id": workspace, "command": command }));
        assert_eq!(result["exit_code"], 0, "{command}: {result}");
        result["stdout"].as_str().expect("text").to_owned()
    }

    /// Checks that the guest's clock is the host's; one that stood still for three seconds is not.
    pub fn check_clock(&self, workspace: &str) {
        let now = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.expect("after 1970").as_secs()
        };
        let asked = now();
        let time: u64 = self.exec(workspace, "date +%s").trim().parse().expect("a time");
        let right = asked - 2..=now() + 2;
        assert!(
            right.contains(&time),
            "{workspace}: {time} is not within two seconds of {right:?}"
        );
    }

    pub fn state(&self, workspace: &str) -> String {
        let info = self.call("workspace_info", json!({ "workspace_id": workspace }));
        info["state"].as_str().expect("a state").to_owned()
    }

    /// Waits for a state.
    pub fn wait_state(&self, workspace: &str, state: &str) {
        let begun = Instant::now();
        while self.state(workspace) != state {
            assert!(
                begun.elapsed() < PATIENCE,
                "{workspace} is {}, not {state}\n{}",
                self.state(workspace),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The most memory that the daemon ever held, without pages of its own file: a program that was built for tests
    /// is large, and the kernel takes those back as it likes.
    pub fn peak_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("read");
        let kib = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).expect(name);
            line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
        };
        kib("VmHWM:") - kib("RssFile:")
    }

    /// A file system of 1 MiB at a folder, gone when the answer is dropped.
    pub fn mount_small(&self, folder: &Path) -> Mounted {
        mount(folder, "1m")
    }

    pub fn list(&self) -> Vec<Value> {
        self.call("workspace_list", json!({}))["workspaces"].as_array().expect("a list").clone()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if self.daemon.is_none() && !std::thread::panicking() {
            self.start();
        }
        if self.daemon.is_some() && self.door().serves() {
            let names: Vec<_> = match self.try_call("workspace_list", json!({})) {
                Ok(list) => list["workspaces"].as_array().cloned().unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            for workspace in names {
                let _already_gone = self.try_call(
                    "workspace_destroy",
                    json!({ "workspace_id": workspace["workspace_id"] }),
                );
            }
        }
        self.end();
        // Also after a panic nothing may go on running on this machine.
        crate::leaks::end_machines(self.path());
        crate::leaks::unmount(self.path());
    }
}

fn mount(folder: &Path, size: &str) -> Mounted {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
        .arg(folder)
        .status();
    assert!(mounted.is_ok_and(|status| status.success()), "{} is not mounted", folder.display());
    Mounted(folder.to_owned())
}

/// A machine's own user has to pass the folders on the way to its sockets.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711)).expect("mode set");
}
