//! End of groups and of what is in them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Cgroups;
use crate::Error;
use crate::handle::ProcessId;
use crate::process::Pinned;

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

pub(super) fn members(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

pub(super) fn remove_dir(dir: &Path) -> Result<(), Error> {
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
