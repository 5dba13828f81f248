//! The `job` role: the process around one job. It keeps the job's output and its
//! exit, and lives until the last process of the job has ended.
//!
//! Arguments: the job's folder, the run folder, its cgroup or an empty word. It
//! inherits the job's lock as descriptor 3 and tells on stdout, as JSON, how the
//! start went: the leader's pid or an error.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hivekeep_protocol::GuestError;
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use super::dir::{Ended, JobDir, Process, unix_ms};
use super::disk;
use crate::contain::{self, raw};
use crate::exec::command::Prepared;
use crate::reap::Tree;
use crate::sys::kill::kill;
use crate::sys::preforked::Preforked;
use crate::sys::spawn::{self, EXTRA_FD, Program, Stdio};
use crate::sys::{fork, signals, stdio};

/// What a shim does not end by.
pub(crate) const QUIET: [i32; 6] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE];
/// Present in the run folder while the machine shuts down.
pub const SHUTDOWN_FILE: &str = "shutdown";

/// How long what a task's leader leaves behind may go on, to end by itself.
const LINGER: Duration = Duration::from_millis(75);

/// All that a command needs and that does not depend on it.
#[derive(Debug)]
pub(crate) struct Stage {
    children: OwnedFd,
    streams: [Kept; 2],
    outputs: [OwnedFd; 2],
    totals: PathBuf,
    null: File,
    procs: Option<File>,
    cgroup: PathBuf,
}

/// The process of a command that is not known yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    job: Job,
    standby: Preforked,
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Job {
    tree: Tree,
    children: OwnedFd,
    streams: [Kept; 2],
    totals: PathBuf,
    totals_file: Option<File>,
    cgroup: PathBuf,
    begun: Instant,
    /// Set for a task: it ends with its leader, at the latest after this time, and what is left
    /// of it then is killed.
    limit: Option<Duration>,
    timed_out: bool,
    /// Time from the start to the leader's end.
    led_for: Option<Duration>,
}

/// One stream of the job.
#[derive(Debug)]
struct Kept {
    pipe: Option<File>,
    /// Where it is kept, made with the first byte.
    path: PathBuf,
    file: Option<File>,
    room: u64,
    total: u64,
}

/// Runs the shim.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(dir), Some(run_dir), Some(cgroup)) = (args.next(), args.next(), args.next()) else {
        crate::say!("job: needs its folder, the run folder and a cgroup");
        return ExitCode::from(2);
    };
    let Ok(_lock) = stdio::inherited(EXTRA_FD) else {
        crate::say!("job: started without its lock");
        return ExitCode::from(2);
    };
    signals::block(&QUIET);
    if let Err(error) = fork::continue_in_child() {
        crate::say!("job: {error}");
        return ExitCode::FAILURE;
    }
    let dir = JobDir::new(dir.into());
    let started = start(&dir, Path::new(&cgroup));
    let told = tell(&started.as_ref().map(Job::pid).map_err(Clone::clone));
    let Ok(mut job) = started else { return ExitCode::SUCCESS };
    let kept = told.and_then(|()| {
        let ended = job.see_to_its_end(Path::new(&run_dir))?;
        with_room(|| dir.store("exit.json", &ended))
    });
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody_to_tell) => ExitCode::FAILURE,
    }
}

/// Answers the daemon, and lets go of the streams inherited from it.
fn tell(started: &Result<u32, GuestError>) -> io::Result<()> {
    // A daemon that died meanwhile finds the job by its folder.
    let _ =
        io::stdout().write_all(&serde_json::to_vec(started)?).and_then(|()| io::stdout().flush());
    let_go()
}

/// Lets go of the streams inherited from the daemon.
pub(crate) fn let_go() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// On a full disk the job goes on being said to run until its end can be kept.
pub(crate) fn with_room(mut store: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match store() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                std::thread::sleep(Duration::from_secs(1));
            }
            stored => return stored,
        }
    }
}

fn start(dir: &JobDir, cgroup: &Path) -> Result<Job, GuestError> {
    let failed = |error: io::Error| disk(&error);
    let spec = dir.spec().map_err(failed)?.start;
    let workdir = spec.workdir.as_deref();
    let prepared = Prepared::new(&spec.argv, &spec.env, workdir, dir.path())?;
    // A long script stays in the job's folder, which is removed as a whole.
    std::mem::forget(prepared.script);
    let stage = Stage::open(dir.path(), dir.path(), spec.spool_bytes, cgroup).map_err(failed)?;
    let mut job = stage
        .start(&prepared.program)
        .map_err(|error| crate::exec::contained(&contain::Error::Start(error)))?;
    let shim_pid = raw(rustix::process::getpid());
    let process = Process { shim_pid, leader_pid: raw(job.tree.leader) };
    if let Err(error) = dir.store("process.json", &process) {
        let _ = job.tree.kill_all();
        return Err(failed(error));
    }
    Ok(job)
}

impl Stage {
    /// # Errors
    /// When files, pipes or the cgroup cannot be opened.
    pub(crate) fn open(
        dir: &Path,
        outputs: &Path,
        spool_bytes: u64,
        cgroup: &Path,
    ) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let ((stdout, out), (stderr, err)) = (
            Kept::open(outputs, "stdout", spool_bytes)?,
            Kept::open(outputs, "stderr", spool_bytes)?,
        );
        let procs = match cgroup.as_os_str().is_empty() {
            true => None,
            false => Some(File::options().write(true).open(cgroup.join("cgroup.procs"))?),
        };
        Ok(Self {
            children: signals::descriptor(&[libc::SIGCHLD])?,
            streams: [stdout, stderr],
            outputs: [out, err],
            totals: dir.join("totals"),
            null: File::open("/dev/null")?,
            procs,
            cgroup: cgroup.to_path_buf(),
        })
    }

    /// # Errors
    /// When the program cannot be executed; then nothing is left of it.
    pub(crate) fn start(self, program: &Program) -> Result<Job, spawn::Error> {
        let leader = spawn::spawn(program, &self.stdio())?.pid;
        Ok(self.led_by(leader))
    }

    /// Makes the process of the command that is to come.
    ///
    /// # Errors
    /// When none can be made.
    pub(crate) fn stand_by(self) -> Result<Waiting, spawn::Error> {
        let (leader, standby) = Preforked::start(&self.stdio())?;
        Ok(Waiting { job: self.led_by(leader.pid), standby })
    }

    fn stdio(&self) -> Stdio<'_> {
        Stdio {
            stdin: self.null.as_fd(),
            stdout: self.outputs[0].as_fd(),
            stderr: self.outputs[1].as_fd(),
            extra: None,
            cgroup: self.procs.as_ref().map(AsFd::as_fd),
        }
    }

    fn led_by(self, leader: Pid) -> Job {
        let Self { children, streams, totals, cgroup, .. } = self;
        let (tree, begun) = (Tree { leader, exit: None }, Instant::now());
        let (limit, timed_out, led_for, totals_file) = (None, false, None, None);
        Job {
            tree,
            children,
            streams,
            totals,
            totals_file,
            cgroup,
            begun,
            limit,
            timed_out,
            led_for,
        }
    }
}

impl Waiting {
    /// Its id.
    pub(crate) fn pid(&self) -> i32 {
        raw(self.job.tree.leader)
    }

    /// Has it execute the program, which is killed after `limit`.
    pub(crate) fn go(&mut self, program: Program, limit: Duration) -> &mut Job {
        (self.job.begun, self.job.limit) = (Instant::now(), Some(limit));
        self.standby.order(program);
        &mut self.job
    }

    /// Why the program was not executed, of a command whose end was seen to.
    pub(crate) fn failure(mut self) -> Option<spawn::Error> {
        self.standby.ended();
        self.standby.failure()
    }

    /// Ends one that was told nothing.
    pub(crate) fn dismiss(mut self) {
        let _ = kill(self.pid(), libc::SIGKILL);
        // It is a child of this process and has just been killed.
        let gone = rustix::process::waitpid(Some(self.job.tree.leader), WaitOptions::empty());
        if gone.is_ok() {
            self.standby.ended();
        }
    }
}

impl Job {
    fn pid(&self) -> u32 {
        u32::try_from(raw(self.tree.leader)).unwrap_or(0)
    }

    /// Keeps its output until it is over. `run_dir` says whether the machine shuts down.
    ///
    /// # Errors
    /// When its processes cannot be watched.
    pub(crate) fn see_to_its_end(&mut self, run_dir: &Path) -> io::Result<Ended> {
        loop {
            let Self { children, streams, .. } = &*self;
            let mut fds = vec![PollFd::new(children, PollFlags::IN)];
            let open = streams.iter().filter_map(|stream| stream.pipe.as_ref());
            fds.extend(open.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let patience = self.due().map(|due| {
                let left = due.saturating_sub(self.begun.elapsed());
                rustix::event::Timespec {
                    tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            match rustix::event::poll(&mut fds, patience.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let _ = rustix::io::read(&self.children, &mut [0; 128]);
            let mut any_left = self.tree.reap();
            if self.tree.exit.is_some() && self.led_for.is_none() {
                self.led_for = Some(self.begun.elapsed());
            }
            if any_left && self.due().is_some_and(|due| self.begun.elapsed() >= due) {
                self.timed_out = self.tree.exit.is_none();
                self.kill_all()?;
                any_left = false;
            }
            self.drain(!any_left);
            if !any_left {
                return self.finish(run_dir);
            }
        }
    }

    /// When what is left of a task is killed, counted from its start.
    fn due(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(self.led_for.map_or(limit, |led_for| limit.min(led_for + LINGER)))
    }

    /// Kills all of it. Its end is still to be seen to.
    pub(crate) fn kill_all(&mut self) -> io::Result<()> {
        if !self.cgroup.as_os_str().is_empty() {
            // At once what the walk over /proc takes several rounds for.
            let _ = std::fs::write(self.cgroup.join("cgroup.kill"), "1");
        }
        self.tree.kill_all()?;
        self.led_for.get_or_insert(self.begun.elapsed());
        Ok(())
    }

    /// Takes what the pipes hold; at the end all of it, else one buffer each, so
    /// that a chatty stream does not keep its neighbour waiting.
    fn drain(&mut self, all: bool) {
        let mut beyond = false;
        for stream in &mut self.streams {
            while stream.take() && all {}
            beyond |= stream.room == 0 && stream.total > 0;
        }
        if beyond {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.streams[0].total.to_be_bytes());
            bytes[8..].copy_from_slice(&self.streams[1].total.to_be_bytes());
            // On a full disk it is made as soon as there is room again.
            if self.totals_file.is_none() {
                self.totals_file = File::create(&self.totals).ok();
            }
            if let Some(file) = &self.totals_file {
                let _ = file.write_all_at(&bytes, 0);
            }
        }
    }

    fn finish(&self, run_dir: &Path) -> io::Result<Ended> {
        let exit = self.tree.exit.ok_or_else(|| io::Error::other("the leader was lost"))?;
        for file in self.streams.iter().filter_map(|stream| stream.file.as_ref()) {
            let _ = file.sync_all();
        }
        let led_for = self.led_for.unwrap_or_else(|| self.begun.elapsed());
        Ok(Ended {
            exit,
            interrupted: run_dir.join(SHUTDOWN_FILE).exists(),
            finished_unix_ms: unix_ms(),
            totals: [self.streams[0].total, self.streams[1].total],
            timed_out: self.timed_out,
            elapsed_ms: led_for.as_millis().try_into().unwrap_or(u64::MAX),
        })
    }
}

impl Kept {
    /// The stream and the end of its pipe that the job writes to.
    fn open(dir: &Path, name: &str, room: u64) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let (pipe, path) = (Some(read.into()), dir.join(name));
        Ok((Self { pipe, path, file: None, room, total: 0 }, write))
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            if let Some(dir) = self.path.parent() {
                std::fs::create_dir_all(dir)?;
            }
            self.file = Some(File::create(&self.path)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    /// Takes one buffer. Returns whether there may be more.
    fn take(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut buffer = [0; 64 * 1024];
        let read = pipe.read(&mut buffer);
        match read {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(n) => {
                self.total += n as u64;
                let keep = usize::try_from(self.room).unwrap_or(usize::MAX).min(n);
                // On a full disk the output is counted on, as beyond the limit.
                if self.room > 0 {
                    let kept = self.keep(&buffer[..keep]);
                    self.room = kept.map_or(0, |()| self.room - keep as u64);
                }
                true
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.pipe = None;
                }
                false
            }
        }
    }
}
