//! What is tried to be reached, and the daemon whose walls are in between.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use hivekeep_mcp_client::blocking::Client;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::json;
use xshell::{TempDir, cmd};

use super::table::{Outside, Seen, seen};
use crate::repo::Repo;
use crate::test::outside::ServedDaemon;

/// As the probe has it.
pub(super) const MARK: &str = "hivekeep-containment-outside";
/// Port of the listeners.
pub(super) const PORT: u16 = 47_821;
const METADATA: &str = "169.254.169.254";
/// Address of the host where it has none to guests.
const ELSEWHERE: &str = "192.0.2.1";
/// Address of the host that pages may reach.
pub(super) const ALLOWED: &str = "127.0.0.2";
/// Folder below `/usr`, which programs on the host see, and which guests are given.
pub(super) const PLACE: &str = "/usr/local/src";
/// Time for a probe to be started and to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon, and what is outside of its walls.
pub(super) struct Grounds<'r> {
    // Dropped in this order.
    client: Client,
    _daemon: ServedDaemon,
    listener: Listener,
    pub(super) repo: &'r Repo,
    /// Whether it is in namespaces of its own, with root's rights.
    pub(super) apart: bool,
    home: TempDir,
}

impl<'r> Grounds<'r> {
    pub(super) fn prepare(repo: &'r Repo, apart: bool, vms: bool) -> Result<Self> {
        let home = repo.shell.create_temp_dir()?;
        let lent = home.path().join("lent");
        fs::create_dir(&lent)?;
        // Users of their own pass through on their way to it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711))?;
        build_probe(repo, &lent.join("probe"))?;
        if apart {
            cmd!(repo.shell, "ip link set lo up").quiet().run()?;
            for address in [METADATA, ELSEWHERE] {
                cmd!(repo.shell, "ip address add {address}/32 dev lo").quiet().run()?;
            }
            mount_bind(&lent, PLACE).with_context(|| format!("bind to {PLACE}"))?;
        }
        let listener = Listener::start(&lent.join("probe"))?;
        fs::write(home.path().join("secret"), MARK)?;
        fs::create_dir(home.path().join("docs"))?;
        fs::write(home.path().join("docs/a.pdf"), "%PDF-1.4\n")?;
        fs::write(home.path().join("config.toml"), config(home.path(), apart))?;
        let mode = if apart { "bridge" } else { "off" };
        let daemon = start(repo, home.path(), mode)?;
        let client = Client::connect("containment", &home.path().join("run/hivekeep.sock"))?;
        let grounds = Self { client, _daemon: daemon, listener, repo, apart, home };
        let (host, guest) = match (apart, vms) {
            (true, true) => grounds.neighbour()?,
            (true, false) => (ELSEWHERE.to_owned(), String::new()),
            (false, _) => Default::default(),
        };
        grounds.name_targets(&host, &guest)?;
        Ok(grounds)
    }

    /// Tells the probes what there is: the address of the host to guests, and that of a guest that listens.
    fn name_targets(&self, host: &str, guest: &str) -> Result<()> {
        let home = self.home.path().display();
        let of = |address: &str| match address {
            "" => String::new(),
            address => format!("{address}:{PORT}"),
        };
        let metadata = if self.apart { format!("{METADATA}:80") } else { String::new() };
        let text = format!(
            "secret={home}/secret\nsocket={home}/run/hivekeep.sock\npid={}\nport={PORT}\n\
             loopback=127.0.0.1:{PORT}\nmetadata={metadata}\nhost={}\nguest={}\n",
            self.listener.0.id(),
            of(host),
            of(guest),
        );
        let (new, targets) = (self.lent().join("targets.new"), self.lent().join("targets"));
        fs::write(&new, text)?;
        Ok(fs::rename(new, targets)?)
    }

    /// The probe, and what it is told.
    pub(super) fn lent(&self) -> PathBuf {
        self.home.path().join("lent")
    }

    pub(super) fn path(&self, of: &str) -> PathBuf {
        self.home.path().join(of)
    }

    /// The probe outside of all walls, as this user.
    pub(super) fn outside(&self) -> Result<Outside> {
        let folder = self.path("outside");
        if !folder.exists() {
            fs::create_dir(&folder)?;
        }
        let output = Command::new(self.lent().join("probe")).current_dir(folder).output()?;
        Ok(Outside(seen(&String::from_utf8(output.stdout)?)?))
    }

    /// While this runs the probe is where the daemon's own program is, for what the daemon starts.
    pub(super) fn in_the_daemons_place<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let program = self.repo.hivekeep();
        mount_bind(self.lent().join("probe"), &program)?;
        let acted = act();
        unmount(&program, UnmountFlags::DETACH)?;
        acted
    }

    /// Calls a tool; an answer that it failed is one too.
    pub(super) fn call(
        &self,
        tool: &str,
        arguments: serde_json::Value,
    ) -> Result<serde_json::Value> {
        self.client.call(tool, arguments).with_context(|| tool.to_owned())
    }

    /// Another daemon, whose browser is Chrome.
    pub(super) fn with_chrome(&self) -> Result<(Client, ServedDaemon)> {
        let home = self.path("chrome");
        fs::create_dir(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o711))?;
        let config = format!("[browser]\nports = []\nallow_networks = [\"{ALLOWED}\"]\n");
        fs::write(home.join("config.toml"), config)?;
        let daemon = start(self.repo, &home, "off")?;
        Ok((Client::connect("containment", &home.join("run/hivekeep.sock"))?, daemon))
    }

    /// Addresses of the host's bridge, and of a machine that answers as the process outside does.
    fn neighbour(&self) -> Result<(String, String)> {
        let other = json!({ "name": "other", "isolation": "vm" });
        let made = self.call("workspace_create", other)?;
        let guest = made["ip"].as_str().context("a machine without an address")?.to_owned();
        self.lend("other", &["probe"])?;
        let command = format!("{PLACE}/probe listen {MARK} {PORT}");
        let start = json!({ "workspace_id": "other", "action": "start", "command": command });
        self.call("exec_background", start)?;
        wait_for_answers(&guest)?;
        let all = cmd!(self.repo.shell, "ip -4 -o address show scope global").quiet().read()?;
        // `5: hk0    inet 10.213.0.1/16 ...`
        let bridge = all
            .lines()
            .filter(|line| !line.contains(" lo "))
            .find_map(|line| line.split_whitespace().nth(3)?.split('/').next().map(str::to_owned));
        Ok((bridge.context("the host has no address to guests")?, guest))
    }
}

impl Drop for Grounds<'_> {
    fn drop(&mut self) {
        if self.apart {
            // The namespace that it is mounted in ends anyhow.
            let _gone = unmount(PLACE, UnmountFlags::DETACH);
        }
    }
}

/// The process outside, until it is dropped.
struct Listener(Child);

impl Listener {
    fn start(probe: &Path) -> Result<Self> {
        let mut command = Command::new(probe);
        command.args(["listen", MARK, &PORT.to_string()]).stdout(Stdio::piped());
        let mut listener = Self(command.spawn()?);
        let stdout = listener.0.stdout.take().context("its output is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "nothing listens outside: {line}");
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Without a loader, so that it runs in any root file system.
fn build_probe(repo: &Repo, to: &Path) -> Result<()> {
    let source = repo.root.join("xtask/src/containment/probe/main.rs");
    let flags = ["-C", "target-feature=+crt-static", "-C", "opt-level=s", "-C", "strip=symbols"];
    cmd!(repo.shell, "rustc --edition 2024 {flags...} -o {to} {source}").quiet().run()?;
    Ok(())
}

fn start(repo: &Repo, home: &Path, network: &str) -> Result<ServedDaemon> {
    let config = home.join("config.toml");
    let config = config.to_str().context("a path that is not UTF-8")?;
    let more = [("HIVEKEEP_CONFIG", config), ("HIVEKEEP_NETWORK__MODE", network)];
    ServedDaemon::start_with(repo, home, &more)
}

/// Bounds are small, so that a probe gets beyond them.
fn config(home: &Path, apart: bool) -> String {
    let home = home.display();
    let browser = if apart { format!("program = \"{PLACE}/probe\"\n") } else { String::new() };
    format!(
        "[workspace]\ndefault_memory_mb = 256\ndefault_vcpus = 1\ndefault_disk_gb = 2\n\
         [workspace.driver]\nsandbox_max_processes = 128\n\
         [browser]\nmemory_mb = 256\n{browser}\
         [policy]\nsource_default = \"allow\"\n\
         [source.servers.probe]\ncommand = [\"{home}/lent/probe\", \"source\"]\nfolders = [\"{home}/lent:ro\"]\n\
         memory_mb = 256\nmax_processes = 64\nstart_timeout_secs = 300\n\
         [session.places.docs]\nfolder = \"{home}/docs\"\nread_only = true\n\
         [model.provider.none]\nkind = \"openai-compatible\"\nendpoint = \"http://127.0.0.1:9/v1\"\n\
         models = {{ e = {{ purpose = \"embed\" }} }}\n\
         [model.alias.embed]\nmodels = [\"none/e\"]\n"
    )
}

/// Waits until something takes connections at an address: a machine starts its programs slowly.
fn wait_for_answers(address: &str) -> Result<()> {
    let began = Instant::now();
    while let Err(error) = TcpStream::connect((address, PORT)) {
        ensure!(began.elapsed() < PATIENCE, "{address}:{PORT} is silent: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// What a probe leaves in a folder, or at most two below.
pub(super) fn left_in(folder: &Path) -> Result<Vec<Seen>> {
    let began = Instant::now();
    loop {
        if let Some(file) = find(folder, 2) {
            let text = fs::read_to_string(&file)?;
            fs::remove_file(file)?;
            return seen(&text);
        }
        ensure!(began.elapsed() < PATIENCE, "nothing is left in {}", folder.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn find(folder: &Path, depth: usize) -> Option<PathBuf> {
    let file = folder.join("containment.txt");
    if file.exists() {
        return Some(file);
    }
    let below = fs::read_dir(folder).ok()?.flatten().filter(|_| depth > 0);
    below.map(|entry| entry.path()).find_map(|path| find(&path, depth - 1))
}
