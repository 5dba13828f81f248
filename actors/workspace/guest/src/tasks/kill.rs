//! Killing what runs of a task, or what a dead shim left of it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::contain::descend::bearing;
use crate::contain::{KILL_DEADLINE, cgroup};
use crate::files::off_thread;
use crate::jobs::dir::JobDir;
use crate::jobs::signal_and_wait;
use crate::sys::kill::kill as send_signal;

/// Kills what runs of a task. Blocking, for at most half a second.
pub fn kill(agent: &Agent, run: &JobDir) {
    let cgroup = cgroup_of(agent, run);
    if let Err(error) = signal_and_wait(run, cgroup.as_deref(), libc::SIGKILL) {
        crate::say!("task {}: cannot kill it: {error}", run.id());
    }
}

pub(super) fn cgroup_of(agent: &Agent, run: &JobDir) -> Option<PathBuf> {
    agent.contain.job_cgroup(&run.id())
}

/// Kills what a dead shim left, and removes the run's cgroup.
pub(super) async fn put_away(agent: &Agent, run: &JobDir) {
    let (cgroup, mark) = (cgroup_of(agent, run), mark_of(run));
    off_thread(move || match (cgroup, mark) {
        (Some(dir), _) => cgroup::remove(&dir),
        (None, Some(mark)) => {
            let left = kill_bearers(mark.as_bytes());
            if left > 0 {
                crate::say!("{}: {left} of its processes do not die", mark.to_string_lossy());
            }
        }
        (None, None) => {}
    })
    .await;
}

/// Where no cgroup says so, this variable says of which run a process is.
pub(super) fn mark_of(run: &JobDir) -> Option<CString> {
    let mut mark = b"HIVEKEEP_RUN=".to_vec();
    mark.extend_from_slice(run.path().as_os_str().as_bytes());
    CString::new(mark).ok()
}

/// Answers how many do not die. Blocking.
fn kill_bearers(mark: &[u8]) -> usize {
    let deadline = Instant::now() + KILL_DEADLINE;
    loop {
        let left = bearing(mark);
        if left.is_empty() || Instant::now() > deadline {
            return left.len();
        }
        for pid in left {
            // One that ended meanwhile needs no signal.
            let _ = send_signal(pid, libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
