//! The daemon's side of the [`crate::reap`] shim.
//!
//! ```text
//! daemon ─ orders ─▶ starter of shims ─ fork ─▶ shim ─ fork, exec ─▶ command
//!    └────────────── a socket for each command ───┘
//! ```
//! An order is a command: its socket, its outputs, and a program as a file in memory. The shim answers by the
//! socket with [`ShimMessage`]s. The daemon shuts its side down as the order to kill, so a daemon that dies takes
//! its commands with it.
//!
//! Descendants are found here where no cgroup does it.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hivekeep_protocol::{Exit, decode, encode};
use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::{Error, OutputReaders, wait_for};
use crate::contain;
use crate::sys::spawn::{self, Program, Stdio};
use crate::sys::{descriptors, fs_ids};

/// Message of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShimMessage {
    /// The command runs, below the shim of this process id.
    Running(i32),
    /// The command was not started: the step that failed, and its errno.
    CannotStart(spawn::SpawnStep, i32),
    /// The command ended; whether it left other processes.
    Exited(Exit, bool),
    /// Nothing is left; this many had to be killed.
    Cleared(u32),
}

/// Most bytes of a [`ShimMessage`] on the socket.
const MAX_NOTE_BYTES: usize = 16;
/// Descriptors of a command: its socket, its standard output, its standard error, its encoded [`Program`].
pub const COMMAND_FDS: usize = 4;

/// Shims of this daemon.
#[derive(Debug)]
pub struct Shim {
    exe: CString,
    null: File,
    /// Starter of shims, from the first command on. Locked to give an order, which waits for nothing, and to start it.
    starter: Mutex<Option<Starter>>,
}

/// A process that forks shims. It ends when its socket is closed.
#[derive(Debug)]
struct Starter {
    pidfd: OwnedFd,
    orders: OwnedFd,
}

impl Shim {
    /// `exe` is this program.
    ///
    /// # Errors
    /// When the path holds a NUL, or there is no /dev/null.
    pub fn new(exe: &Path) -> io::Result<Self> {
        let exe = CString::new(exe.as_os_str().as_bytes())?;
        Ok(Self { exe, null: File::open("/dev/null")?, starter: Mutex::default() })
    }

    /// Orders a shim for a command. Within the runtime; blocks for the start of the starter, if it is not there.
    pub(super) fn start(&self, program: &Program) -> Result<(Reaped, OutputReaders), Error> {
        let (readers, writers) = contain::pipes()?;
        let program = in_memory(program)?;
        let (notes, theirs) = pair(SocketType::SEQPACKET)?;
        let (stdout, stderr) = (writers.stdout.as_fd(), writers.stderr.as_fd());
        self.order(&[theirs.as_fd(), stdout, stderr, program.as_fd()])?;
        let notes = descriptors::readable(notes)?;
        Ok((Reaped { pid: 0, notes, exit: None, others: true, cleared: None }, readers))
    }

    /// Gives an order to the starter, or to a new one where it is dead or stuck.
    fn order(&self, fds: &[BorrowedFd<'_>; COMMAND_FDS]) -> Result<(), Error> {
        let mut place = self.starter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(starter) = place.take() {
            if starter.take_order(fds).is_ok() {
                *place = Some(starter);
                return Ok(());
            }
            starter.collect();
        }
        let starter = self.launch()?;
        starter.take_order(fds)?;
        *place = Some(starter);
        Ok(())
    }

    fn launch(&self) -> Result<Starter, Error> {
        let program = Program {
            path: self.exe.clone(),
            argv: vec![c"hivekeep-guest".to_owned(), c"reap".to_owned()],
            env: Vec::new(),
            workdirs: vec![c"/".to_owned()],
            max_open_files: None,
        };
        let (orders, theirs) = pair(SocketType::STREAM)?;
        let (null, errors) = (self.null.as_fd(), rustix::stdio::stderr());
        let stdio = Stdio { extra: Some(theirs.as_fd()), ..Stdio::of(null, null, errors) };
        let started = spawn::spawn(&program, &stdio)?;
        Ok(Starter { pidfd: started.pidfd, orders })
    }
}

/// Two sockets that are joined; the first never blocks.
fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&pair.0, true)?;
    Ok(pair)
}

/// A program as a file in memory, whatever its size.
fn in_memory(program: &Program) -> Result<File, Error> {
    let too_large = |_| spawn::Error::Exec(io::Error::from_raw_os_error(libc::E2BIG));
    let bytes = encode(program).map_err(too_large)?;
    let file = rustix::fs::memfd_create("command", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut file = File::from(file);
    file.write_all(&bytes)?;
    Ok(file)
}

impl Starter {
    /// Sends the command's descriptors: all of them, or none.
    fn take_order(&self, fds: &[BorrowedFd<'_>; COMMAND_FDS]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COMMAND_FDS))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        // The space was made for them, so the push succeeds.
        beside.push(SendAncillaryMessage::ScmRights(fds));
        let byte = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&self.orders, &byte, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Lets it end, and collects it. Within the runtime.
    fn collect(self) {
        if let Ok(pidfd) = descriptors::readable(self.pidfd) {
            tokio::spawn(async move { drop(wait_for(&pidfd).await) });
        }
    }
}

/// A command under its shim.
#[derive(Debug)]
pub(super) struct Reaped {
    /// The shim's, once it has started the command.
    pid: i32,
    notes: AsyncFd<OwnedFd>,
    exit: Option<Exit>,
    others: bool,
    cleared: Option<u32>,
}

impl Reaped {
    pub(super) fn shim(&self) -> i32 {
        self.pid
    }

    /// Waits for the shim to have started the command.
    pub(super) async fn confirmed(&mut self) -> Result<(), Error> {
        match self.note().await? {
            ShimMessage::Running(pid) => {
                self.pid = pid;
                Ok(())
            }
            ShimMessage::CannotStart(step, errno) => {
                Err(spawn::Error::at(step, io::Error::from_raw_os_error(errno)).into())
            }
            ShimMessage::Exited(..) | ShimMessage::Cleared(_) => Err(Error::Lost),
        }
    }

    async fn note(&self) -> Result<ShimMessage, Error> {
        let mut bytes = [0; MAX_NOTE_BYTES];
        loop {
            let mut ready = self.notes.readable().await?;
            match ready.try_io(|fd| received(|| rustix::io::read(fd.get_ref(), &mut bytes[..]))) {
                Ok(Ok(n)) => return decode(&bytes[..n]).map_err(|_| Error::Lost),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Error::Lost);
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_would_block) => {}
            }
        }
    }

    pub(super) async fn exited(&mut self) -> Result<Exit, Error> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.take(self.note().await?);
        }
    }

    fn take(&mut self, note: ShimMessage) {
        match note {
            ShimMessage::Exited(exit, others) => {
                self.exit = Some(exit);
                self.others = others;
                if !others {
                    self.cleared = Some(0);
                }
            }
            ShimMessage::Cleared(killed) => self.cleared = Some(killed),
            ShimMessage::Running(_) | ShimMessage::CannotStart(..) => {}
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.exit.is_some() && !self.others
    }

    pub(super) fn is_done(&self) -> bool {
        self.cleared.is_some()
    }

    pub(super) fn kill(&mut self) {
        let _ = rustix::net::shutdown(self.notes.get_ref(), rustix::net::Shutdown::Write);
    }

    pub(super) async fn settled(&mut self) -> Result<u32, Error> {
        loop {
            if let Some(killed) = self.cleared {
                return Ok(killed);
            }
            self.take(self.note().await?);
        }
    }
}

/// Bytes of the next message; 0 at the end. The kernel looks for a message first and for the end
/// second (`unix_dgram_recvmsg`): messages sent in between are found by a second look alone.
fn received(mut read: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    match read()? {
        0 => Ok(read()?),
        bytes => Ok(bytes),
    }
}

/// Deepest tree that is climbed.
const MAX_DEPTH: usize = 1024;

/// Every living descendant of `ancestor`, found by one walk over /proc. Complete
/// only if `ancestor` is a child-subreaper (orphans stay below it) and nothing
/// forks meanwhile; who wants them all dead repeats until none is left.
pub fn descendants(ancestor: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let mut zombies = HashSet::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Some((state, parent)) = stat_of(pid) else { continue };
        children.entry(parent).or_default().push(pid);
        if matches!(state, 'Z' | 'X') {
            zombies.insert(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child);
            if !zombies.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// Every living process that was started with this environment variable, `NAME=value`: what is left
/// of a command whose ancestor has gone. One that hides its environment is not found.
pub fn bearing(variable: &[u8]) -> Vec<i32> {
    let bears = |pid: &i32| {
        environ(*pid).is_some_and(|all| all.split(|byte| *byte == 0).any(|one| one == variable))
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(bears).collect()
}

/// Environment that a process was started with. In a sandbox root may not look into processes of other
/// users, which takes a capability; they themselves may.
fn environ(pid: i32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/environ");
    match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?;
            fs_ids::as_user(owner.uid(), owner.gid(), || std::fs::read(&path)).ok()
        }
        read => read.ok(),
    }
}

/// Whether a living process descends from `ancestor`, which is a child-subreaper.
pub fn is_below(pid: i32, ancestor: i32) -> bool {
    let parent_of = |pid: &i32| stat_of(*pid).map(|(_, parent)| parent);
    // A parent that ends meanwhile leaves its children to the ancestor itself.
    let mut line = std::iter::successors(Some(pid), parent_of).take(MAX_DEPTH);
    line.any(|pid| pid == ancestor) && pid != ancestor
}

/// State and parent. The name in parentheses may itself hold spaces and brackets.
fn stat_of(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_message_sent_between_the_kernels_two_looks_is_read() {
        let mut looks = [0, 3, 0, 0].into_iter();
        let mut received = || received(|| Ok(looks.next().expect("two looks at most")));
        assert_eq!([received().expect("read"), received().expect("read")], [3, 0]);
    }

    /// Listens all the time, as the daemon does behind the message before.
    #[test]
    fn the_last_word_of_a_shim_is_heard() {
        let (to_shim, ends) = sync_channel::<OwnedFd>(1);
        let shim = std::thread::spawn(move || {
            for theirs in ends {
                rustix::io::write(&theirs, b"end").expect("sent");
            }
        });
        for _ in 0..50_000 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let pair =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let (ours, theirs) = pair.expect("sockets");
            to_shim.send(theirs).expect("it runs");
            let mut bytes = [0; MAX_NOTE_BYTES];
            let heard = loop {
                match received(|| rustix::io::read(&ours, &mut bytes[..])) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    heard => break heard.expect("read"),
                }
            };
            assert_eq!(heard, 3);
        }
        drop(to_shim);
        shim.join().expect("it sent them all");
    }

    #[test]
    fn who_bears_a_variable_is_found_as_long_as_it_lives() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("60").env("HIVEKEEP_TEST_BEARER", "1").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("pid");
        let found = || bearing(b"HIVEKEEP_TEST_BEARER=1");
        // Until it has executed it has the environment of this process.
        while !found().contains(&pid) {
            assert!(child.try_wait().expect("a child").is_none(), "it sleeps");
        }
        assert!(!bearing(b"HIVEKEEP_TEST_BEARER=").contains(&pid));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(found().is_empty());
    }

    #[test]
    fn a_child_is_found_and_a_dead_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let me = i32::try_from(std::process::id()).expect("pid");
        let pid = i32::try_from(child.id()).expect("pid");
        assert!(descendants(me).contains(&pid));
        assert!(is_below(pid, me) && !is_below(me, pid) && !is_below(me, me));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(!descendants(me).contains(&pid));
    }
}
