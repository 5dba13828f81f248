//! The journalled identity of a running machine.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::Gone;
use super::facts::Isolation;
use super::folders::Folders;
use super::snapshot::Held;
pub use hivekeep_link::Endpoint;

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// In the daemon's pid namespace.
    pub pid: i32,
    /// Clock ticks from the host's boot to the process's start (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this pid now.
    pub fn of_pid(pid: i32) -> Result<Self, Gone> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_err(|_| Gone::Ended { pid })?;
        let start_ticks = start_ticks(&stat).ok_or(Gone::Ended { pid })?;
        Ok(Self { pid, start_ticks })
    }

    /// Whether the pid still is this process. A zombie still is.
    pub fn verify(self) -> Result<(), Gone> {
        if Self::of_pid(self.pid)? == self {
            Ok(())
        } else {
            Err(Gone::PidReused { pid: self.pid })
        }
    }
}

/// Field 22 of a `stat` line. The second field is the program's name in parentheses, which may
/// hold blanks and parentheses of its own, so counting starts after the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Everything a later daemon needs to take the machine up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineHandle {
    /// The workspace's id.
    pub workspace: String,
    /// Which driver made it.
    pub isolation: Isolation,
    /// QEMU, or the first process of the sandbox's pid namespace.
    pub process: ProcessId,
    /// Processes beside it: bubblewrap's outer half, or `vhost-device-vsock`.
    pub helpers: Vec<ProcessId>,
    /// `/proc/sys/kernel/random/boot_id` at launch.
    pub boot_id: String,
    /// From the plan; QEMU answers it over QMP.
    pub uuid: Uuid,
    /// The user it runs as.
    pub uid: u32,
    /// From the plan.
    pub folders: Folders,
    /// The cgroup folders that hold it, absolute; empty where there are none.
    pub cgroup_dirs: Vec<PathBuf>,
    /// How the link reaches it.
    pub endpoint: Endpoint,
    /// How its memory is held; `None` for a sandbox, and for a machine of a daemon that could not
    /// save machines.
    #[serde(default)]
    pub memory: Option<Held>,
    /// It has a network interface. A machine from a memory image has one if the saved one had.
    #[serde(default)]
    pub nic: bool,
}

impl MachineHandle {
    /// Whether the very process is still there.
    pub(super) fn verify_process(&self) -> Result<(), Gone> {
        if self.boot_id != boot_id() {
            return Err(Gone::HostRebooted);
        }
        self.process.verify()?;
        let pid = self.process.pid;
        // A zombie still has its pid and start time, until its parent takes notice.
        if is_zombie(pid) { Err(Gone::Ended { pid }) } else { Ok(()) }
    }

    /// QEMU's control socket.
    pub fn qmp_path(&self) -> PathBuf {
        self.folders.qmp()
    }

    /// The run folder.
    pub fn run_dir(&self) -> &Path {
        &self.folders.run_dir
    }
}

/// The id of the host's current boot; empty if the kernel does not tell.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_a_hostile_program_name() {
        let stat = "42 (a) R 1 2) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(start_ticks(stat), Some(777));
        assert_eq!(start_ticks("garbage"), None);
        assert_eq!(start_ticks("1 (x) S 1"), None);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = ProcessId::of_pid(std::process::id() as i32).unwrap();
        assert_eq!(own.verify(), Ok(()));
        let earlier = ProcessId { start_ticks: own.start_ticks - 1, ..own };
        assert_eq!(earlier.verify(), Err(Gone::PidReused { pid: own.pid }));
    }

    #[test]
    fn an_ended_process_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = ProcessId::of_pid(child.id() as i32).unwrap();
        child.wait().unwrap();
        assert_eq!(process.verify(), Err(Gone::Ended { pid: process.pid }));
    }
}
