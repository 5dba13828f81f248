//! Resource limits by cgroup v2 or v1, whichever has the controller.
//!
//! Each controller is looked up separately, since hosts with both hierarchies put some here and
//! some there. Below the place found there is one folder per daemon (`hivekeep-TAG`), and in it one
//! per machine. A controller that no hierarchy offers is reported with the reason, never ignored.

mod detect;
pub(super) mod programs;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use detect::CgroupMounts;

use crate::facts::{CgroupVersion, Enforcement};
use crate::handle::ProcessId;
use crate::process::Pinned;
use crate::{AppliedLimits, Error};

/// Resource that cgroups limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Memory in bytes.
    Memory,
    /// Processor time.
    Cpu,
    /// Processes and threads.
    Pids,
    /// Standstill of all processes, which limits nothing. Only v2's is of use: it lets what stands still be killed.
    Freezer,
}

impl Controller {
    pub(super) const ALL: [Self; 4] = [Self::Memory, Self::Cpu, Self::Pids, Self::Freezer];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
        }
    }
}

/// Limits of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    /// RAM of everything in the group; `None`, which v2 alone knows: no limit.
    pub memory_bytes: Option<u64>,
    /// Whole processors.
    pub vcpus: u32,
    /// Number of processes and threads.
    pub pids: u32,
}

/// Location of a controller's groups.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    version: CgroupVersion,
    /// Folder `.../hivekeep-TAG`, which exists.
    base: PathBuf,
}

/// Cgroups of this daemon.
#[derive(Debug, Clone)]
pub struct Cgroups {
    places: [(Controller, Result<Place, String>); 4],
}

/// Groups of one machine, and the limits that they enforce.
#[derive(Debug)]
pub struct MachineCgroups {
    /// Absolute paths of the folders, each once.
    pub dirs: Vec<PathBuf>,
    /// Subset of `dirs` by which a child joins v1 hierarchies.
    v1: BTreeSet<PathBuf>,
    /// Folder of the memory controller in `v1`.
    v1_memory: Option<PathBuf>,
    /// Folder in the unified hierarchy.
    v2: Option<PathBuf>,
    memory: Enforcement,
    cpu: Enforcement,
    pids: Enforcement,
}

impl Cgroups {
    /// Finds and prepares the host's controllers. `tag` distinguishes this daemon's groups from
    /// another's on the same host.
    pub fn detect(tag: &str) -> Self {
        Self::on(&CgroupMounts::read(), tag)
    }

    /// Finds controllers like [`Cgroups::detect`], on a host described by the caller.
    pub fn on(host: &CgroupMounts, tag: &str) -> Self {
        let place = |controller| (controller, detect::place(host, controller, tag));
        Self { places: Controller::ALL.map(place) }
    }

    /// Version of the hierarchy that limits memory.
    pub fn version(&self) -> Option<CgroupVersion> {
        self.places[0].1.as_ref().ok().map(|place| place.version)
    }

    /// First controller that limits something and is missing, with the reason.
    pub fn missing(&self) -> Option<(&'static str, &str)> {
        let limits = self.places.iter().filter(|(it, _)| *it != Controller::Freezer);
        let mut missing = limits
            .filter_map(|(controller, place)| Some((controller.name(), place.as_ref().err()?)));
        missing.next().map(|(name, why)| (name, why.as_str()))
    }

    /// Makes the groups of a machine, or reuses present ones, and sets its limits. A controller
    /// that refuses the limit is reported in the group.
    pub fn create(&self, machine: &str, limits: &CgroupLimits) -> MachineCgroups {
        for (_, place) in &self.places {
            if let Ok(Place { version: CgroupVersion::V2, base, .. }) = place {
                // A group that was killed as a whole kills what is cloned into it, by Linux 6.14 and later.
                let _in_use = fs::remove_dir(base.join(machine));
            }
        }
        let (mut v1, mut v2) = (BTreeSet::new(), None);
        let mut set = |(controller, place): &(Controller, Result<Place, String>)| {
            let place = match place {
                Ok(place) => place,
                Err(why) => return Enforcement::No { why: why.clone() },
            };
            let dir = place.base.join(machine);
            let made = match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => {
                    match place.version {
                        CgroupVersion::V1 => drop(v1.insert(dir.clone())),
                        CgroupVersion::V2 => v2 = Some(dir.clone()),
                    }
                    detect::set(place.version, *controller, &dir, limits)
                }
            };
            match made {
                Ok(by) => Enforcement::Yes { by },
                Err(error) => Enforcement::No { why: format!("{}: {error}", dir.display()) },
            }
        };
        let [memory, cpu, pids, _] = [0, 1, 2, 3].map(|index| set(&self.places[index]));
        let dirs: BTreeSet<_> = v1.iter().chain(&v2).cloned().collect();
        let memory_dir = self.places[0].1.as_ref().ok().map(|place| place.base.join(machine));
        let v1_memory = memory_dir.filter(|dir| v1.contains(dir));
        MachineCgroups { dirs: dirs.into_iter().collect(), v1, v1_memory, v2, memory, cpu, pids }
    }

    /// Names of the machines that have a group.
    pub fn machines(&self) -> BTreeSet<String> {
        let bases = self.places.iter().filter_map(|(_, place)| place.as_ref().ok());
        let entries = bases.filter_map(|place| fs::read_dir(&place.base).ok()).flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Folders of the groups that a machine has or had.
    pub fn dirs(&self, machine: &str) -> Vec<PathBuf> {
        let places = self.places.iter().filter_map(|(_, place)| place.as_ref().ok());
        let dirs: BTreeSet<_> = places.map(|place| place.base.join(machine)).collect();
        dirs.into_iter().filter(|dir| dir.exists()).collect()
    }

    /// Removes this daemon's folder if it holds no machine, after an inspection.
    pub fn leave(&self) {
        for (_, place) in &self.places {
            // Two controllers may share a folder; one with machines is not empty and stays.
            if let Ok(place) = place {
                let _ = fs::remove_dir(&place.base);
            }
        }
    }

    /// Kills what is still in the machine's groups and removes them. Blocks up to five seconds.
    pub fn remove(&self, machine: &str) -> Result<(), Error> {
        self.dirs(machine).iter().try_for_each(|dir| remove_dir(dir))
    }
}

impl MachineCgroups {
    /// Fails if a limit is not enforced.
    pub fn require(&self) -> Result<(), Error> {
        let named = [("memory", &self.memory), ("cpu", &self.cpu), ("processes", &self.pids)];
        for (what, enforcement) in named {
            if let Enforcement::No { why } = enforcement {
                return Err(Error::LimitsUnavailable { what, why: why.clone() });
            }
        }
        Ok(())
    }

    /// Report for the owner; the driver adds the limit of the disk.
    pub fn applied(&self, disk: Enforcement) -> AppliedLimits {
        let (memory, cpu, pids) = (self.memory.clone(), self.cpu.clone(), self.pids.clone());
        AppliedLimits { memory, cpu, pids, disk }
    }

    /// Opens the files with which a child enters the groups between fork and exec.
    ///
    /// Moving a process by `cgroup.procs` first keeps every process of the host from forking, which
    /// costs an RCU grace period: 7 to 15 ms on a host that is idle otherwise. Both hierarchies have
    /// a way without it.
    pub(super) fn door(&self) -> Result<Door, Error> {
        self.door_but(None)
    }

    /// Opens the files for a helper that writes files for its machine. In v1 the helper stays out of the
    /// memory group: pages that wait to be written back would count as the machine's there, and without
    /// throttling, so that the kernel ends it for them.
    pub(super) fn door_of_server(&self) -> Result<Door, Error> {
        self.door_but(self.v1_memory.as_deref())
    }

    fn door_but(&self, left_out: Option<&Path>) -> Result<Door, Error> {
        let write = |dir: &Path, file: &str| {
            let file = dir.join(file);
            let opened = OpenOptions::new().write(true).open(&file);
            opened.map(OwnedFd::from).map_err(Error::io("open", &file))
        };
        let unified = |dir: &PathBuf| {
            let opened = fs::File::open(dir).map_err(Error::io("open", dir))?;
            Ok::<_, Error>(Unified { dir: opened.into(), procs: write(dir, "cgroup.procs")? })
        };
        Ok(Door {
            tasks: self
                .v1
                .iter()
                .filter(|dir| Some(dir.as_path()) != left_out)
                .map(|dir| write(dir, "tasks"))
                .collect::<Result<_, _>>()?,
            unified: self.v2.as_ref().map(unified).transpose()?,
        })
    }
}

/// Open files of a machine's groups.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// v1: a thread that writes `0` here moves itself alone, which needs no lock (Linux 5.4,
    /// `cgroup_procs_write_start`). A child just forked has one thread.
    pub(super) tasks: Vec<OwnedFd>,
    /// v2: a process can be created in the group (Linux 5.7, `CLONE_INTO_CGROUP`).
    pub(super) unified: Option<Unified>,
}

/// Group in the unified hierarchy.
#[derive(Debug)]
pub(super) struct Unified {
    /// Folder of the group.
    pub(super) dir: OwnedFd,
    /// Open `cgroup.procs`, for kernels that cannot create a process in the group.
    pub(super) procs: OwnedFd,
}

/// Longest time until all processes of a group stand still.
const FREEZE_WAIT: Duration = Duration::from_secs(5);
const FREEZE: &str = "cgroup.freeze";

/// Group of a machine's folders that can be frozen.
///
/// # Errors
/// `CannotPause` without one.
fn freezable(dirs: &[PathBuf]) -> Result<&PathBuf, Error> {
    let found = dirs.iter().find(|dir| dir.join(FREEZE).exists());
    found.ok_or(Error::CannotPause { why: "it has no cgroup v2 of its own" })
}

/// True if the processes of a machine were told to stand still.
pub(crate) fn is_frozen(dirs: &[PathBuf]) -> bool {
    let told = |dir: &PathBuf| fs::read_to_string(dir.join(FREEZE)).unwrap_or_default();
    freezable(dirs).is_ok_and(|dir| told(dir).trim() == "1")
}

/// Has all processes of a machine stand still, or go on. Blocks until they stand; where they do not, they go on.
pub(crate) fn freeze(dirs: &[PathBuf], still: bool) -> Result<(), Error> {
    let dir = freezable(dirs)?;
    let file = dir.join(FREEZE);
    let write = |value| fs::write(&file, value).map_err(Error::io("write", &file));
    write(if still { "1" } else { "0" })?;
    let (events, end) = (dir.join("cgroup.events"), Instant::now() + FREEZE_WAIT);
    let stand =
        || fs::read_to_string(&events).is_ok_and(|it| it.lines().any(|it| it == "frozen 1"));
    while still && !stand() {
        if Instant::now() >= end {
            write("0")?;
            return Err(Error::CannotPause { why: "its processes do not come to a standstill" });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Maximum time for leftovers of a killed machine to vanish.
const EMPTY_WAIT: Duration = Duration::from_secs(5);

impl Cgroups {
    /// [`Cgroups::remove`] on a thread of its own, for callers that must not wait.
    pub(crate) fn remove_aside(&self, machine: String) {
        let cgroups = self.clone();
        let removal = std::thread::Builder::new().name("cgroup-removal".into()).spawn(move || {
            if let Err(error) = cgroups.remove(&machine) {
                tracing::warn!(machine, %error, "its cgroup stays");
            }
        });
        if let Err(error) = removal {
            tracing::warn!(%error, "a cgroup stays");
        }
    }
}

/// Sends SIGKILL to everything in a group.
pub(crate) fn kill_all(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in members(dir) {
        let Ok(process) = ProcessId::of_pid(pid) else { continue };
        // The pid may have become another process between reading and pinning: check again.
        let Ok(pinned) = Pinned::open(process) else { continue };
        if members(dir).contains(&pid) {
            let _ = pinned.signal(rustix::process::Signal::KILL);
        }
    }
}

fn members(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn remove_dir(dir: &Path) -> Result<(), Error> {
    let end = Instant::now() + EMPTY_WAIT;
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() >= end => {
                return Err(Error::io("remove the cgroup", dir)(error));
            }
            Err(_) => {
                kill_all(dir);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[cfg(test)]
mod tests;
