//! Ending a job: a signal to all of its processes, and what is left when its shim has died.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::dir::JobDir;
use crate::contain::reaper::{bearing, descendants};
use crate::contain::{Contain, KILL_DEADLINE, cgroup};
use crate::sys::signals::kill;

/// Longest wait for the effect of a signal.
const SIGNAL_WAIT: Duration = Duration::from_millis(500);

/// Signals every process of a job, and again while it lives if the signal is SIGKILL; waits at most
/// half a second for its end. Blocking.
///
/// # Errors
/// When its folder cannot be read, or its cgroup does not take the order.
pub(crate) fn signal(contain: &Contain, job: &JobDir, signal: i32) -> io::Result<()> {
    let cgroup = contain.job_cgroup(&job.id());
    let (deadline, mut first) = (Instant::now() + SIGNAL_WAIT, true);
    loop {
        if first || signal == libc::SIGKILL {
            signal_all(job, cgroup.as_deref(), signal)?;
        }
        first = false;
        if job.is_over()? || Instant::now() > deadline {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal_all(job: &JobDir, cgroup: Option<&Path>, signal: i32) -> io::Result<()> {
    let pids = match cgroup {
        Some(dir) if signal == libc::SIGKILL => {
            return match std::fs::write(dir.join("cgroup.kill"), "1") {
                // The job has ended and its cgroup is gone, maybe since the file was opened.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                    Ok(())
                }
                written => written,
            };
        }
        Some(dir) => cgroup::pids_below(dir),
        None => job.process()?.map_or_else(Vec::new, |process| descendants(process.shim_pid)),
    };
    for pid in pids {
        // A process that ended meanwhile needs no signal.
        let _ = kill(pid, signal);
    }
    Ok(())
}

/// Kills what the dead shim of a task or process left, and removes its cgroup. Blocking.
pub(crate) fn clear_after_shim(contain: &Contain, job: &JobDir) {
    match (contain, mark_variable(job)) {
        (Contain::Cgroup(_), _) => contain.remove_job(&job.id()),
        (Contain::Subreaper(_), Some(mark)) => kill_bearers(&mark),
        (Contain::Subreaper(_), None) => {}
    }
}

/// Environment variable that marks the processes of a task or process where no cgroup holds them.
pub(super) fn mark_variable(job: &JobDir) -> Option<CString> {
    CString::new([b"HIVEKEEP_RUN=", job.path().as_os_str().as_bytes()].concat()).ok()
}

fn kill_bearers(mark: &CString) {
    let deadline = Instant::now() + KILL_DEADLINE;
    loop {
        let left = bearing(mark.as_bytes());
        if left.is_empty() {
            return;
        }
        if Instant::now() > deadline {
            let (mark, left) = (mark.to_string_lossy(), left.len());
            return crate::say!("{mark}: {left} of its processes do not die");
        }
        for pid in left {
            // A process that ended meanwhile needs no signal.
            let _ = kill(pid, libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
