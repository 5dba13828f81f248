//! The `job` role: the process around one job. It keeps the job's output and its
//! exit, and lives until the last process of the job has ended.
//!
//! Arguments: the job's folder, the run folder, its cgroup or an empty word. It
//! inherits the job's lock as descriptor 3 and tells on stdout, as JSON, how the
//! start went: the leader's pid or an error.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hivekeep_protocol::{GuestError, limits};
use rustix::event::{PollFd, PollFlags};

use super::dir::{JobDir, JobEnd, JobSpec, Process, unix_ms};
use super::input::{Input, Pty};
use super::spool::{Kept, Spool};
use super::{disk, end};
use crate::contain::reaper::descendants;
use crate::contain::{self, raw};
use crate::exec::command::PreparedCommand;
use crate::reap::ProcessTree;
use crate::settings::SHUTDOWN_FILE;
use crate::sys::descriptors;
use crate::sys::signals::{self, kill};
use crate::sys::spawn::{self, EXTRA_FD, Program, StartedProcess, Stdio};

/// Signals that do not end a shim.
const BLOCKED: [i32; 7] = [
    libc::SIGCHLD,
    libc::SIGUSR1,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGPIPE,
];

/// Time for what a task's leader leaves behind to end by itself.
const LINGER: Duration = Duration::from_millis(75);
/// Time that output is held back while its reader does not go on.
const HELD_FOR: Duration = Duration::from_millis(limits::MAX_HELD_MS);

/// A command that was started.
#[derive(Debug)]
struct Job {
    dir: JobDir,
    tree: ProcessTree,
    /// Signals of ended children, and of orders in the folder.
    children: OwnedFd,
    spool: Spool,
    input: Input,
    /// Time from the start to which output is held back, for a process of such terms.
    held_until: Option<Duration>,
    /// True for a process, which takes orders from the folder.
    is_process: bool,
    cgroup: PathBuf,
    begun: Instant,
    /// Set for a task: it ends with its leader, at the latest after this time, and what is left
    /// of it then is killed.
    limit: Option<Duration>,
    timed_out: bool,
    /// Set once a process is to be ended: what is left then, as time from the start, is killed.
    stop_at: Option<Duration>,
    /// Time from the start to the leader's end.
    leader_ran_for: Option<Duration>,
}

/// Runs the shim.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(dir), Some(run_dir), Some(cgroup)) = (args.next(), args.next(), args.next()) else {
        crate::say!("job: needs its folder, the run folder and a cgroup");
        return ExitCode::from(2);
    };
    let Ok(lock) = descriptors::inherited(EXTRA_FD) else {
        crate::say!("job: started without its lock");
        return ExitCode::from(2);
    };
    signals::block(&BLOCKED);
    if let Err(error) = spawn::continue_in_child() {
        crate::say!("job: {error}");
        return ExitCode::FAILURE;
    }
    let (dir, lock) = (JobDir::new(dir.into()), File::from(lock));
    let started = Job::start(&dir, cgroup.into(), &lock);
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
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Repeats a write until the disk has room; meanwhile the job counts as running.
fn with_room(mut store: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match store() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                std::thread::sleep(Duration::from_secs(1));
            }
            stored => return stored,
        }
    }
}

/// Starts a program. A program that hangs before it executes, as in a working directory that does not answer,
/// is killed at its limit all the same; then `true` is returned with the result.
fn spawn_within(
    program: &Program,
    stdio: &Stdio<'_>,
    limit: Option<Duration>,
) -> (Result<StartedProcess, spawn::Error>, bool) {
    let Some(limit) = limit else { return (spawn::spawn(program, stdio), false) };
    std::thread::scope(|scope| {
        let (done, started) = mpsc::channel();
        scope.spawn(move || done.send(spawn::spawn(program, stdio)));
        if let Ok(started) = started.recv_timeout(limit) {
            return (started, false);
        }
        for pid in descendants(raw(rustix::process::getpid())) {
            let _ = kill(pid, libc::SIGKILL);
        }
        (started.recv().expect("the thread answers before it ends"), true)
    })
}

/// Both ends of a command's standard streams.
struct Streams {
    spool: Spool,
    input: Input,
    /// Standard input, output and error of the command.
    given: [OwnedFd; 3],
    /// The three are one terminal.
    terminal: bool,
}

impl Streams {
    fn open(dir: &JobDir, spec: &JobSpec) -> io::Result<Self> {
        let bytes = spec.start.spool_bytes;
        let kept = if spec.process.is_some() { Kept::Last(bytes) } else { Kept::First(bytes) };
        if let Some(size) = spec.process.and_then(|process| process.pty) {
            let pty = Pty::open(size)?;
            let given = [pty.slave.try_clone()?, pty.slave.try_clone()?, pty.slave.try_clone()?];
            let spool = Spool::of_terminal(dir, kept, pty.master.try_clone()?);
            return Ok(Self { spool, input: Input::terminal(dir, pty)?, given, terminal: true });
        }
        let (spool, [stdout, stderr]) = Spool::open(dir, kept)?;
        let (input, stdin) = match spec.process {
            Some(process) if !process.without_input => Input::piped(dir)?,
            _ => (Input::Null, File::open("/dev/null")?.into()),
        };
        Ok(Self { spool, input, given: [stdin, stdout, stderr], terminal: false })
    }
}

impl Job {
    /// Starts what the folder asks for. The file of the lock gets its mark before the command can
    /// begin, and loses it again if it cannot be executed.
    fn start(dir: &JobDir, cgroup: PathBuf, mut lock: &File) -> Result<Self, GuestError> {
        let failed = |error: io::Error| disk(&error);
        let spec = dir.spec().map_err(failed)?;
        let start = &spec.start;
        let prepared =
            PreparedCommand::new(&start.argv, &start.env, start.workdir.as_deref(), dir.path())?;
        // A long script stays in the job's folder, which is removed as a whole.
        std::mem::forget(prepared.script);
        let mut program = prepared.program;
        let procs = match cgroup.as_os_str().is_empty() {
            true => None,
            false => Some(cgroup.join("cgroup.procs")),
        };
        if (spec.task.is_some() || spec.process.is_some()) && procs.is_none() {
            program.env.extend(end::mark_variable(dir));
        }
        let limit = spec.task.as_ref().map(|task| Duration::from_secs(task.limit_secs));
        let dir = match &spec.task {
            Some(task) => JobDir::with_outputs(dir.path().to_path_buf(), task.outputs.clone()),
            None => dir.clone(),
        };
        let prepare = || -> io::Result<_> {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            let streams = Streams::open(&dir, &spec)?;
            let procs = procs.map(|path| File::options().write(true).open(path)).transpose()?;
            Ok((streams, procs, signals::descriptor(&[libc::SIGCHLD, libc::SIGUSR1])?))
        };
        let (streams, procs, children) = prepare().map_err(failed)?;
        let Streams { mut spool, input, given: [stdin, stdout, stderr], terminal } = streams;
        let stdio = Stdio {
            cgroup: procs.as_ref().map(AsFd::as_fd),
            terminal,
            ..Stdio::of(stdin.as_fd(), stdout.as_fd(), stderr.as_fd())
        };
        lock.write_all(b"1").map_err(failed)?;
        let begun = Instant::now();
        let (started, timed_out) = spawn_within(&program, &stdio, limit);
        let leader = match started {
            Ok(started) => started.pid,
            Err(error) => {
                lock.set_len(0).map_err(failed)?;
                return Err(crate::exec::contained(&contain::Error::Start(error)));
            }
        };
        let (tree, leader_ran_for) = (ProcessTree { leader, exit: None }, None);
        let (dir, stop_at) = (dir.clone(), None);
        let held_until = spec.process.is_some_and(|terms| terms.held).then_some(HELD_FOR);
        spool.hold_for(held_until.map(|_| [0; 2]));
        let mut job = Self {
            dir,
            tree,
            children,
            spool,
            input,
            held_until,
            is_process: spec.process.is_some(),
            cgroup,
            begun,
            limit,
            timed_out,
            stop_at,
            leader_ran_for,
        };
        let process = Process { shim_pid: raw(rustix::process::getpid()), leader_pid: raw(leader) };
        if let Err(error) = job.dir.publish("process.json", &process) {
            let _ = job.kill_all();
            return Err(failed(error));
        }
        // The cancellation may have been ordered before there was anything to kill.
        if job.dir.is_cancelled() {
            job.kill_all().map_err(failed)?;
        }
        job.obey();
        Ok(job)
    }

    fn pid(&self) -> u32 {
        u32::try_from(raw(self.tree.leader)).unwrap_or(0)
    }

    /// Keeps the command's output until it is over. `run_dir` says whether the machine shuts down.
    ///
    /// # Errors
    /// When its processes cannot be watched.
    fn see_to_its_end(&mut self, run_dir: &Path) -> io::Result<JobEnd> {
        loop {
            let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
            fds.extend(self.spool.pipes().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            fds.extend(self.input.poll());
            let held_until = self.held_until.filter(|_| self.spool.is_held());
            let patience = self.due().into_iter().chain(held_until).min().map(|due| {
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
            let told = rustix::io::read(&self.children, &mut [0; 128]).is_ok();
            if told {
                self.obey();
            }
            self.input.carry();
            let mut any_left = self.tree.reap();
            if self.tree.exit.is_some() && self.leader_ran_for.is_none() {
                self.leader_ran_for = Some(self.begun.elapsed());
            }
            if any_left && self.due().is_some_and(|due| self.begun.elapsed() >= due) {
                self.timed_out |= self.limit.is_some() && self.tree.exit.is_none();
                self.kill_all()?;
                any_left = false;
            }
            if self.held_until.is_some_and(|until| self.begun.elapsed() >= until) {
                self.spool.hold_for(None);
            }
            self.spool.drain(!any_left);
            if !any_left {
                return self.finish(run_dir);
            }
        }
    }

    /// Time from the start at which what is left of a task, or of a process that is to be ended, is
    /// killed.
    fn due(&self) -> Option<Duration> {
        let Some(limit) = self.limit else { return self.stop_at };
        Some(self.leader_ran_for.map_or(limit, |leader_ran_for| limit.min(leader_ran_for + LINGER)))
    }

    /// Carries out the orders in the folder that are not done yet.
    fn obey(&mut self) {
        if !self.is_process {
            return;
        }
        if self.dir.input_closed() {
            self.input.close();
        }
        if let Ok(Some(size)) = self.dir.take_size()
            && self.input.resize(size).is_ok()
        {
            // The daemon that waits for the new size reports that it was not set.
            let _ = self.dir.note_sized();
        }
        if self.held_until.is_some()
            && let Ok(Some(read)) = self.dir.take_read()
        {
            self.spool.hold_for(Some(read));
            self.held_until = Some(self.begun.elapsed() + HELD_FOR);
        }
        // An order that cannot be read is given again by its sender.
        let Ok(Some(order)) = self.dir.stop_order() else { return };
        let first = self.stop_at.is_none();
        let at = self.begun.elapsed() + Duration::from_millis(order.grace_ms);
        self.stop_at = Some(self.stop_at.map_or(at, |earlier| earlier.min(at)));
        if first && order.grace_ms > 0 {
            for pid in descendants(raw(rustix::process::getpid())) {
                // A process that ended meanwhile needs no signal.
                let _ = kill(pid, libc::SIGTERM);
            }
        }
    }

    /// Kills all processes of the job; their end is still to be waited for.
    fn kill_all(&mut self) -> io::Result<()> {
        if !self.cgroup.as_os_str().is_empty() {
            // The cgroup kills at once what a walk over /proc takes several rounds for.
            let _ = std::fs::write(self.cgroup.join("cgroup.kill"), "1");
        }
        self.tree.kill_all()?;
        self.leader_ran_for.get_or_insert(self.begun.elapsed());
        Ok(())
    }

    fn finish(&self, run_dir: &Path) -> io::Result<JobEnd> {
        let exit = self.tree.exit.ok_or_else(|| io::Error::other("the leader was lost"))?;
        self.spool.sync();
        let leader_ran_for = self.leader_ran_for.unwrap_or_else(|| self.begun.elapsed());
        Ok(JobEnd {
            exit,
            interrupted: run_dir.join(SHUTDOWN_FILE).exists(),
            finished_unix_ms: unix_ms(),
            totals: self.spool.totals(),
            timed_out: self.timed_out,
            elapsed_ms: leader_ran_for.as_millis().try_into().unwrap_or(u64::MAX),
        })
    }
}
