//! Programs of the operator's on this host, in namespaces: what they see, and how they end.
//!
//! bubblewrap is the first process of a namespace of processes and dies with the daemon, so nothing that such
//! a program starts outlives either; what is killed before that holds is [`child`]'s matter.

mod child;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    task::JoinHandle,
    time::timeout,
};

pub use child::{HostChild, end_orphans};

/// Time for the end of a process, and of its output.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of what a program wrote to its standard error last is kept.
const STDERR_BYTES: usize = 4 * 1024;

/// Search path of programs.
pub const PROGRAM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a sandbox has of the host's `/etc`: what resolves names, users and certificates.
const ETC: [&str; 13] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/ssl",
];

/// Namespaces of a program: the host's programs read-only, a home of its own, and what is named here.
#[derive(Debug, Clone, Copy)]
pub struct HostSandbox<'a> {
    /// Name of the host that the program sees.
    pub hostname: &'static str,
    /// Folder on the host that is its home, and where it sees it.
    pub home: (&'a Path, &'static str),
    /// Whether it has the host's network.
    pub network: bool,
    /// Folders of the host at their own paths: read-only as `/data:ro`.
    pub folders: &'a [String],
}

impl HostSandbox<'_> {
    /// Arguments of `bwrap`, before `--` and the program.
    pub async fn arguments(&self) -> Vec<OsString> {
        let mut args = own_processes();
        let mut add = |parts: &[&OsStr]| args.extend(parts.iter().map(|&part| part.to_owned()));
        for flag in ["--unshare-user", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns"]
        {
            add(&[os(flag)]);
        }
        if !self.network {
            add(&[os("--unshare-net")]);
        }
        add(&[os("--cap-drop"), os("ALL"), os("--hostname"), os(self.hostname)]);
        add(&[os("--ro-bind"), os("/usr"), os("/usr")]);
        args.extend(beside_usr().await);
        let mut add = |parts: &[&OsStr]| args.extend(parts.iter().map(|&part| part.to_owned()));
        for path in ETC {
            add(&[os("--ro-bind-try"), os(path), os(path)]);
        }
        add(&[os("--proc"), os("/proc"), os("--dev"), os("/dev"), os("--tmpfs"), os("/tmp")]);
        let (home, inside) = self.home;
        add(&[os("--bind"), home.as_os_str(), os(inside), os("--chdir"), os(inside)]);
        for folder in self.folders {
            let (how, path) = match folder.strip_suffix(":ro") {
                Some(path) => ("--ro-bind", path),
                None => ("--bind", folder.as_str()),
            };
            add(&[os(how), path.as_ref(), path.as_ref()]);
        }
        args
    }
}

/// Arguments of `bwrap` for the folders beside `/usr` that programs are found in, as the host has them.
pub async fn beside_usr() -> Vec<OsString> {
    let mut args = Vec::new();
    for (link, target) in
        [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")]
    {
        // On a host where they are folders of their own they are bound as such.
        match tokio::fs::symlink_metadata(link).await.map(|it| it.is_symlink()) {
            Ok(true) => args.extend(["--symlink", target, link].map(OsString::from)),
            Ok(false) => args.extend(["--ro-bind", link, link].map(OsString::from)),
            Err(_) => {}
        }
    }
    args
}

/// Arguments of `bwrap` for a program in the daemon's own surroundings, which still dies with the daemon.
pub fn unconfined() -> Vec<OsString> {
    let mut args = own_processes();
    let all = ["--dev-bind", "/", "/", "--proc", "/proc"];
    args.extend(all.map(OsString::from));
    args
}

/// Arguments of `bwrap` for processes of its own, which end with the daemon.
pub fn own_processes() -> Vec<OsString> {
    let flags = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unsetenv", child::MARK];
    flags.map(OsString::from).to_vec()
}

fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// The last of what a program wrote to its standard error.
#[derive(Debug)]
pub struct StderrTail {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Ends with the stream.
    reader: JoinHandle<()>,
}

impl StderrTail {
    /// Reads a stream to its end and keeps the last of it.
    pub fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let reader = tokio::spawn(keep_tail(stream, bytes.clone()));
        Self { bytes, reader }
    }

    /// Why a process ended, and what it said last.
    pub async fn last_words(&mut self, child: &mut HostChild) -> String {
        let ended = timeout(LAST_WORDS, child.wait()).await;
        let _read = timeout(LAST_WORDS, &mut self.reader).await;
        let how = match ended {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            _ => "its process gives no answer".to_owned(),
        };
        let said: String =
            self.said().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match said.trim() {
            "" => how,
            said => {
                let from = said.char_indices().rev().nth(299).map_or(0, |(at, _)| at);
                format!("{how}; it said last: {}", &said[from..])
            }
        }
    }

    /// What it said last, as it stands.
    pub fn said(&self) -> String {
        let tail = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

async fn keep_tail(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&chunk[..read]);
        let excess = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..excess);
    }
}
