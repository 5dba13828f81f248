//! Keeping a command's processes together, so that every one of them can be found
//! and killed, whatever session or process group it moved to.
//!
//! | way | where | how everything is killed |
//! |---|---|---|
//! | [`cgroup`] | a VM: cgroup v2 is the daemon's | `cgroup.kill` |
//! | [`reaper`] | a sandbox | a shim that is child-subreaper of the tree |

pub mod cgroup;
pub mod reaper;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{Containment, Exit};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use tokio::io::unix::AsyncFd;

use crate::files::off_thread;
use crate::sys::descriptors;
use crate::sys::spawn::{self, Program, Stdio};

/// Longest wait for processes to die after SIGKILL. Beyond it something in the
/// kernel holds them, and the call fails and says so.
pub const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// Way in which this guest contains commands; fixed at start.
#[derive(Debug, Clone)]
pub enum Contain {
    /// Cgroup for each command.
    Cgroup(cgroup::CgroupPool),
    /// Shim process for each command.
    Subreaper(Arc<reaper::Shim>),
}

/// Reason why a contained command did not start, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started.
    #[error(transparent)]
    Start(#[from] spawn::Error),
    /// Descriptors, cgroups or sockets could not be made.
    #[error("cannot contain a command: {0}")]
    Setup(#[from] io::Error),
    /// Processes survive SIGKILL, stuck in the kernel.
    #[error("processes of the command did not die within {} s of SIGKILL", KILL_DEADLINE.as_secs())]
    Stuck,
    /// The shim of the command died; its processes may have escaped.
    #[error("the supervisor of the command was killed")]
    Lost,
}

/// Set of the processes of one command.
#[derive(Debug, Clone)]
pub enum ProcessSet {
    /// Processes in this cgroup or below.
    Cgroup(PathBuf),
    /// Descendants of this shim, which is a child-subreaper.
    Below(i32),
}

impl ProcessSet {
    /// True if a process, which must be alive, belongs to the command.
    pub fn holds(&self, pid: i32) -> bool {
        match self {
            Self::Cgroup(dir) => cgroup::pids_below(dir).contains(&pid),
            Self::Below(shim) => reaper::is_below(pid, *shim),
        }
    }
}

/// A running command and everything it started. Dropping it kills all of that.
#[derive(Debug)]
pub struct RunningCommand(Option<Hold>);

#[derive(Debug)]
enum Hold {
    Cgroup(cgroup::Member),
    Reaper(reaper::Reaped),
}

impl Contain {
    /// Cgroup of a job, if the guest has cgroups. It outlives this daemon and exists while the job runs.
    pub fn job_cgroup(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Cgroup(pool) => Some(pool.job_dir(name)),
            Self::Subreaper(_) => None,
        }
    }

    /// Kills what is left in the cgroup of a job and removes it.
    pub fn remove_job(&self, name: &str) {
        if let Some(dir) = self.job_cgroup(name) {
            cgroup::remove(&dir);
        }
    }

    /// Kind of containment, as the handshake names it.
    pub fn kind(&self) -> Containment {
        match self {
            Self::Cgroup(_) => Containment::Cgroup,
            Self::Subreaper(_) => Containment::Subreaper,
        }
    }

    /// Starts a command without input. Returns it and its outputs. Dropped meanwhile, it is killed.
    ///
    /// # Errors
    /// When it cannot be contained or executed; nothing is left then.
    pub async fn start(&self, program: Program) -> Result<(RunningCommand, OutputReaders), Error> {
        match self {
            Self::Cgroup(pool) => {
                let (cgroup, pool) = (pool.take()?, pool.clone());
                // Its working directory may be on a file system that does not answer.
                let unless_started = cgroup.kill_guard();
                let started = off_thread(move || {
                    let (member, readers) = pool.start(cgroup, &program)?;
                    Ok((RunningCommand(Some(Hold::Cgroup(member))), readers))
                });
                let started = started.await;
                unless_started.disarm();
                started
            }
            Self::Subreaper(shim) => {
                let (reaped, readers) = shim.start(&program)?;
                let mut running = RunningCommand(Some(Hold::Reaper(reaped)));
                if let Hold::Reaper(reaped) = running.hold() {
                    reaped.confirmed().await?;
                }
                Ok((running, readers))
            }
        }
    }
}

impl RunningCommand {
    fn hold(&mut self) -> &mut Hold {
        self.0.as_mut().expect("taken only by drop")
    }

    /// Set of the command's processes, while it runs.
    pub fn scope(&mut self) -> ProcessSet {
        match self.hold() {
            Hold::Cgroup(member) => ProcessSet::Cgroup(member.dir().to_path_buf()),
            Hold::Reaper(reaped) => ProcessSet::Below(reaped.shim()),
        }
    }

    /// Waits for the command itself. Cancel-safe; answers again when asked again.
    ///
    /// # Errors
    /// When its supervisor was lost.
    pub async fn exited(&mut self) -> Result<Exit, Error> {
        self.hold().exited().await
    }

    /// Whether the command left no other process. Meaningful after [`Self::exited`].
    pub fn is_alone(&mut self) -> bool {
        match self.hold() {
            Hold::Cgroup(member) => member.is_empty(),
            Hold::Reaper(reaped) => reaped.is_alone(),
        }
    }

    /// Orders SIGKILL for everything; does not wait.
    pub fn kill(&mut self) {
        self.hold().kill();
    }

    /// Gives what is left a moment to end by itself. Returns whether it did.
    pub async fn empties_within(&mut self, moment: Duration) -> bool {
        self.is_alone()
            || matches!(tokio::time::timeout(moment, self.hold().settled()).await, Ok(Ok(_)))
    }

    /// Waits until nothing is left. Returns how many processes beside the command
    /// itself had to be killed.
    ///
    /// # Errors
    /// [`Error::Stuck`] when something does not die, [`Error::Lost`] as above.
    pub async fn settled(&mut self) -> Result<u32, Error> {
        let settle = self.hold().settled();
        tokio::time::timeout(KILL_DEADLINE, settle).await.unwrap_or(Err(Error::Stuck))
    }
}

impl Hold {
    async fn exited(&mut self) -> Result<Exit, Error> {
        match self {
            Self::Cgroup(member) => member.exited().await,
            Self::Reaper(reaped) => reaped.exited().await,
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Cgroup(member) => member.kill(),
            Self::Reaper(reaped) => reaped.kill(),
        }
    }

    async fn settled(&mut self) -> Result<u32, Error> {
        match self {
            Self::Cgroup(member) => member.settled().await,
            Self::Reaper(reaped) => reaped.settled().await,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Cgroup(member) => member.is_done(),
            Self::Reaper(reaped) => reaped.is_done(),
        }
    }

    /// Sees a killed command to its end, so that it leaves no zombie.
    async fn bury(mut self) {
        let burial = async {
            let _ = self.exited().await;
            let _ = self.settled().await;
        };
        let _ = tokio::time::timeout(KILL_DEADLINE, burial).await;
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let Some(mut hold) = self.0.take().filter(|hold| !hold.is_done()) else { return };
        hold.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(hold.bury());
        }
    }
}

/// Waits for a child and collects its status.
pub(crate) async fn wait_for(pidfd: &AsyncFd<OwnedFd>) -> io::Result<Exit> {
    loop {
        let mut ready = pidfd.readable().await?;
        if let Some(exit) = collect(pidfd.get_ref())? {
            return Ok(exit);
        }
        ready.clear_ready();
    }
}

/// The status of a child that has ended; it is no zombie afterwards.
pub(crate) fn collect(pidfd: &OwnedFd) -> io::Result<Option<Exit>> {
    use std::os::fd::AsFd;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let Some(status) = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options)? else {
        return Ok(None);
    };
    Ok(Some(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => return Ok(None),
    }))
}

/// A process id as the number that system calls and files use.
pub(crate) fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// The daemon's ends. Reading does not block.
#[derive(Debug)]
pub struct OutputReaders {
    /// Standard output of the command.
    pub stdout: AsyncFd<OwnedFd>,
    /// Standard error of the command.
    pub stderr: AsyncFd<OwnedFd>,
}

/// The command's ends, to be dropped once it has them; writing blocks.
#[derive(Debug)]
struct Writers {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Makes both pipes and watches them. Must be called within the runtime.
fn pipes() -> io::Result<(OutputReaders, Writers)> {
    let ((stdout, out), (stderr, err)) = (pipe()?, pipe()?);
    Ok((OutputReaders { stdout, stderr }, Writers { stdout: out, stderr: err }))
}

fn pipe() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((descriptors::readable(read)?, write))
}

impl Writers {
    /// Standard streams of a command with this input.
    fn stdio<'fd>(&'fd self, stdin: BorrowedFd<'fd>) -> Stdio<'fd> {
        let (stdout, stderr) = (self.stdout.as_fd(), self.stderr.as_fd());
        Stdio::of(stdin, stdout, stderr)
    }
}
