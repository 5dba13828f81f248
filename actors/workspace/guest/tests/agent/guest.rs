//! A daemon process of its own for each test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const BIN: &str = env!("CARGO_BIN_EXE_hivekeep-guest");
pub const TOKEN: [u8; 32] = [7; 32];

/// How the daemon contains commands in a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Subreaper,
    Cgroup,
}

pub struct Guest {
    pub dir: TempDir,
    child: Child,
    way: Way,
}

/// A directory for cgroups v2, where this host lets us make one. Tests of one process look once, or
/// they would meet each other's probe.
fn cgroup_parent() -> Option<&'static Path> {
    static PARENT: OnceLock<Option<&Path>> = OnceLock::new();
    let usable = |dir: &&Path| {
        let probe = dir.join(format!("hivekeep-probe-{}", std::process::id()));
        let usable = std::fs::create_dir(&probe).is_ok() && probe.join("cgroup.kill").exists();
        let _ = std::fs::remove_dir(probe);
        usable
    };
    let all = || ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new).into_iter();
    *PARENT.get_or_init(|| all().find(usable))
}

/// The ways that this host can do; says so if one is missing.
pub fn ways() -> Vec<Way> {
    if cgroup_parent().is_some() {
        vec![Way::Subreaper, Way::Cgroup]
    } else {
        hivekeep_skip::skip("containment by cgroup: no writable cgroup v2 on this host");
        vec![Way::Subreaper]
    }
}

impl Guest {
    pub fn start(way: Way) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let child = Self::spawn(dir.path(), way);
        let guest = Self { dir, child, way };
        guest.wait_for_socket();
        guest
    }

    fn spawn(dir: &Path, way: Way) -> Child {
        let _ = std::fs::remove_file(dir.join("socket"));
        let mut command = Command::new(BIN);
        command.arg("agent").arg("--unix").arg(dir.join("socket"));
        command.arg("--state-dir").arg(dir.join("state")).arg("--run-dir").arg(dir.join("run"));
        command.arg("--token-hash").arg(blake3::hash(&TOKEN).to_hex().as_str());
        command.arg("--peer-uid").arg(rustix::process::getuid().as_raw().to_string());
        if way == Way::Cgroup {
            command.arg("--cgroup-root").arg(cgroup_of(dir).expect("checked by ways()"));
        }
        command.spawn().expect("the daemon starts")
    }

    fn wait_for_socket(&self) {
        eventually("the daemon listens", || {
            std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
        });
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, then a new daemon on the same folders.
    pub fn crash_and_restart(&mut self) {
        self.stop();
        self.go_on();
    }

    /// SIGKILL.
    pub fn stop(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// A new daemon on the folders of the one that was stopped.
    pub fn go_on(&mut self) {
        self.child = Self::spawn(self.dir.path(), self.way);
        self.wait_for_socket();
    }

    /// Where it makes its cgroups.
    pub fn cgroups(&self) -> PathBuf {
        cgroup_of(self.dir.path()).expect("checked by ways()")
    }

    pub fn exit_status(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the daemon exits", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Most memory that the daemon has held, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

fn cgroup_of(dir: &Path) -> Option<PathBuf> {
    let name = dir.file_name()?.to_string_lossy().replace('.', "");
    Some(cgroup_parent()?.join(format!("hivekeep-test-{name}")))
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let jobs = ["state/jobs", "run/runs"].map(|of| self.dir.path().join(of));
        let jobs = jobs.into_iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten();
        for job in jobs.flatten() {
            let text = std::fs::read_to_string(job.path().join("process.json")).unwrap_or_default();
            for pid in
                text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<i32>().ok())
            {
                let running = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                if running.is_ok_and(|line| line.contains(&*self.dir.path().to_string_lossy())) {
                    kill_tree(pid);
                }
            }
        }
        if self.way == Way::Cgroup
            && let Some(root) = cgroup_of(self.dir.path())
        {
            let _ = std::fs::write(root.join("cgroup.kill"), "1");
            let deadline = Instant::now() + Duration::from_secs(5);
            while remove_all(&root).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Kills a process and all that descends from it.
fn kill_tree(pid: i32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let raw = rustix::process::Pid::from_raw(pid);
    if let Some(pid) = raw {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    for child in children.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()) {
        kill_tree(child);
    }
}

fn remove_all(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_all(&entry.path())?;
        }
    }
    std::fs::remove_dir(dir)
}

/// Waits for something that has to come, with a deadline for the case that it does not.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs whose command line holds `mark`.
pub fn runs(mark: &str) -> bool {
    std::fs::read_dir("/proc").expect("/proc").flatten().any(|entry| {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { return false };
        pid != std::process::id()
            && std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    })
}

impl Guest {
    /// Dead children that the daemon has not collected.
    pub fn zombies(&self) -> usize {
        let me = self.pid().to_string();
        let is_zombie = |entry: &std::fs::DirEntry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let rest = stat.rsplit(')').next().unwrap_or_default();
            let fields: Vec<&str> = rest.split_whitespace().collect();
            fields.len() > 2 && fields[0] == "Z" && fields[1] == me
        };
        std::fs::read_dir("/proc").expect("/proc").flatten().filter(is_zombie).count()
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("fds").count()
    }
}
