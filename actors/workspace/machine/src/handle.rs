//! Journalled identity of a running machine.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::ReattachError;
use super::facts::Isolation;
use super::folders::MachineFolders;
use super::snapshot::MachineMemory;
pub use hivekeep_link::Endpoint;

/// Identity of a process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Pid in the daemon's pid namespace.
    pub pid: i32,
    /// Clock ticks from the host's boot to the process's start (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// Identity of the process that has this pid now.
    pub fn of_pid(pid: i32) -> Result<Self, ReattachError> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_err(|_| ReattachError::Ended { pid })?;
        let start_ticks = start_ticks(&stat).ok_or(ReattachError::Ended { pid })?;
        Ok(Self { pid, start_ticks })
    }

    /// Checks that the pid still is this process. A zombie still is.
    pub fn verify(self) -> Result<(), ReattachError> {
        if Self::of_pid(self.pid)? == self {
            Ok(())
        } else {
            Err(ReattachError::PidReused { pid: self.pid })
        }
    }
}

/// Parses field 22 of a `stat` line. The second field is the program's name in parentheses, which
/// may contain blanks and parentheses of its own, so counting starts after the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Handle with everything a later daemon needs to reattach the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineHandle {
    /// Id of the workspace.
    pub workspace: String,
    /// Isolation, which selects the driver.
    pub isolation: Isolation,
    /// Process of QEMU, or the first one of the sandbox's pid namespace.
    pub process: ProcessId,
    /// Helper processes: bubblewrap's outer half; or `vhost-device-vsock`, and a `virtiofsd` for
    /// each volume.
    pub helpers: Vec<ProcessId>,
    /// Boot id of the host at launch (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// Uuid of the plan; QEMU answers it over QMP.
    pub uuid: Uuid,
    /// User that it runs as.
    pub uid: u32,
    /// Folders of the plan.
    pub folders: MachineFolders,
    /// Absolute paths of its cgroup folders; empty where there are none.
    pub cgroup_dirs: Vec<PathBuf>,
    /// Endpoint of the link.
    pub endpoint: Endpoint,
    /// Description of its memory; `None` for a sandbox, and for a machine of a daemon that could
    /// not save machines.
    #[serde(default)]
    pub memory: Option<MachineMemory>,
    /// True if it has a network interface. A machine from a memory image has one if the saved one
    /// had.
    #[serde(default)]
    pub nic: bool,
}

impl MachineHandle {
    /// Checks that the very process is still there.
    pub(super) fn verify_process(&self) -> Result<(), ReattachError> {
        if self.boot_id != boot_id() {
            return Err(ReattachError::HostRebooted);
        }
        self.process.verify()?;
        let pid = self.process.pid;
        // A zombie keeps its pid and start time until its parent reaps it.
        if is_zombie(pid) { Err(ReattachError::Ended { pid }) } else { Ok(()) }
    }

    /// Path of QEMU's control socket.
    pub fn qmp_path(&self) -> PathBuf {
        self.folders.qmp()
    }

    /// Path of the run folder.
    pub fn run_dir(&self) -> &Path {
        &self.folders.run_dir
    }
}

/// Id of the host's current boot; empty if the kernel does not give one.
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
        assert_eq!(earlier.verify(), Err(ReattachError::PidReused { pid: own.pid }));
    }

    #[test]
    fn an_ended_process_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = ProcessId::of_pid(child.id() as i32).unwrap();
        child.wait().unwrap();
        assert_eq!(process.verify(), Err(ReattachError::Ended { pid: process.pid }));
    }
}
