//! A shim that waits for its task, so that a lone task waits for no shim.
//!
//! Its run's folder is made, locked and filled with all that does not depend on the task; the
//! command's process waits too. What is left is to tell it what to run, over a socket, and to hear
//! from it how that ended. The daemon's death is the socket's end: a shim without an order goes
//! then, one with an order goes on.
//!
//! A shim that has told a task's end has nothing left of it, and may prepare another run: to start
//! one costs more than all of that. Only where runs have cgroups, by which they are killed: without,
//! that is done by the shim's process id, which is to be of one run only.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use hivekeep_protocol::{GuestError, encode};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::folder::Folder;
use crate::agent::Agent;
use crate::contain::{cgroup, raw};
use crate::jobs::dir::{Ended, JobDir};
use crate::jobs::start::cgroup_for;
use crate::sys::spawn::{Program, Stdio, spawn};
use crate::sys::watched;

/// A shim is ready within this time, or it is broken.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Most bytes of an order that is sent to a shim; a larger one is put into a file.
const MAX_ORDER_BYTES: usize = 64 * 1024;
/// A note is an exit or a short reason.
pub(super) const MAX_NOTE_BYTES: usize = 16 * 1024;
/// Where a large order is, in the run's folder.
pub(super) const ORDER_FILE: &str = "order";
const SHIM: &std::ffi::CStr = c"task";

/// What a shim runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The command.
    pub program: Program,
    /// It is killed after this time.
    pub limit_ms: u64,
}

/// What is sent to a shim: first where the run is, then its order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Sent {
    /// The run's folder and its cgroup, both made; the latter empty where there are none. And where
    /// what it prints is kept.
    Prepare { run: PathBuf, outputs: PathBuf, cgroup: PathBuf },
    /// All of the order.
    Order(Order),
    /// It is in [`ORDER_FILE`].
    InFile,
}

/// What a shim tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Note {
    /// It waits for its order.
    Ready,
    /// The command ended, and the folder says so too.
    Ended(Ended),
    /// It could not be started, and the folder is gone.
    NotRun(GuestError),
}

/// A shim that waits.
#[derive(Debug)]
pub struct Ready {
    /// Of its run.
    pub number: u64,
    /// Its run's folder.
    pub run: JobDir,
    socket: OwnedFd,
    generation: u64,
}

/// A shim that was told what to run.
#[derive(Debug)]
pub struct Going {
    socket: OwnedFd,
    generation: u64,
}

/// A shim whose task has ended.
#[derive(Debug)]
pub struct Spent {
    socket: OwnedFd,
    generation: u64,
}

/// Keeps a shim ready.
#[derive(Debug, Default)]
pub struct PreforkPool {
    last_number: AtomicU64,
    /// Held while one is made: who wants one meanwhile waits for that. By threads that may block.
    ready: Mutex<Option<Ready>>,
    /// Held for a put or a take only.
    spent: Mutex<Option<Spent>>,
}

impl PreforkPool {
    /// Runs get greater numbers than this.
    pub fn numbers_beyond(&self, number: u64) {
        self.last_number.fetch_max(number, Ordering::SeqCst);
    }

    /// The one that waits, if one does. Waits for nothing.
    pub fn at_hand(&self, generation: u64) -> Option<Ready> {
        let mut shelf = match self.ready.try_lock() {
            Ok(shelf) => shelf,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        shelf.take_if(|ready| ready.waits(generation))
    }

    /// The one that waits, or a new one. Blocking.
    ///
    /// # Errors
    /// When none can be made.
    pub fn take(&self, agent: &Agent, folder: &Folder, generation: u64) -> io::Result<Ready> {
        let mut shelf = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        match shelf.take_if(|ready| ready.waits(generation)) {
            Some(ready) => Ok(ready),
            None => {
                if let Some(dead) = shelf.take() {
                    discard(agent, &dead.run);
                }
                self.make(agent, folder, generation)
            }
        }
    }

    /// Makes one, unless one waits. A failure is left to the task that will want it. Blocking.
    pub fn fill(&self, agent: &Agent, folder: &Folder, generation: u64) {
        let mut shelf = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if !shelf.as_ref().is_some_and(|ready| ready.waits(generation)) {
            if let Some(dead) = shelf.take() {
                discard(agent, &dead.run);
            }
            *shelf = self.make(agent, folder, generation).ok();
        }
    }

    /// Puts back one that was not told anything.
    pub fn put_back(&self, ready: Ready) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(ready);
    }

    /// Keeps one whose task has ended, for another run. One at a time: others go.
    pub fn keep(&self, spent: Spent) {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(spent);
    }

    /// Lets those that wait go. Blocking.
    pub fn clear(&self) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn make(&self, agent: &Agent, folder: &Folder, generation: u64) -> io::Result<Ready> {
        let number = self.last_number.fetch_add(1, Ordering::SeqCst) + 1;
        let run = folder.make_run(number)?;
        let outputs = folder.outputs(number).path().to_path_buf();
        let made = cgroup_for(agent, &run).and_then(|cgroup| {
            let (run, cgroup) = (run.path().to_path_buf(), cgroup.unwrap_or_default());
            self.prepare(agent, &Sent::Prepare { run, outputs, cgroup }, generation)
        });
        let made = made.map(|socket| Ready { number, run, socket, generation });
        if made.is_err() {
            discard(agent, &folder.run(number));
        }
        made
    }

    /// By the shim that is kept, or by a new one.
    fn prepare(&self, agent: &Agent, prepare: &Sent, generation: u64) -> io::Result<OwnedFd> {
        let prepare = encode(prepare).map_err(io::Error::other)?;
        let kept = self.spent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Spent { socket, .. }) = kept.filter(|kept| kept.generation == generation)
            && have_ready(&socket, &prepare).is_ok()
        {
            return Ok(socket);
        }
        let socket = launch(agent)?;
        have_ready(&socket, &prepare)?;
        Ok(socket)
    }
}

/// Removes what was made for a run that did not come about.
pub(super) fn discard(agent: &Agent, run: &JobDir) {
    if let Some(dir) = super::kill::cgroup_of(agent, run) {
        cgroup::remove(&dir);
    }
    let _ = std::fs::remove_dir_all(run.path());
}

impl Ready {
    /// A task can kill whatever runs in its machine; a machine can become another.
    fn waits(&self, generation: u64) -> bool {
        // It has told all that it has to tell before its order: more is its end.
        self.generation == generation && matches!(readable(&self.socket, Duration::ZERO), Ok(false))
    }

    /// Tells it what to run. Blocking.
    ///
    /// # Errors
    /// When it is gone, or a large order cannot be put into its file. It has run nothing then.
    pub fn go(self, order: Order) -> io::Result<Going> {
        let mut bytes = encode(&Sent::Order(order)).map_err(io::Error::other)?;
        if bytes.len() > MAX_ORDER_BYTES {
            let path = self.run.path().join(ORDER_FILE);
            File::create(path)?.write_all(&bytes)?;
            bytes = encode(&Sent::InFile).map_err(io::Error::other)?;
        }
        rustix::net::send(&self.socket, &bytes, rustix::net::SendFlags::NOSIGNAL)?;
        Ok(Going { socket: self.socket, generation: self.generation })
    }
}

impl Going {
    /// What became of it; `None` when the shim died over it. Must be called within the runtime.
    ///
    /// # Errors
    /// When the socket cannot be watched.
    pub async fn note(self) -> io::Result<(Option<Note>, Spent)> {
        let generation = self.generation;
        let socket: AsyncFd<OwnedFd> = watched::readable(self.socket)?;
        let mut bytes = vec![0; MAX_NOTE_BYTES];
        loop {
            let mut ready = socket.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut bytes[..])?)) {
                Ok(read) => {
                    let note = read.ok().and_then(|n| serde_json::from_slice(&bytes[..n]).ok());
                    drop(ready);
                    return Ok((note, Spent { socket: socket.into_inner(), generation }));
                }
                Err(_would_block) => {}
            }
        }
    }
}

/// Starts a shim.
fn launch(agent: &Agent) -> io::Result<OwnedFd> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let program = Program {
        path: text(&agent.settings.exe)?,
        argv: vec![c"hivekeep-guest".into(), SHIM.into(), text(&agent.settings.run_dir)?],
        env: Vec::new(),
        workdirs: vec![c"/".to_owned()],
        max_open_files: None,
    };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let stdio = Stdio {
        stdin: theirs.as_fd(),
        stdout: agent.null.as_fd(),
        stderr: rustix::stdio::stderr(),
        extra: None,
        cgroup: None,
    };
    let started = spawn(&program, &stdio).map_err(io::Error::other)?;
    // The process started here ends at once: the shim goes on in its child.
    let _ = rustix::process::waitpid(Pid::from_raw(raw(started.pid)), WaitOptions::empty());
    Ok(ours)
}

/// Tells a shim of its run, and waits until it has prepared that.
fn have_ready(socket: &OwnedFd, prepare: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, prepare, rustix::net::SendFlags::NOSIGNAL)?;
    if !readable(socket, READY_WITHIN)? {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the task's shim is silent"));
    }
    let mut bytes = [0; 1024];
    let n = rustix::io::read(socket, &mut bytes)?;
    match serde_json::from_slice(&bytes[..n]) {
        Ok(Note::Ready) => Ok(()),
        _ => Err(io::Error::other("the task's shim died")),
    }
}

fn readable(socket: &OwnedFd, within: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: within.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&timeout))? > 0)
}
