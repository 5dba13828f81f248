//! Programs of the operator's on this host, in namespaces: what they see, and how they end.
//!
//! bubblewrap is the first process of a namespace of processes and dies with the daemon, so nothing that such
//! a program starts outlives either; what is killed before that holds is [`child`]'s matter.

mod child;
mod enclosure;
mod users;

use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::lock;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use enclosure::{Enclosure, Part};
use hivekeep_confine::syscalls::FilterSet;

pub use child::{HostChild, HostCommand, HostGroup, HostGroups, bound_by, end_orphans};
pub use enclosure::HostBounds;
pub use users::{HostProgram, HostUsers, tried};

/// Time for the end of a process, and of its output.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes kept of the end of a program's standard error.
const STDERR_BYTES: usize = 4 * 1024;

/// Search path of programs.
pub const PROGRAM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Paths of the host's `/etc` that resolve names, users and certificates.
pub const ETC: &[&str] = &[
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
/// User within a sandbox that is not the daemon's own outside.
const UID_WITHIN: &str = "1000";

/// Namespaces of a program: the host's programs read-only, a home of its own, and what is named here.
#[derive(Debug, Clone, Copy)]
pub struct HostSandbox<'a> {
    /// Name of the host that the program sees.
    pub hostname: &'static str,
    /// User of the host that it runs as, if not the daemon's: [`HostUsers::uid`].
    pub uid: Option<u32>,
    /// Folder on the host that is its home, and where it sees it.
    pub home: (&'a Path, &'static str),
    /// Whether it has the network that it is started in.
    pub network: bool,
    /// Paths in `/etc`, and beside it, that the program sees; those that do not exist are left out.
    pub etc: &'a [&'a str],
    /// Folders of the host at their own paths: read-only as `/data:ro`.
    pub folders: &'a [String],
    /// Size of its `/tmp`; `None`: half of the host's memory.
    pub tmp_mb: Option<u64>,
    /// Whether it makes namespaces and filters of its own, as Chrome does for each page.
    pub nests: bool,
    /// Bounds of its memory and of the number of its processes.
    pub bounds: HostBounds,
}

impl HostSandbox<'_> {
    /// bubblewrap, to which the program and its arguments are to be added.
    ///
    /// # Errors
    /// The reason, for people.
    pub async fn command(&self) -> Result<HostCommand, String> {
        let mut command = HostCommand::bwrap();
        self.add_to(&mut command).await?;
        Ok(command)
    }

    /// Has bubblewrap make the sandbox. Steps before exec that the command was given until now run as the
    /// daemon's user, later ones as the program's.
    ///
    /// # Errors
    /// The reason, for people.
    pub async fn add_to(&self, bwrap: &mut HostCommand) -> Result<(), String> {
        let folders = self.folders.iter().map(|folder| match folder.strip_suffix(":ro") {
            Some(path) => Part { path: path.into(), read_only: true },
            None => Part { path: folder.into(), read_only: false },
        });
        let home = Part { path: self.home.0.to_owned(), read_only: false };
        let parts: Vec<Part> = std::iter::once(home).chain(folders).collect();
        let filters = if self.nests { FilterSet::SocketsAndModes } else { FilterSet::WithoutSetId };
        let (uid, bounds) = (self.uid, self.bounds);
        let make = move || {
            let group = child::make_group(bounds)?;
            let procs = group.as_ref().map(|group| group.procs()).transpose()?;
            Ok((Enclosure::new(uid, parts, filters, bounds, procs)?, group))
        };
        let made = spawn_blocking(make).await;
        let (enclosure, group) = made
            .unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(|error| format!("its sandbox cannot be made: {error}"))?;
        bwrap.group = group;
        bwrap.args(self.arguments(&enclosure, beside_usr().await)).arg("--");
        enclosure.arm(bwrap);
        Ok(())
    }

    fn arguments(&self, enclosure: &Enclosure, beside_usr: Vec<OsString>) -> Vec<OsString> {
        let mut args = own_processes();
        let mut add = |words: &[&OsStr]| args.extend(words.iter().map(|&word| word.to_owned()));
        add(&["--unshare-user", "--unshare-uts", "--unshare-cgroup-try"].map(os));
        if self.uid.is_some() || self.nests {
            add(&["--uid", UID_WITHIN, "--gid", UID_WITHIN].map(os));
        }
        if !self.nests {
            add(&[os("--disable-userns")]);
        }
        if !self.network {
            add(&[os("--unshare-net")]);
        }
        add(&["--cap-drop", "ALL", "--hostname", self.hostname].map(os));
        add(&["--ro-bind", "/usr", "/usr"].map(os));
        args.extend(beside_usr);
        let mut add = |words: &[&OsStr]| args.extend(words.iter().map(|&word| word.to_owned()));
        for path in self.etc {
            add(&["--ro-bind-try", path, path].map(os));
        }
        add(&["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"].map(os));
        if let Some(tmp_mb) = self.tmp_mb {
            add(&[os("--size"), os(&(tmp_mb * 1024 * 1024).to_string())]);
        }
        add(&["--tmpfs", "/tmp"].map(os));
        for (number, part) in enclosure.parts.iter().enumerate() {
            let within = if number == 0 { Path::new(self.home.1) } else { &part.path };
            let how = if part.read_only { "--ro-bind" } else { "--bind" };
            add(&[os(how), &enclosure.source(number), within.as_os_str()]);
        }
        add(&["--chdir", self.home.1].map(os));
        args.extend(enclosure.filter_arguments());
        args
    }
}

/// Arguments of `bwrap` for the folders beside `/usr` that programs are found in, as the host has them.
async fn beside_usr() -> Vec<OsString> {
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
fn own_processes() -> Vec<OsString> {
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
            Ok(Ok(status)) if child.ran_out() => {
                let why = "its processes took more memory together than it may have";
                format!("its process ended ({status}): {why}")
            }
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

    /// The last of the standard error, as it stands.
    pub fn said(&self) -> String {
        let tail = lock(&self.bytes);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

async fn keep_tail(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut tail = lock(&tail);
        tail.extend_from_slice(&chunk[..read]);
        let excess = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests;
