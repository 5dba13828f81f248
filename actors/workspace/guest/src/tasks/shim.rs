//! The `task` role: the process around one task at a time. It is made before its task is known,
//! see [`super::ready`]; it then outlives the daemon, keeps the task's time limit, output and exit,
//! and lives until nothing of the task is left. As long as the daemon lives it may be given another
//! run after that.
//!
//! Argument: the guest's run folder. It inherits the socket to the daemon as its standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use hivekeep_protocol::{decode, limits};

use super::ready::{MAX_NOTE_BYTES, Note, ORDER_FILE, Order, Sent};
use crate::contain::{self, raw};
use crate::jobs::dir::{JobDir, Process};
use crate::jobs::shim::{QUIET, Stage, Waiting, let_go, with_room};
use crate::sys::spawn::{self, EXTRA_FD};
use crate::sys::{fork, signals};

/// As sent, with what is around it.
const MAX_SENT_BYTES: usize = 128 * 1024;

/// Runs the shim.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(run_dir) = args.next() else {
        crate::say!("task: needs the run folder");
        return ExitCode::from(2);
    };
    signals::block(&QUIET);
    let begun = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), EXTRA_FD)
        .map_err(io::Error::from)
        .and_then(|socket| fork::continue_in_child().map(|()| socket))
        .and_then(|socket| let_go().map(|()| socket));
    let shim = match begun {
        Ok(socket) => Shim { socket, run_dir: run_dir.into() },
        Err(error) => {
            crate::say!("task: {error}");
            return ExitCode::FAILURE;
        }
    };
    match shim.serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody_to_tell) => ExitCode::FAILURE,
    }
}

struct Shim {
    socket: OwnedFd,
    run_dir: PathBuf,
}

/// A run that waits for its order.
struct Prepared {
    dir: JobDir,
    cgroup: PathBuf,
    lock: File,
    exit: File,
    command: Waiting,
}

impl Shim {
    /// One run after the other, until the daemon has gone or has no more use for it.
    fn serve(&self) -> io::Result<()> {
        loop {
            let prepared = match self.receive()? {
                Some(Sent::Prepare { run, outputs, cgroup }) => {
                    Prepared::new(run, &outputs, cgroup)?
                }
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => return Ok(()),
            };
            let ready = self.tell(&Note::Ready);
            match ready.and_then(|()| self.order(&prepared.dir)) {
                Ok(Some(order)) => self.carry_out(prepared, order)?,
                Ok(None) => {
                    prepared.dismiss();
                    return Ok(());
                }
                Err(error) => {
                    prepared.dismiss();
                    return Err(error);
                }
            }
        }
    }

    fn carry_out(&self, prepared: Prepared, order: Order) -> io::Result<()> {
        let Prepared { dir, cgroup, lock, exit, mut command } = prepared;
        // From here on it may have begun, whoever dies.
        (&lock).write_all(b"1")?;
        let job = command.go(order.program, Duration::from_millis(order.limit_ms));
        // One that was ordered before there was anything to kill.
        if dir.is_cancelled() {
            job.kill_all()?;
        }
        let ended = job.see_to_its_end(&self.run_dir)?;
        if let Some(error) = command.failure() {
            let error = crate::exec::contained(&contain::Error::Start(error));
            lock.set_len(0)?;
            let told = self.tell(&Note::NotRun(error));
            leave(&dir, &cgroup);
            return told;
        }
        let text = serde_json::to_vec(&ended)?;
        // Over what a full disk took of it before.
        with_room(|| exit.write_all_at(&text, 0))?;
        drop(lock);
        self.tell(&Note::Ended(ended))
    }

    /// A daemon that died meanwhile finds it all in the folder.
    fn tell(&self, note: &Note) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(note)?;
        bytes.truncate(MAX_NOTE_BYTES);
        rustix::net::send(&self.socket, &bytes, rustix::net::SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for it; `None` when the daemon has gone, or has no use for it.
    fn order(&self, dir: &JobDir) -> io::Result<Option<Order>> {
        let sent = match self.receive()? {
            Some(Sent::InFile) => {
                let bytes = std::fs::read(dir.path().join(ORDER_FILE))?;
                Some(decode(&bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?)
            }
            sent => sent,
        };
        match sent {
            Some(Sent::Order(order)) => Ok(Some(order)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(None),
        }
    }

    fn receive(&self) -> io::Result<Option<Sent>> {
        let mut bytes = vec![0; MAX_SENT_BYTES];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut bytes[..]))?;
        let sent = (n > 0).then(|| decode(&bytes[..n])).transpose();
        sent.map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

impl Prepared {
    /// Everything but the command.
    fn new(run: PathBuf, outputs: &Path, cgroup: PathBuf) -> io::Result<Self> {
        let dir = JobDir::new(run);
        let lock = dir.lock()?;
        let stage = Stage::open(dir.path(), outputs, limits::TASK_SPOOL_BYTES, &cgroup)?;
        let exit = File::create(dir.path().join("exit.json"))?;
        let command = stage.stand_by().map_err(|error| match error {
            spawn::Error::Clone(error) => error,
            error => io::Error::other(error),
        })?;
        let shim_pid = raw(rustix::process::getpid());
        let process = serde_json::to_vec(&Process { shim_pid, leader_pid: command.pid() })?;
        std::fs::write(dir.path().join("process.json"), process)?;
        Ok(Self { dir, cgroup, lock, exit, command })
    }

    /// Nobody wants it.
    fn dismiss(self) {
        self.command.dismiss();
        leave(&self.dir, &self.cgroup);
    }
}

/// Takes away what was made for a command that did not run. The folder last: while it is there, no
/// other run gets this one's number, and with it its cgroup.
fn leave(dir: &JobDir, cgroup: &Path) {
    if !cgroup.as_os_str().is_empty() {
        let _ = std::fs::remove_dir(cgroup);
    }
    let _ = std::fs::remove_dir_all(dir.path());
}
