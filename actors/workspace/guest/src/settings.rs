//! Settings of the roles: the command lines of those that people and drivers start, what the daemon is started with,
//! and names that its processes agree on.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

/// Present in the run folder while the machine shuts down.
pub const SHUTDOWN_FILE: &str = "shutdown";

/// Kind of place that the daemon runs in, and so what is its own to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// A kernel of its own: clock, host name, entropy and disk belong to it.
    Vm,
    /// Namespaces on a shared kernel.
    Sandbox,
}

/// Settings that the daemon is started with.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// BLAKE3 of the host's token.
    pub token_hash: [u8; 32],
    /// Path of this program, for its shims.
    pub exe: PathBuf,
    /// Kept over reboots: jobs and tasks.
    pub state_dir: PathBuf,
    /// Gone after a reboot.
    pub run_dir: PathBuf,
    /// The kind of place.
    pub place: GuestKind,
    /// A cgroup v2 directory for commands; `None` contains by subreaper.
    pub cgroup_root: Option<PathBuf>,
}

/// The command line makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Syntax error found by the parser.
    #[error(transparent)]
    Syntax(#[from] lexopt::Error),
    /// A value does not fit its option.
    #[error("{option}: {value:?} {expected}")]
    Value {
        /// The option.
        option: &'static str,
        /// Value given.
        value: String,
        /// Description of the values that fit.
        expected: &'static str,
    },
    /// An option that has no default was not given.
    #[error("{0} is required")]
    Missing(&'static str),
}

/// Where the agent finds its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkPort {
    /// The virtio-serial port.
    Virtio,
    /// The vsock port, and the CIDs served.
    Vsock(Vec<u32>),
    /// An inherited listening socket.
    UnixFd(i32),
    /// A socket to bind.
    UnixPath(PathBuf),
}

/// Options of the `agent` role.
#[derive(Debug, Clone)]
pub struct AgentArgs {
    /// `--carrier virtio-serial|vsock`, `--unix-fd N` or `--unix PATH`.
    pub link: LinkPort,
    /// `--token-hash HEX`: BLAKE3 of the token.
    pub token_hash: [u8; 32],
    /// `--peer-uid U`, repeatable: users served on a Unix socket.
    pub peer_uids: Vec<u32>,
    /// `--place vm|sandbox`.
    pub place: GuestKind,
    /// `--state-dir DIR`.
    pub state_dir: PathBuf,
    /// `--run-dir DIR`.
    pub run_dir: PathBuf,
    /// `--cgroup-root DIR`: a cgroup v2 for commands.
    pub cgroup_root: Option<PathBuf>,
}

/// Options of the `sandbox` role.
#[derive(Debug, Clone)]
pub struct SandboxArgs {
    /// `--lower DIR`: the root's read-only part.
    pub lower: PathBuf,
    /// `--upper DIR`: what the sandbox changes.
    pub upper: PathBuf,
    /// `--work DIR`: overlayfs's own, on the file system of `upper`.
    pub work: PathBuf,
    /// `--unix-fd N`: the inherited listening socket.
    pub unix_fd: i32,
    /// `--token-hash HEX`, as for the agent.
    pub token_hash: String,
    /// `--machine-id HEX`: 32 hexadecimal digits, for a sandbox that has no machine id yet.
    pub machine_id: Option<String>,
    /// `--peer-uid U`, repeatable, in the numbers of the namespace around the sandbox's.
    pub peer_uids: Vec<u32>,
    /// `--rlimit NAME=VALUE`, repeatable.
    pub rlimits: Vec<(rustix::process::Resource, u64)>,
    /// `--tmpfs-mb N`: most that `/run` and `/dev/shm` hold each.
    pub tmpfs_mb: Option<u64>,
    /// `--inotify-instances N`: most of them in the sandbox.
    pub inotify_instances: Option<u32>,
    /// `--volume DIR PATH`, repeatable: a folder to mount, and its absolute path in the sandbox.
    pub volumes: Vec<(PathBuf, PathBuf)>,
    /// `--no-set-id`: no file may be given the set-user-id or set-group-id bit.
    pub no_set_id: bool,
    /// `--console-fd N`: an inherited pipe that becomes stdout and stderr once everything is confined.
    pub console_fd: Option<i32>,
}

/// The host's address on AF_VSOCK.
pub const HOST_CID: u32 = 2;
const STATE_DIR: &str = "/var/lib/hivekeep";
/// The run folder of a guest.
pub const RUN_DIR: &str = "/run/hivekeep";

fn words(words: impl Iterator<Item = OsString>) -> Parser {
    Parser::from_args(words)
}

/// Reads the agent's options.
///
/// # Errors
/// See [`Error`].
pub fn agent(args: impl Iterator<Item = OsString>) -> Result<AgentArgs, Error> {
    let mut parser = words(args);
    let (mut carrier, mut token_hash, mut place) = (None, None, GuestKind::Sandbox);
    let (mut peer_uids, mut cids) = (Vec::new(), vec![HOST_CID]);
    let (mut state_dir, mut run_dir) = (PathBuf::from(STATE_DIR), PathBuf::from(RUN_DIR));
    let mut cgroup_root = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("carrier") => {
                carrier = Some(match parser.value()?.string()?.as_str() {
                    "virtio-serial" => LinkPort::Virtio,
                    "vsock" => LinkPort::Vsock(Vec::new()),
                    other => {
                        return Err(value("--carrier", other, "is not virtio-serial or vsock"));
                    }
                });
            }
            Arg::Long("unix-fd") => carrier = Some(LinkPort::UnixFd(parser.value()?.parse()?)),
            Arg::Long("unix") => carrier = Some(LinkPort::UnixPath(parser.value()?.into())),
            Arg::Long("token-hash") => token_hash = Some(hash(&parser.value()?.string()?)?),
            Arg::Long("peer-uid") => peer_uids.push(parser.value()?.parse()?),
            Arg::Long("allow-cid") => cids.push(parser.value()?.parse()?),
            Arg::Long("place") => {
                place = match parser.value()?.string()?.as_str() {
                    "vm" => GuestKind::Vm,
                    "sandbox" => GuestKind::Sandbox,
                    other => return Err(value("--place", other, "is not vm or sandbox")),
                };
            }
            Arg::Long("state-dir") => state_dir = parser.value()?.into(),
            Arg::Long("run-dir") => run_dir = parser.value()?.into(),
            Arg::Long("cgroup-root") => cgroup_root = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let link = match carrier.ok_or(Error::Missing("--carrier, --unix-fd or --unix"))? {
        LinkPort::Vsock(_) => LinkPort::Vsock(cids),
        other => other,
    };
    let token_hash = token_hash.ok_or(Error::Missing("--token-hash"))?;
    Ok(AgentArgs { link, token_hash, peer_uids, place, state_dir, run_dir, cgroup_root })
}

/// Reads the sandbox's options.
///
/// # Errors
/// See [`Error`].
pub fn sandbox(args: impl Iterator<Item = OsString>) -> Result<SandboxArgs, Error> {
    let mut parser = words(args);
    let (mut lower, mut upper, mut work) = (None, None, None);
    let (mut unix_fd, mut token_hash, mut machine_id) = (None, None, None);
    let (mut peer_uids, mut rlimits) = (Vec::new(), Vec::new());
    let (mut tmpfs_mb, mut inotify_instances, mut console_fd) = (None, None, None);
    let (mut volumes, mut no_set_id) = (Vec::new(), false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("lower") => lower = Some(parser.value()?.into()),
            Arg::Long("upper") => upper = Some(parser.value()?.into()),
            Arg::Long("work") => work = Some(parser.value()?.into()),
            Arg::Long("unix-fd") => unix_fd = Some(parser.value()?.parse()?),
            Arg::Long("token-hash") => {
                let text = parser.value()?.string()?;
                hash(&text)?;
                token_hash = Some(text);
            }
            Arg::Long("peer-uid") => peer_uids.push(parser.value()?.parse()?),
            Arg::Long("machine-id") => machine_id = Some(parser.value()?.string()?),
            // The tag only identifies the sandbox to people who read its command line on the host.
            Arg::Long("tag") => drop(parser.value()?),
            Arg::Long("rlimit") => rlimits.push(rlimit(&parser.value()?.string()?)?),
            Arg::Long("tmpfs-mb") => tmpfs_mb = Some(parser.value()?.parse()?),
            Arg::Long("inotify-instances") => inotify_instances = Some(parser.value()?.parse()?),
            Arg::Long("console-fd") => console_fd = Some(parser.value()?.parse()?),
            Arg::Long("no-set-id") => no_set_id = true,
            Arg::Long("volume") => {
                volumes.push((parser.value()?.into(), parser.value()?.into()));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(SandboxArgs {
        lower: lower.ok_or(Error::Missing("--lower"))?,
        upper: upper.ok_or(Error::Missing("--upper"))?,
        work: work.ok_or(Error::Missing("--work"))?,
        unix_fd: unix_fd.ok_or(Error::Missing("--unix-fd"))?,
        token_hash: token_hash.ok_or(Error::Missing("--token-hash"))?,
        machine_id,
        peer_uids,
        rlimits,
        tmpfs_mb,
        inotify_instances,
        volumes,
        no_set_id,
        console_fd,
    })
}

fn value(option: &'static str, value: &str, expected: &'static str) -> Error {
    Error::Value { option, value: value.to_owned(), expected }
}

fn hash(text: &str) -> Result<[u8; 32], Error> {
    blake3::Hash::from_hex(text)
        .map(|hash| *hash.as_bytes())
        .map_err(|_| value("--token-hash", text, "is not 64 hexadecimal digits"))
}

fn rlimit(text: &str) -> Result<(rustix::process::Resource, u64), Error> {
    use rustix::process::Resource;
    let wrong = || value("--rlimit", text, "is not NAME=NUMBER with a known name");
    let (name, number) = text.split_once('=').ok_or_else(wrong)?;
    let resource = match name {
        "as" => Resource::As,
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nofile" => Resource::Nofile,
        "nproc" => Resource::Nproc,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        _ => return Err(wrong()),
    };
    Ok((resource, number.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn a_whole_agent_line_is_read() {
        let hash = "a1".repeat(32);
        let line = format!("--carrier vsock --allow-cid 1 --token-hash {hash} --place vm");
        let it = agent(args(&line)).expect("sound");
        assert_eq!((it.link, it.place), (LinkPort::Vsock(vec![2, 1]), GuestKind::Vm));
        assert_eq!((it.token_hash, it.run_dir), ([0xa1; 32], PathBuf::from(RUN_DIR)));
    }

    #[test]
    fn wrong_lines_name_the_option() {
        let hash = "a1".repeat(32);
        for (line, named) in [
            ("--carrier smoke".to_owned(), "--carrier"),
            ("--token-hash 12".to_owned(), "--token-hash"),
            (format!("--token-hash {hash}"), "--unix"),
            ("--carrier vsock".to_owned(), "--token-hash"),
            ("--colour red".to_owned(), "--colour"),
        ] {
            let error = agent(args(&line)).expect_err("refused").to_string();
            assert!(error.contains(named), "{error}");
        }
        let error = sandbox(args("--rlimit lines=3")).expect_err("refused").to_string();
        assert!(error.contains("--rlimit"), "{error}");
    }
}
