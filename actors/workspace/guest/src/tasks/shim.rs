//! The `task` role: the process around one task. Made before its task is known, see
//! [`super::ready`]; it then outlives the daemon, keeps the task's time limit, output and exit,
//! and lives until nothing of the task is left.
//!
//! Arguments: the run's folder, the guest's run folder, a cgroup or an empty word. It inherits
//! the socket to the daemon as its standard input and the run's lock as descriptor 3.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use hivekeep_protocol::{decode, limits};

use super::ready::{MAX_NOTE_BYTES, Note, ORDER_FILE, Order, Sent};
use crate::contain::{self, raw};
use crate::jobs::dir::{JobDir, Process};
use crate::jobs::shim::{QUIET, Stage, let_go, with_room};
use crate::sys::spawn::EXTRA_FD;
use crate::sys::{fork, signals, stdio};

/// As sent, with what is around it.
const MAX_SENT_BYTES: usize = 128 * 1024;

/// Runs the shim.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(dir), Some(run_dir), Some(cgroup)) = (args.next(), args.next(), args.next()) else {
        crate::say!("task: needs its folder, the run folder and a cgroup");
        return ExitCode::from(2);
    };
    let Ok(lock) = stdio::inherited(EXTRA_FD) else {
        crate::say!("task: started without its lock");
        return ExitCode::from(2);
    };
    signals::block(&QUIET);
    let begun = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), EXTRA_FD + 1)
        .map_err(io::Error::from)
        .and_then(|socket| fork::continue_in_child().map(|()| socket))
        .and_then(|socket| let_go().map(|()| socket));
    let shim = match begun {
        Ok(socket) => Shim { dir: JobDir::new(dir.into()), lock: lock.into(), socket },
        Err(error) => {
            crate::say!("task: {error}");
            return ExitCode::FAILURE;
        }
    };
    match shim.serve(Path::new(&run_dir), Path::new(&cgroup)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody_to_tell) => ExitCode::FAILURE,
    }
}

struct Shim {
    dir: JobDir,
    lock: File,
    socket: OwnedFd,
}

impl Shim {
    fn serve(&self, run_dir: &Path, cgroup: &Path) -> io::Result<()> {
        let stage = Stage::open(self.dir.path(), limits::TASK_SPOOL_BYTES, cgroup)?;
        let mut exit = File::create(self.dir.path().join("exit.json"))?;
        let shim_pid = raw(rustix::process::getpid());
        let process = serde_json::to_vec(&Process { shim_pid, leader_pid: 0 })?;
        std::fs::write(self.dir.path().join("process.json"), process)?;
        self.tell(&Note::Ready)?;
        let Some(order) = self.order()? else {
            self.leave(cgroup);
            return Ok(());
        };
        // From here on it may have begun, whoever dies.
        (&self.lock).write_all(b"1")?;
        let limit = Duration::from_millis(order.limit_ms);
        let mut job = match stage.start(&order.program, Some(limit)) {
            Ok(job) => job,
            Err(error) => {
                self.lock.set_len(0)?;
                let error = crate::exec::contained(&contain::Error::Start(error));
                let told = self.tell(&Note::NotRun(error));
                self.leave(cgroup);
                return told;
            }
        };
        // One that was ordered before there was anything to kill.
        if self.dir.is_cancelled() {
            job.kill_all()?;
        }
        let ended = job.see_to_its_end(run_dir)?;
        let text = serde_json::to_vec(&ended)?;
        with_room(|| {
            exit.set_len(0)?;
            io::Seek::rewind(&mut exit)?;
            exit.write_all(&text)
        })?;
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
    fn order(&self) -> io::Result<Option<Order>> {
        let mut bytes = vec![0; MAX_SENT_BYTES];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut bytes[..]))?;
        if n == 0 {
            return Ok(None);
        }
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let sent = match decode(&bytes[..n]).map_err(invalid)? {
            Sent::InFile => {
                decode(&std::fs::read(self.dir.path().join(ORDER_FILE))?).map_err(invalid)?
            }
            sent => sent,
        };
        match sent {
            Sent::Order(order) => Ok(Some(order)),
            Sent::InFile => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Takes away what was made for a command that was never started.
    fn leave(&self, cgroup: &Path) {
        let _ = std::fs::remove_dir_all(self.dir.path());
        if !cgroup.as_os_str().is_empty() {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}
