//! The sandbox role under the real bubblewrap, as root and as nobody. What it shows
//! is a small tree of busybox alone: an overlay cannot have its upper folder below
//! its lower one, as it would with the host's root. Nothing there is dynamic, so the
//! guest is the static one of `TEST_HIVEKEEP_GUEST`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use hivekeep_protocol::*;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use tempfile::TempDir;

use crate::client::Host;
use crate::guest::{TOKEN, eventually};

struct Sandbox {
    dir: TempDir,
    child: Child,
    /// The host's end of its console.
    console: File,
    _listener: UnixListener,
}

const BWRAP: &str = "bwrap --unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts \
    --uid 0 --gid 0 --cap-add ALL --as-pid-1 --new-session --hostname box --proc /proc \
    --dev-bind /dev /dev --dir /newroot";
/// Busybox linked statically, where distributions put it.
const BUSYBOX: [&str; 2] = ["/usr/bin/busybox", "/bin/busybox"];
const APPLETS: [&str; 15] = [
    "cat", "chmod", "dd", "grep", "head", "hostname", "id", "ls", "mkdir", "mount", "sh", "sleep",
    "umount", "unshare", "wc",
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
    // The sandbox's user owns it, as where the daemon is no other user.
    let fifo = dir.path().join("console");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    chown(&fifo, Some(uid), Some(uid)).expect("chown");
    let console = rustix::fs::open(&fifo, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty());
    let console = File::from(console.expect("both ends"));
    let console_fd = console.as_raw_fd();
    let line = format!(
        "{BWRAP} --ro-bind {lower} /lower --bind {disk} /disk --ro-bind {guest} /hivekeep-guest /hivekeep-guest sandbox \
         --lower /lower --upper /disk/upper --work /disk/work --unix-fd {fd} --token-hash {hash} \
         --peer-uid {me} --rlimit nofile=4096 --rlimit core=1 --rlimit nproc=300 \
         --rlimit sigpending=999999999999 --tmpfs-mb 8 --inotify-instances 5 --console-fd {console_fd}",
        lower = lower.display(),
        disk = disk.display(),
        guest = guest.display(),
        hash = blake3::hash(&TOKEN).to_hex(),
        me = rustix::process::getuid().as_raw(),
    );
    let id = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    let log =
        File::options().create(true).append(true).open(dir.path().join("log")).expect("a log");
    command.args(line.split_whitespace()).stdout(log.try_clone().expect("twice")).stderr(log);
    let child = command.spawn().map_err(|error| format!("setpriv: {error}"))?;
    let mut sandbox = Sandbox { dir, child, console, _listener: listener };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let Some(status) = sandbox.child.try_wait().expect("wait") else { return Ok(sandbox) };
    let said = std::fs::read_to_string(sandbox.dir.path().join("log")).expect("the log");
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

async fn said(host: &Host, line: &str) -> String {
    let output = host.sh(line).await;
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A sandbox as most are, and a link into it.
async fn linked() -> Option<(Sandbox, Host)> {
    match start(65_534) {
        Ok(sandbox) => {
            let host = Host::dial(&sandbox.dir.path().join("socket")).await;
            Some((sandbox, host))
        }
        Err(reason) => {
            hivekeep_skip::skip(reason);
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_commands_in_it() {
    let Some((_sandbox, host)) = linked().await else { return };
    crate::storm::blow(host).await;
}

#[tokio::test]
async fn its_memory_and_its_counts_have_limits() {
    let Some((_sandbox, host)) = linked().await else { return };
    let host = &host;
    for place in ["/dev/shm", "/run"] {
        let fill =
            format!("head -c 9000000 /dev/zero > {place}/x; wc -c < {place}/x; true > {place}/x");
        let told = said(host, &fill).await;
        let bytes = told.lines().find_map(|line| line.parse::<u64>().ok()).expect("a size");
        assert!((8_000_000..=8 << 20).contains(&bytes), "{place}: {told}");
    }
    let files = "i=0; while true > /dev/shm/$i && [ $i -lt 3000 ]; do i=$((i+1)); done 2>/dev/null; echo $i";
    let files: u32 = said(host, files).await.trim().parse().expect("a number");
    assert!((2000..2100).contains(&files), "{files} empty files");
    let limits = said(host, "cat /proc/self/limits").await;
    for (name, value) in [("open files", "4096"), ("core file size", "1"), ("processes", "300")] {
        let line = limits.lines().find(|line| line.starts_with(&format!("Max {name} ")));
        let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
        // The hard one, ahead of the unit; the host may have a lower soft one.
        assert_eq!(words.iter().rev().nth(1), Some(&value), "{name}: {limits}");
    }
    let counts = "cd /proc/sys/user; for n in *_namespaces inotify_instances; do \
        cat max_${n#max_}; echo 7 > max_${n#max_}; done 2>&1 | grep -v denied";
    let counts = said(host, counts).await;
    let counts: Vec<_> = counts.lines().collect();
    let (instances, namespaces) = counts.split_last().expect("counts");
    assert_eq!(*instances, "5");
    assert!(namespaces.len() >= 7 && namespaces.iter().all(|most| *most == "0"), "{counts:?}");
}

/// All families, types and some protocols of sockets, and all calls that are numbered from 424 on.
#[tokio::test]
async fn only_listed_sockets_and_newer_calls_are_there() {
    let Some((_sandbox, host)) = linked().await else { return };
    let host = &host;
    let told = said(host, "/run/hivekeep/guest selftest-calls").await;
    let (calls, sockets): (Vec<_>, Vec<_>) =
        told.lines().partition(|line| line.starts_with("call "));
    // A host may have less, such as no IPv6; raw sockets take a capability.
    let mut may = BTreeSet::new();
    for kind in [1, 2, 3, 5] {
        may.extend(["socket", "socketpair"].map(|call| format!("{call} 1 {kind} 0")));
        may.extend(["socket", "socketpair"].map(|call| format!("{call} 1 {kind} 1")));
    }
    for family in [2, 10] {
        may.extend(
            [(1, 0), (1, 6), (2, 0), (2, 17), (2, 1), (2, 58)]
                .map(|(kind, protocol)| format!("socket {family} {kind} {protocol}")),
        );
    }
    may.extend([2, 3].map(|kind| format!("socket 16 {kind} 0")));
    let beyond: Vec<_> = sockets.iter().filter(|line| !may.contains(**line)).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
    for there in
        ["socket 1 1 0", "socketpair 1 5 0", "socket 2 1 0", "socket 2 2 17", "socket 16 3 0"]
    {
        assert!(sockets.contains(&there), "{there}: {told}");
    }
    let asked: Vec<_> = [101, 212, 250, 272, 298, 304, 308, 310, 321, 323]
        .iter()
        .map(|call| call.to_string())
        .collect();
    let older = format!("/run/hivekeep/guest selftest-calls {}", asked.join(" "));
    let older = said(host, &older).await;
    let refused = "425 426 427 428 429 430 431 432 433 438 440 442 443 447 450";
    let refused: Vec<_> = refused.split(' ').chain(asked.iter().map(String::as_str)).collect();
    let known =
        "424 434 436 437 439 441 444 445 446 448 449 452 453 454 455 456 462 463 464 465 466";
    let known: Vec<_> = known.split(' ').collect();
    assert_eq!(calls.len(), 600 - 424 + 1);
    for line in calls.into_iter().chain(older.lines()) {
        let words: Vec<_> = line.split(' ').collect();
        let errno = match words[1] {
            call if refused.contains(&call) => "1",
            call if known.contains(&call) => {
                assert!(words[2] != "0" && words[2] != "1", "{line}");
                continue;
            }
            _ => "38",
        };
        assert_eq!(words[2], errno, "{line}");
    }
    // x86_64's second door, to getpid.
    let second = said(host, "/run/hivekeep/guest selftest-calls 1073741863 434").await;
    assert!(second.starts_with("call 1073741863 38\ncall 434 22\n"), "{second}");
}

#[tokio::test]
async fn what_it_said_cannot_be_taken_back() {
    let Some((mut sandbox, host)) = linked().await else { return };
    let host = &host;
    let files = "for p in /proc/[0-9]*; do for n in 0 1 2; do [ -f $p/fd/$n ] && echo $p $n; done; done; true";
    assert_eq!(said(host, files).await, "");
    let log = || std::fs::read_to_string(sandbox.dir.path().join("log")).expect("the log");
    let before = log();
    assert!(before.contains("sandbox: landlock"), "{before}");
    let forge = "for n in 1 2; do echo forged >> /proc/1/fd/$n; true > /proc/1/fd/$n; \
        dd if=/dev/null of=/proc/1/fd/$n; chmod 0 /proc/1/fd/$n; done";
    let told = said(host, forge).await;
    assert_eq!(log(), before);
    // Where it may be opened at all it is a pipe: what is said there is added, and nothing else.
    let mut heard = [0; 64];
    let count = match sandbox.console.read(&mut heard) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
        read => read.expect("the console can be read"),
    };
    let refused = told.matches("Permission denied").count();
    assert!(count == 0 && refused >= 6 || heard[..count] == *b"forged\nforged\n", "{told}");
}

async fn is_contained(uid: u32) {
    let mut sandbox = match start(uid) {
        Ok(sandbox) => sandbox,
        Err(reason) => return hivekeep_skip::skip(format_args!("sandbox as user {uid}: {reason}")),
    };
    let host = Host::dial(&sandbox.dir.path().join("socket")).await;
    assert_eq!(host.welcome.containment, Containment::Subreaper);
    let text = async |line: &str| said(&host, line).await;
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
