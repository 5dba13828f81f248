//! Process of a machine: its watcher by pidfd, and what it takes of memory and processor time. The watcher works
//! alike for children of this daemon and for machines that an earlier daemon started.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hivekeep_kernel::lock;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde::Serialize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::error::{Error, ReattachError};
use crate::exit::ExitHow;
use crate::handle::{MachineHandle, ProcessId};

/// A living process held by a descriptor.
#[derive(Debug)]
pub(super) struct Pinned(OwnedFd);

impl Pinned {
    /// Pins the process. The descriptor is opened before the start time is compared: if both are
    /// right, it can only be the descriptor of that very process.
    pub(super) fn open(process: ProcessId) -> Result<Self, ReattachError> {
        let gone = ReattachError::Ended { pid: process.pid };
        let pid = Pid::from_raw(process.pid).ok_or(gone.clone())?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone)?;
        process.verify()?;
        Ok(Self(fd))
    }

    /// Sends a signal; success if the process is already gone.
    pub(super) fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the end, and reaps the process if it is a child of this daemon.
    async fn ended(self) -> ExitHow {
        let fd = match register(self.0) {
            Ok(fd) => fd,
            Err(error) => {
                tracing::error!(%error, "pidfd cannot be polled");
                return ExitHow::Unknown;
            }
        };
        // A pidfd reads as ready for ever once the process has ended.
        let _ready = fd.readable().await;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(fd.get_ref().as_fd()), options) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => ExitHow::Exited { code },
                (None, Some(signal)) => ExitHow::Signaled { signal },
                (None, None) => ExitHow::Unknown,
            },
            Ok(None) | Err(_) => ExitHow::Unknown,
        }
    }
}

/// Watcher with one task per process: reaps it, and keeps its exit for everyone who asks.
///
/// The table is behind a plain mutex, locked for a lookup and never across an await.
#[derive(Debug, Default, Clone)]
pub(super) struct Watcher {
    exits: Arc<Mutex<HashMap<ProcessId, watch::Receiver<Option<ExitHow>>>>>,
}

impl Watcher {
    /// Begins to watch; at once `Unknown` if the process does not exist. Must run in a tokio
    /// runtime.
    pub(super) fn watch(&self, process: ProcessId) -> watch::Receiver<Option<ExitHow>> {
        let mut exits = lock(&self.exits);
        if let Some(exit) = exits.get(&process) {
            return exit.clone();
        }
        let (sender, exit) = watch::channel(None);
        match Pinned::open(process) {
            Ok(pinned) => {
                tokio::spawn(async move {
                    let how = pinned.ended().await;
                    sender.send_replace(Some(how));
                });
            }
            Err(_) => {
                sender.send_replace(Some(ExitHow::Unknown));
            }
        }
        exits.insert(process, exit.clone());
        exit
    }

    /// Resolves with the exit.
    pub(super) async fn exited(&self, process: ProcessId) -> ExitHow {
        let mut exit = self.watch(process);
        match exit.wait_for(Option::is_some).await {
            Ok(how) => how.unwrap_or(ExitHow::Unknown),
            Err(_) => ExitHow::Unknown,
        }
    }

    /// Forgets an ended process; a living one stays watched, or nobody would reap it.
    pub(super) fn forget(&self, process: ProcessId) {
        let mut exits = lock(&self.exits);
        if exits.get(&process).is_some_and(|exit| exit.borrow().is_some()) {
            exits.remove(&process);
        }
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub(super) async fn kill(&self, process: ProcessId, wait: Duration) -> Result<(), Error> {
        let exit = self.exited(process);
        match Pinned::open(process) {
            Ok(pinned) => {
                let path = format!("/proc/{}", process.pid);
                pinned.signal(Signal::KILL).map_err(Error::io("kill", path.as_ref()))?;
            }
            Err(_) => return Ok(()),
        }
        tokio::time::timeout(wait, exit)
            .await
            .map_err(|_| Error::Unkillable { pid: process.pid, after: wait })?;
        Ok(())
    }
}

/// Registers the descriptor with the runtime, which must be running.
#[allow(unsafe_code)]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor for its whole life, and `AsyncFd` takes it over
    // and deregisters it before it is closed.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// Usage summed over the machine's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MachineUsage {
    /// Resident bytes, shared pages counted in full.
    pub rss_bytes: u64,
    /// Resident bytes, shared pages counted by share; `None` where the kernel does not say.
    pub pss_bytes: Option<u64>,
    /// Processor time since the machine's start, also of processes that have ended.
    pub cpu: Duration,
}

impl MachineUsage {
    /// Usage of the machine and its helpers. `processes` are their pids.
    pub(super) fn of(processes: &[i32]) -> Self {
        let mut total = Self { pss_bytes: Some(0), ..Self::default() };
        for pid in processes {
            let Some(one) = of_process(*pid) else { continue };
            total.rss_bytes += one.rss_bytes;
            total.pss_bytes = total.pss_bytes.zip(one.pss_bytes).map(|(a, b)| a + b);
            total.cpu += one.cpu;
        }
        total
    }
}

fn of_process(pid: i32) -> Option<MachineUsage> {
    let cpu = cpu_of(pid)?;
    if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
        };
        return Some(MachineUsage { rss_bytes: field("Rss:")?, pss_bytes: field("Pss:"), cpu });
    }
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = rustix::param::page_size() as u64;
    Some(MachineUsage { rss_bytes: pages * page_bytes, pss_bytes: None, cpu })
}

/// Processor time of a process and of its children that it has waited for.
fn cpu_of(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have any character; the third field comes behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        fields.split_ascii_whitespace().skip(11).take(4).flat_map(str::parse).collect();
    let millis = ticks.iter().sum::<u64>() * 1000 / rustix::param::clock_ticks_per_second();
    (ticks.len() == 4).then(|| Duration::from_millis(millis))
}

/// Pids of the machine, its helpers, and for a sandbox everything in its pid namespace.
pub(super) fn processes(handle: &MachineHandle) -> Vec<i32> {
    let mut pids: Vec<i32> = std::iter::once(&handle.process)
        .chain(&handle.helpers)
        .filter(|process| process.verify().is_ok())
        .map(|process| process.pid)
        .collect();
    if handle.isolation == crate::Isolation::Sandbox && handle.process.verify().is_ok() {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(handle.process.pid);
        for pid in all_pids() {
            if own.is_some() && namespace(pid) == own && !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    pids
}

/// Pids of all processes of the host.
pub(super) fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::zombie_processes, reason = "the watcher reaps it")]
    fn spawn(script: &str) -> ProcessId {
        let child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        ProcessId::of_pid(child.id() as i32).unwrap()
    }

    #[tokio::test]
    async fn exits_of_children_are_reported_to_everyone_and_reaped() {
        let watcher = Watcher::default();
        let process = spawn("sleep 0.1; exit 7");
        let (one, two) = tokio::join!(watcher.exited(process), watcher.exited(process));
        assert_eq!((one, two), (ExitHow::Exited { code: 7 }, ExitHow::Exited { code: 7 }));
        assert!(!std::path::Path::new(&format!("/proc/{}", process.pid)).exists());
        assert_eq!(watcher.exited(process).await, ExitHow::Exited { code: 7 });
        watcher.forget(process);
        assert_eq!(watcher.exited(process).await, ExitHow::Unknown);
    }

    #[tokio::test]
    async fn kill_waits_until_the_process_is_gone() {
        let watcher = Watcher::default();
        let process = spawn("trap '' TERM; exec sleep 60");
        watcher.kill(process, Duration::from_secs(10)).await.unwrap();
        assert_eq!(watcher.exited(process).await, ExitHow::Signaled { signal: 9 });
        watcher.kill(process, Duration::from_secs(10)).await.unwrap();
    }

    #[tokio::test]
    async fn a_process_of_someone_else_is_watched_too() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 >&2 & echo $!"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        use std::io::{BufRead, BufReader};
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        child.wait().unwrap();
        let process = ProcessId::of_pid(line.trim().parse().unwrap()).unwrap();
        let watcher = Watcher::default();
        watcher.kill(process, Duration::from_secs(10)).await.unwrap();
        assert_eq!(watcher.exited(process).await, ExitHow::Unknown);
    }

    #[tokio::test]
    async fn a_recycled_pid_is_never_killed() {
        let watcher = Watcher::default();
        let living = spawn("exec sleep 60");
        let former = ProcessId { start_ticks: living.start_ticks - 1, ..living };
        watcher.kill(former, Duration::from_secs(1)).await.unwrap();
        assert_eq!(living.verify(), Ok(()));
        watcher.kill(living, Duration::from_secs(10)).await.unwrap();
    }

    #[test]
    fn our_own_memory_is_plausible() {
        let memory = MachineUsage::of(&[std::process::id() as i32]);
        assert!(memory.rss_bytes > 500_000, "{memory:?}");
        assert!(memory.pss_bytes.unwrap() <= memory.rss_bytes);
        assert_eq!(MachineUsage::of(&[-1]).rss_bytes, 0);
    }

    #[test]
    fn work_of_children_that_were_waited_for_counts() {
        let us = std::process::id() as i32;
        let before = cpu_of(us).unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", work]).status().unwrap().success());
        assert!(cpu_of(us).unwrap() > before);
        assert_eq!(cpu_of(-1), None);
    }
}
