//! The process of a command that nobody has asked for yet.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;
use tokio::io::unix::AsyncFd;

use super::{Cgroup, Pool};
use crate::contain::outputs::{self, Readers, Writers};
use crate::contain::{Error, collect};
use crate::sys::preforked::Preforked;
use crate::sys::spawn::Stdio;
use crate::sys::watched;

/// A process in its cgroup, waiting for its program or given it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) pidfd: AsyncFd<OwnedFd>,
    pub(super) standby: Preforked,
}

/// One that waits, with all that belongs to it.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) process: Process,
    pub(super) cgroup: Cgroup,
    pub(super) readers: Readers,
    pub(super) writers: Writers,
}

impl Ready {
    /// # Errors
    /// When descriptors, a cgroup or a process cannot be made.
    pub(super) fn make(pool: &Pool) -> Result<Self, Error> {
        let (readers, writers) = outputs::pipes()?;
        let cgroup = pool.take()?;
        let stdio = writers.stdio(pool.0.null.as_fd());
        let stdio = Stdio { cgroup: Some(cgroup.procs.as_fd()), ..stdio };
        match Preforked::start(&stdio) {
            Ok((started, standby)) => {
                let pidfd = watched::readable(started.pidfd)?;
                let process = Process { pid: started.pid, pidfd, standby };
                Ok(Self { process, cgroup, readers, writers })
            }
            Err(error) => {
                pool.give_back(cgroup);
                Err(error.into())
            }
        }
    }

    /// Whether it is still there. A command can kill whatever runs in its machine;
    /// one that was killed is cleared away.
    pub(super) fn if_waiting(mut self, pool: &Pool) -> Option<Self> {
        match collect(self.process.pidfd.get_ref()) {
            Ok(None) => Some(self),
            Ok(Some(_)) => {
                self.process.standby.ended();
                pool.give_back(self.cgroup);
                None
            }
            Err(_) => None,
        }
    }
}
