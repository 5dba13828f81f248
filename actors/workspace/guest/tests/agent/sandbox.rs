//! The sandbox role under the real bubblewrap, as root and as nobody. What it shows
//! is a small tree of busybox alone: an overlay cannot have its upper folder below
//! its lower one, as it would with the host's root. Nothing there is dynamic, so the
//! guest is the static one of `TEST_HIVEKEEP_GUEST`.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hivekeep_protocol::*;
use tempfile::TempDir;

use crate::client::Host;
use crate::guest::{TOKEN, eventually};

struct Sandbox {
    dir: TempDir,
    child: Child,
    _listener: UnixListener,
}

const BWRAP: &str = "bwrap --unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts \
    --uid 0 --gid 0 --cap-add ALL --as-pid-1 --new-session --hostname box --proc /proc \
    --dev-bind /dev /dev --dir /newroot";
/// Busybox linked statically, where distributions put it.
const BUSYBOX: [&str; 2] = ["/usr/bin/busybox", "/bin/busybox"];
const APPLETS: [&str; 13] = [
    "cat", "grep", "head", "hostname", "id", "ls", "mkdir", "mount", "sh", "sleep", "umount",
    "unshare", "wc",
];

/// The root file system that the sandbox shows.
fn tree(at: &Path) -> Result<(), String> {
    let busybox = BUSYBOX.map(Path::new).into_iter().find(|path| path.exists());
    let busybox = busybox.ok_or("there is no busybox")?;
    let elf = std::fs::read(busybox).map_err(|error| format!("{}: {error}", busybox.display()))?;
    // The loader's path stands right behind the headers.
    if elf[..elf.len().min(4096)].windows(4).any(|part| part == b"/ld-") {
        return Err(format!("{} is not linked statically", busybox.display()));
    }
    for folder in ["bin", "dev", "mnt", "proc", "root", "tmp"] {
        std::fs::create_dir_all(at.join(folder)).expect("a folder");
    }
    std::fs::copy(busybox, at.join("bin/busybox")).expect("busybox");
    for applet in APPLETS {
        symlink("busybox", at.join("bin").join(applet)).expect("an applet");
    }
    Ok(())
}

/// Why it cannot be started here, as far as that is known beforehand or bubblewrap
/// and the sandbox say it.
fn start(uid: u32) -> Result<Sandbox, String> {
    if !rustix::process::getuid().is_root() {
        return Err("not root".into());
    }
    let program = std::env::var_os("TEST_HIVEKEEP_GUEST").map(PathBuf::from);
    let program = program.ok_or("TEST_HIVEKEEP_GUEST is not set")?;
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    let (disk, guest) = (dir.path().join("disk"), dir.path().join("guest"));
    std::fs::copy(program, &guest).expect("the program");
    let lower = dir.path().join("lower");
    tree(&lower)?;
    for folder in [disk.clone(), disk.join("upper"), disk.join("work")] {
        std::fs::create_dir(&folder).expect("a folder");
        chown(&folder, Some(uid), Some(uid)).expect("chown");
    }
    let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
    let fd = listener.as_raw_fd();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).expect("inheritable");
    let line = format!(
        "{BWRAP} --ro-bind {lower} /lower --bind {disk} /disk --ro-bind {guest} /hivekeep-guest /hivekeep-guest sandbox \
         --lower /lower --upper /disk/upper --work /disk/work --unix-fd {fd} --token-hash {hash} \
         --peer-uid {me} --rlimit nofile=4096",
        lower = lower.display(),
        disk = disk.display(),
        guest = guest.display(),
        hash = blake3::hash(&TOKEN).to_hex(),
        me = rustix::process::getuid().as_raw(),
    );
    let id = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.args(line.split_whitespace()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("setpriv: {error}"))?;
    let mut sandbox = Sandbox { dir, child, _listener: listener };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let Some(status) = sandbox.child.try_wait().expect("wait") else { return Ok(sandbox) };
    let mut said = String::new();
    let _ = sandbox.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    Err(format!("{status}: {}", said.trim()))
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let bwrap = self.child.id().to_string();
        let children = format!("/proc/{bwrap}/task/{bwrap}/children");
        for pid in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_contained(uid: u32) {
    let mut sandbox = match start(uid) {
        Ok(sandbox) => sandbox,
        Err(reason) => return eprintln!("SKIPPED: sandbox as user {uid}: {reason}"),
    };
    let host = Host::dial(&sandbox.dir.path().join("socket")).await;
    assert_eq!(host.welcome.containment, Containment::Subreaper);
    let text = async |line: &str| {
        let output = host.sh(line).await;
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(text("id -u; hostname; ulimit -Hn").await, "0\nbox\n4096\n");
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
    // NET_BIND_SERVICE, SYS_CHROOT, SETFCAP; no more.
    let rights = text("grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status").await;
    let expected =
        "CapEff:\t00000000800405fb\nCapBnd:\t00000000800405fb\nNoNewPrivs:\t1\nSeccomp:\t2\n";
    assert_eq!(rights, expected);
    for refused in ["mount -t tmpfs t /mnt", "umount /proc", "unshare -U true", "unshare -n true"] {
        let output = host.sh(refused).await;
        assert_ne!(output.reply.expect("ran").exit, Exit::Code(0), "{refused}");
    }
    assert_eq!(
        text("echo > /dev/null; head -c 3 /dev/zero | wc -c; ls /lower /disk 2>&1 | grep -c No")
            .await,
        "3\n2\n"
    );
    let made = format!("/hivekeep-made-{}", std::process::id());
    text(&format!("mkdir {made}; echo x > {made}/x; cat {made}/x")).await;
    assert!(!std::path::Path::new(&made).exists(), "the host's root is untouched");
    assert!(sandbox.dir.path().join("disk/upper").join(&made[1..]).join("x").exists());
    let job = JobStart {
        job_id: "j".into(),
        argv: Argv::Shell("sleep 1000".into()),
        env: vec![],
        workdir: None,
        spool_bytes: 100,
    };
    host.ask(job).await.expect("started");
    host.ask(Shutdown { grace_ms: 2000 }).await.expect("answered");
    let mut status = None;
    eventually("the sandbox ends", || {
        status = sandbox.child.try_wait().expect("wait");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

#[tokio::test]
async fn root_is_contained() {
    is_contained(0).await;
}

#[tokio::test]
async fn an_unprivileged_user_is_contained() {
    is_contained(65_534).await;
}
