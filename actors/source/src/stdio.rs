//! Server process over its standard streams, in a sandbox of namespaces.
//!
//! Whatever the server starts is in one namespace of processes, whose first process dies with the daemon:
//! nothing of it outlives either. That is why bubblewrap runs it also where the operator wants no sandbox.

use std::{
    ffi::OsString,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hivekeep_runtime::read_secret;
use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use tokio::{
    fs::DirBuilder,
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::{SandboxKind, link::SourceShared};

/// Time for the end of a process, and of its output, after its connection has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of what a server wrote to its standard error last is kept.
const STDERR_BYTES: usize = 4 * 1024;
/// The home of a server within its sandbox.
const HOME: &str = "/srv/source";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

/// A server that runs. Dropped, it is killed with everything that it started.
pub(crate) struct ServerProcess {
    child: Child,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// Ends with its standard error.
    reader: JoinHandle<()>,
}

pub(crate) type StdioTransport = AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>;

impl ServerProcess {
    /// Starts a server.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn start(shared: &SourceShared) -> Result<(Self, StdioTransport), String> {
        let options = &shared.options;
        let home = shared.folders.state.join("sources").join(shared.name.as_str());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&home).await;
        made.map_err(|error| format!("its folder {} cannot be made: {error}", home.display()))?;
        let mut variables = vec![
            ("PATH".to_owned(), PATH.to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ];
        let at_home = match options.sandbox {
            SandboxKind::Namespaces => HOME.to_owned(),
            SandboxKind::None => home.to_string_lossy().into_owned(),
        };
        variables.push(("HOME".to_owned(), at_home));
        variables.extend(options.env.clone());
        for (name, file) in &options.env_files {
            variables.push((name.clone(), read_secret(file).await?));
        }
        let mut command = Command::new("bwrap");
        command
            .args(sandbox(shared, &home).await)
            .arg("--")
            .args(&options.command)
            .env_clear()
            .envs(variables)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "bubblewrap (`bwrap`) is not installed".to_owned(),
            _ => format!("it cannot be started: {error}"),
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("it has no standard streams".to_owned());
        };
        let tail = Arc::<Mutex<Vec<u8>>>::default();
        let reader = tokio::spawn(keep_tail(stderr, tail.clone()));
        Ok((Self { child, stderr: tail, reader }, AsyncRwTransport::new(stdout, stdin)))
    }

    /// Why it ended, and what it said last.
    pub(crate) async fn last_words(&mut self) -> String {
        let ended = timeout(LAST_WORDS, self.child.wait()).await;
        let _read = timeout(LAST_WORDS, &mut self.reader).await;
        let how = match ended {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            _ => "its process gives no answer".to_owned(),
        };
        let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = String::from_utf8_lossy(&tail);
        let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match said.trim() {
            "" => how,
            said => {
                let from = said.char_indices().rev().nth(299).map_or(0, |(at, _)| at);
                format!("{how}; it said last: {}", &said[from..])
            }
        }
    }
}

/// Arguments of bubblewrap.
async fn sandbox(shared: &SourceShared, home: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add =
        |parts: &[&std::ffi::OsStr]| args.extend(parts.iter().map(|&part| part.to_owned()));
    let os = |text: &'static str| std::ffi::OsStr::new(text);
    add(&[os("--die-with-parent"), os("--new-session"), os("--unshare-pid"), os("--unshare-ipc")]);
    if shared.options.sandbox == SandboxKind::None {
        add(&[os("--dev-bind"), os("/"), os("/"), os("--proc"), os("/proc")]);
        return args;
    }
    for flag in ["--unshare-user", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns"] {
        add(&[os(flag)]);
    }
    if !shared.options.network {
        add(&[os("--unshare-net")]);
    }
    add(&[os("--cap-drop"), os("ALL"), os("--hostname"), os("source")]);
    add(&[os("--ro-bind"), os("/usr"), os("/usr")]);
    for (link, target) in
        [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")]
    {
        // On a host where they are folders of their own they are bound as such.
        match tokio::fs::symlink_metadata(link).await.map(|it| it.is_symlink()) {
            Ok(true) => add(&[os("--symlink"), os(target), os(link)]),
            Ok(false) => add(&[os("--ro-bind"), os(link), os(link)]),
            Err(_) => {}
        }
    }
    for path in ETC {
        add(&[os("--ro-bind-try"), os(path), os(path)]);
    }
    add(&[os("--proc"), os("/proc"), os("--dev"), os("/dev"), os("--tmpfs"), os("/tmp")]);
    add(&[os("--bind"), home.as_os_str(), os(HOME), os("--chdir"), os(HOME)]);
    for folder in &shared.options.folders {
        let (how, path) = match folder.strip_suffix(":ro") {
            Some(path) => ("--ro-bind", path),
            None => ("--bind", folder.as_str()),
        };
        add(&[os(how), path.as_ref(), path.as_ref()]);
    }
    args
}

/// Reads a stream to its end and keeps the last of it.
async fn keep_tail(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&chunk[..read]);
        let excess = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..excess);
    }
}
