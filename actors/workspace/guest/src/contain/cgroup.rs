//! Pool of cgroups v2, one for each running command: to make and remove one costs more than a
//! fork, and a used one is as good as new once it is empty.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hivekeep_protocol::Exit;
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;

use super::{Error, OutputReaders, collect, raw, wait_for};
use crate::contain;
use crate::sys::descriptors;
use crate::sys::spawn::{Program, Stdio, spawn};

/// Idle cgroups that are kept; more are removed after use.
const MAX_IDLE: usize = 16;
/// Number of cgroups made at start for the first commands.
const WARM: usize = 2;
const COMMAND_PREFIX: &str = "exec-";
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Pool of the cgroups of commands, under one directory.
#[derive(Debug, Clone)]
pub struct CgroupPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    next: AtomicU64,
    /// The input of every command.
    null: File,
    /// Held for a push or a pop only.
    idle: Mutex<Vec<Cgroup>>,
}

impl CgroupPool {
    /// Takes `root` (made if missing) for this daemon. Commands that an earlier
    /// daemon left there are killed: their caller is gone.
    ///
    /// # Errors
    /// When the parent is no writable cgroup v2 with `cgroup.kill` (Linux 5.14), or
    /// there is no /dev/null.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        let kind = rustix::fs::statfs(root)?.f_type as u64;
        if kind != CGROUP2_MAGIC || !root.join("cgroup.kill").exists() {
            return Err(io::Error::other(format!("{} is not a cgroup v2", root.display())));
        }
        for entry in std::fs::read_dir(root)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(COMMAND_PREFIX) {
                remove(&entry.path());
            }
        }
        let shared = Shared {
            root: root.to_path_buf(),
            next: AtomicU64::new(0),
            null: File::open("/dev/null")?,
            idle: Mutex::new(Vec::new()),
        };
        let pool = Self(Arc::new(shared));
        for cgroup in (0..WARM).map(|_| pool.make()).collect::<io::Result<Vec<_>>>()? {
            pool.give_back(cgroup);
        }
        Ok(pool)
    }

    /// The cgroup of a job, which outlives this daemon; there while the job runs.
    pub fn job_dir(&self, name: &str) -> PathBuf {
        self.0.root.join(format!("job-{name}"))
    }

    fn make(&self) -> io::Result<Cgroup> {
        let stamp = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{COMMAND_PREFIX}{}-{number}", stamp.tv_sec);
        let dir = self.0.root.join(name);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Cgroup::open(dir),
        }
    }

    pub(super) fn take(&self) -> io::Result<Cgroup> {
        let idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.make(), Ok)
    }

    fn give_back(&self, cgroup: Cgroup) {
        if cgroup.has_children() {
            return remove(&cgroup.dir);
        }
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(cgroup);
        } else {
            drop(idle);
            remove(&cgroup.dir);
        }
    }

    /// Starts a command. Blocks as long as the file systems of the program and its working directory do. Must
    /// be called within the runtime.
    pub(super) fn start(
        &self,
        cgroup: Cgroup,
        program: &Program,
    ) -> Result<(Member, OutputReaders), Error> {
        let (readers, writers) = contain::pipes().inspect_err(|_| remove(&cgroup.dir))?;
        let stdio = writers.stdio(self.0.null.as_fd());
        let stdio = Stdio { cgroup: Some(cgroup.procs.as_fd()), ..stdio };
        let started = spawn(program, &stdio).map_err(Error::from);
        let started = started.and_then(|it| Ok((it.pid, descriptors::readable(it.pidfd)?)));
        let (pid, pidfd) = started.inspect_err(|_| remove(&cgroup.dir))?;
        let (cgroup, pool, exit) = (Some(cgroup), self.clone(), None);
        let (killed, kill_sent, empty) = (0, false, false);
        Ok((Member { pid, pidfd, exit, killed, kill_sent, empty, cgroup, pool }, readers))
    }
}

/// Cgroup with the open files that every use of it needs.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    procs: File,
    events: File,
    kill: File,
}

impl Cgroup {
    fn open(dir: PathBuf) -> io::Result<Self> {
        let write = |name: &str| File::options().write(true).open(dir.join(name));
        Ok(Self {
            procs: write("cgroup.procs")?,
            kill: write("cgroup.kill")?,
            events: File::open(dir.join("cgroup.events"))?,
            dir,
        })
    }

    /// Guard that kills what is in this cgroup when it is dropped.
    pub(super) fn kill_guard(&self) -> KillGuard {
        KillGuard(Some(self.dir.clone()))
    }

    fn is_empty(&self) -> bool {
        let mut text = [0; 128];
        let n = self.events.read_at(&mut text, 0).unwrap_or(0);
        text[..n].windows(11).any(|part| part == b"populated 0")
    }

    fn has_children(&self) -> bool {
        std::fs::metadata(&self.dir).map_or(true, |meta| meta.nlink() != 2)
    }
}

/// Kills what is in a cgroup when it is dropped, unless it was disarmed.
pub(super) struct KillGuard(Option<PathBuf>);

impl KillGuard {
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take() {
            let _ = std::fs::write(dir.join("cgroup.kill"), "1");
        }
    }
}

/// A command in its cgroup, which goes back to the pool when this is dropped.
#[derive(Debug)]
pub(super) struct Member {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    exit: Option<Exit>,
    killed: u32,
    kill_sent: bool,
    /// Nothing was left in the cgroup after the command's exit.
    empty: bool,
    /// Taken by the drop only.
    cgroup: Option<Cgroup>,
    pool: CgroupPool,
}

impl Member {
    pub(super) fn dir(&self) -> &Path {
        self.cgroup.as_ref().map_or(Path::new(""), |cgroup| &cgroup.dir)
    }

    pub(super) async fn exited(&mut self) -> Result<Exit, Error> {
        let exit = match self.exit {
            Some(exit) => exit,
            None => wait_for(&self.pidfd).await?,
        };
        self.exit = Some(exit);
        Ok(exit)
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.empty =
            self.empty || self.exit.is_some() && self.cgroup.as_ref().is_some_and(Cgroup::is_empty);
        self.empty
    }

    pub(super) fn is_done(&self) -> bool {
        self.empty
    }

    pub(super) fn kill(&mut self) {
        let Some(cgroup) = &self.cgroup else { return };
        if !self.kill_sent {
            let pids = pids_below(&cgroup.dir);
            let others = pids.iter().filter(|pid| **pid != raw(self.pid)).count();
            self.killed = others.try_into().unwrap_or(u32::MAX);
            self.kill_sent = true;
        }
        let _ = (&cgroup.kill).write_all(b"1");
    }

    /// Waits until nothing is left in the cgroup; returns how many processes had to be killed.
    pub(super) async fn settled(&mut self) -> Result<u32, Error> {
        let mut pause = Duration::from_millis(1);
        loop {
            if self.exit.is_none() {
                self.exit = collect(self.pidfd.get_ref())?;
            }
            if self.is_empty() {
                return Ok(self.killed);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
            if self.kill_sent {
                self.kill();
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(cgroup) = self.cgroup.take().filter(|_| self.empty) {
            self.pool.give_back(cgroup);
        }
    }
}

/// Processes of a cgroup and of the cgroups made inside it.
pub fn pids_below(dir: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            pids.extend(pids_below(&entry.path()));
        }
    }
    pids
}

/// Kills what is in a cgroup and removes it with the cgroups below it. What cannot
/// be removed yet is found again at the daemon's next start.
pub fn remove(dir: &Path) {
    // Most cgroups are empty by now.
    if std::fs::remove_dir(dir).is_ok() {
        return;
    }
    let _ = std::fs::write(dir.join("cgroup.kill"), "1");
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    for pause_ms in [0, 1, 5, 20] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        match std::fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ => return,
        }
    }
}
