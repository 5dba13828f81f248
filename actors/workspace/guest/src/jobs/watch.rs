//! Telling the host when a job ends. The shim is no child of this daemon (it has
//! to outlive it), so its end is seen through a pidfd.

use std::sync::Arc;

use hivekeep_protocol::GuestEvent;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::dir::{JobDir, JobState};
use super::end;
use crate::agent::Agent;
use crate::files::off_thread;
use crate::sys::watched;

/// Watches the jobs that an earlier daemon started and that still run.
pub fn all(agent: &Arc<Agent>) {
    for job in agent.jobs.all().unwrap_or_default() {
        if job.is_locked() {
            one(agent, job);
        }
    }
}

/// Watches one job. Must be called within the runtime.
pub fn one(agent: &Arc<Agent>, job: JobDir) {
    let agent = agent.clone();
    tokio::spawn(async move {
        if let Err(error) = ended(&job).await {
            crate::say!("job {}: cannot watch it: {error}", job.id());
            return;
        }
        let contain = agent.contain.clone();
        let ended = off_thread(move || {
            let process = job.spec()?.process.is_some();
            if process && matches!(job.state(true)?, JobState::Lost) {
                // Its shim was killed, and would have ended all of it.
                end::clear_after_shim(&contain, &job);
            }
            contain.remove_job(&job.id());
            job.summary()
        });
        if let Ok(summary) = ended.await {
            agent.links.tell(&GuestEvent::JobEnded(summary));
        }
    });
}

/// Resolves when the job's shim has ended, or at once when it has not said who it is.
///
/// # Errors
/// When it cannot be watched.
pub(crate) async fn ended(job: &JobDir) -> std::io::Result<()> {
    let Some(process) = job.process()? else { return Ok(()) };
    let pid = Pid::from_raw(process.shim_pid).ok_or(std::io::ErrorKind::InvalidData)?;
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Looked at after the opening: while the lock is held, the pid is the shim's.
    if !job.is_locked() {
        return Ok(());
    }
    let pidfd = watched::readable(pidfd)?;
    pidfd.readable().await?.retain_ready();
    Ok(())
}
