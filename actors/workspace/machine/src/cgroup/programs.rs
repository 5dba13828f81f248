//! Groups of programs of the host that are no machines: sources, browsers, readers, servers of models.
//!
//! In the unified hierarchy alone: v1 counts pages that wait to be written back without throttling,
//! so that the kernel would end a program for the files that it writes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{CgroupLimits, Cgroups, Controller, kill_all};
use crate::Error;
use crate::facts::{CgroupVersion, Enforcement};

const PREFIX: &str = "program-";

/// True for the name of a program's group.
pub(crate) fn is_one(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Maker of programs' groups, which lie beside those of machines.
#[derive(Debug)]
pub struct ProgramGroups {
    cgroups: Cgroups,
    next: AtomicU64,
}

impl ProgramGroups {
    /// Removes what an earlier daemon left, with the processes in it. Blocks.
    pub(crate) fn of(cgroups: &Cgroups) -> Result<Self, String> {
        let mut cgroups = cgroups.clone();
        for (controller, place) in &mut cgroups.places {
            match place {
                // Processor time is not bounded.
                _ if *controller == Controller::Cpu => *place = Err("not asked for".into()),
                Err(why) => return Err(why.clone()),
                Ok(place) if place.version == CgroupVersion::V2 => {}
                Ok(_) => return Err(format!("{} is in cgroup v1", controller.name())),
            }
        }
        for left in cgroups.machines().iter().filter(|name| is_one(name)) {
            if let Err(error) = cgroups.remove(left) {
                tracing::warn!(%error, "an earlier daemon's group of a program stays");
            }
        }
        Ok(Self { cgroups, next: AtomicU64::new(0) })
    }

    /// Makes an empty group with its limits. Blocks for some system calls.
    ///
    /// # Errors
    /// When it cannot be made, or a limit does not hold.
    pub fn make(&self, memory_bytes: Option<u64>, pids: u32) -> Result<ProgramGroup, Error> {
        let name = format!("{PREFIX}{}", self.next.fetch_add(1, Ordering::Relaxed));
        let limits = CgroupLimits { memory_bytes, vcpus: 0, pids };
        let made = self.cgroups.create(&name, &limits);
        let dir = made.v2.clone().unwrap_or_default();
        let group = ProgramGroup { cgroups: self.cgroups.clone(), name, dir };
        for (what, limit) in [("memory", made.memory), ("processes", made.pids)] {
            if let Enforcement::No { why } = limit {
                return Err(Error::LimitsUnavailable { what, why });
            }
        }
        // Out of memory, the whole group is killed: without one of its processes a program may hang.
        let all = group.dir.join("memory.oom.group");
        fs::write(&all, "1").map_err(Error::io("write", &all))?;
        Ok(group)
    }
}

/// Group of one program. Dropped, its processes are killed, and it is removed.
#[derive(Debug)]
pub struct ProgramGroup {
    cgroups: Cgroups,
    name: String,
    dir: PathBuf,
}

impl ProgramGroup {
    /// Opens the file by which a process joins the group: with a `0`, before it has threads.
    ///
    /// # Errors
    /// Error of the kernel.
    pub fn procs(&self) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().write(true).open(self.dir.join("cgroup.procs"))?.into())
    }

    /// Sends SIGKILL to every process of the group.
    pub fn kill(&self) {
        kill_all(&self.dir);
    }

    /// True if the kernel has ended the processes because they took more memory than they may.
    pub fn ran_out(&self) -> bool {
        let events = fs::read_to_string(self.dir.join("memory.events")).unwrap_or_default();
        events.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|many| many != "0"))
    }
}

impl Drop for ProgramGroup {
    fn drop(&mut self) {
        self.kill();
        self.cgroups.remove_aside(std::mem::take(&mut self.name));
    }
}
