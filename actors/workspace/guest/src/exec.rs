//! Running a command and waiting for it.
//!
//! Both pipes are read while the command runs, so it never blocks on a full one.
//! The answer waits for the command itself; a process that it left behind gets a
//! moment (`LINGER`) to close the pipes by itself and is then killed with the rest of
//! the containment. That includes `server &`: what is to stay is started as a job.

pub mod command;
pub(crate) mod kept;
pub mod once;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hivekeep_protocol::{Exit, GuestCode, GuestError, RunCommand, RunCommandReply, Stream};
use rustix::buffer::spare_capacity;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::as_user;
use crate::contain::{self, ProcessSet, RunningCommand};
use crate::session::call::{RequestContext, cancelled};
use crate::sys::spawn;
use command::PreparedCommand;

/// Time for which processes left by the command may go on holding its pipes.
const LINGER: Duration = Duration::from_millis(75);
/// A process closes its pipes a moment before it is gone.
const DYING: Duration = Duration::from_millis(10);
/// A time limit beyond this is none: the clock cannot hold it.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

enum Ended {
    Itself,
    TimedOut,
    Cancelled,
}

/// Answers [`RunCommand`].
///
/// # Errors
/// When the command could not be started, was cancelled, or could not be killed.
pub async fn run(cx: &RequestContext, exec: RunCommand) -> Result<RunCommandReply, GuestError> {
    beside(&OutputSink::Call(cx), exec, |_| std::future::pending()).await
}

/// Receiver of a command's output.
pub(crate) enum OutputSink<'s> {
    /// The connection of its call, with which it ends.
    Call(&'s RequestContext),
    /// Record under its key.
    Kept(&'s Arc<Agent>, &'s kept::KeyedRun),
}

impl OutputSink<'_> {
    fn agent(&self) -> &Arc<Agent> {
        match self {
            Self::Call(cx) => &cx.agent,
            Self::Kept(agent, _) => agent,
        }
    }

    fn cancel(&self) -> &CancellationToken {
        match self {
            Self::Call(cx) => &cx.cancel,
            Self::Kept(_, run) => &run.stop,
        }
    }

    async fn send(&self, stream: Stream, content: Bytes) -> Result<(), GuestError> {
        match self {
            Self::Call(cx) => cx.send(stream, content).await,
            Self::Kept(_, run) => {
                run.keep(stream, &content);
                Ok(())
            }
        }
    }
}

/// [`run`], with something done beside the command while it runs and no longer.
///
/// # Errors
/// As [`run`].
pub(crate) async fn beside<F: Future<Output = ()>>(
    sink: &OutputSink<'_>,
    mut exec: RunCommand,
    work: impl FnOnce(ProcessSet) -> F,
) -> Result<RunCommandReply, GuestError> {
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(exec.timeout_ms).min(LONGEST);
    let (agent, cancel) = (sink.agent(), sink.cancel());
    as_user::resolve(&mut exec).await?;
    let workdir = exec.workdir.as_deref();
    let PreparedCommand { program, script } =
        PreparedCommand::new(&exec.argv, &exec.env, workdir, &agent.settings.run_dir)?;
    let started = tokio::select! {
        started = agent.contain.start(program) => started,
        () = cancel.cancelled() => return Err(cancelled()),
    };
    let (mut running, readers) = started.map_err(|error| contained(&error))?;
    let all_written = CancellationToken::new();
    let pump = |stream, pipe| Pump::new(sink, stream, pipe, exec.max_output_bytes, &all_written);
    let (mut stdout, mut stderr) =
        (pump(Stream::Stdout, &readers.stdout), pump(Stream::Stderr, &readers.stderr));
    let (ended, exit, killed_stragglers) = {
        let mut drains = std::pin::pin!(async { tokio::join!(stdout.run(), stderr.run()) });
        let mut work = std::pin::pin!(work(running.scope()));
        let (mut drained, mut worked) = (false, false);
        let ended = loop {
            tokio::select! {
                biased;
                exit = running.exited() => {
                    exit.map_err(|error| contained(&error))?;
                    break Ended::Itself;
                }
                () = cancel.cancelled() => break Ended::Cancelled,
                _ = drains.as_mut(), if !drained => drained = true,
                () = work.as_mut(), if !worked => worked = true,
                () = sleep_until(deadline) => break Ended::TimedOut,
            }
        };
        if !drained && matches!(ended, Ended::Itself) && !running.is_alone() {
            drained = timeout(LINGER, drains.as_mut()).await.is_ok();
        }
        let (exit, killed) = clear(&mut running, &ended).await?;
        all_written.cancel();
        if !drained && !matches!(ended, Ended::Cancelled) {
            tokio::select! {
                _ = drains => {}
                () = cancel.cancelled() => return Err(cancelled()),
            }
        }
        (ended, exit, killed)
    };
    drop(script);
    if matches!(ended, Ended::Cancelled) {
        return Err(cancelled());
    }
    Ok(RunCommandReply {
        exit,
        timed_out: matches!(ended, Ended::TimedOut),
        stdout_total_bytes: stdout.total_bytes(),
        stderr_total_bytes: stderr.total_bytes(),
        killed_stragglers,
        elapsed_ms: begun.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
    })
}

/// Kills what is left; afterwards nothing is. Returns how the command ended and
/// how many other processes there were.
async fn clear(running: &mut RunningCommand, ended: &Ended) -> Result<(Exit, u32), GuestError> {
    if !matches!(ended, Ended::Itself) || !running.empties_within(DYING).await {
        running.kill();
    }
    let exited = timeout(contain::KILL_DEADLINE, running.exited());
    let exit = exited.await.unwrap_or(Err(contain::Error::Stuck));
    let exit = exit.map_err(|error| contained(&error))?;
    let killed = running.settled().await.map_err(|error| contained(&error))?;
    Ok((exit, killed))
}

/// Error for the host when a command could not be started or was lost.
pub(crate) fn contained(error: &contain::Error) -> GuestError {
    let code = match error {
        contain::Error::Start(spawn::Error::Workdir(cause)) => crate::files::code_of(cause),
        contain::Error::Start(spawn::Error::Exec(cause))
            if cause.raw_os_error() == Some(libc::E2BIG) =>
        {
            GuestCode::TooLarge
        }
        contain::Error::Start(_) => GuestCode::CannotStart,
        contain::Error::Setup(cause) => crate::files::code_of(cause),
        contain::Error::Stuck | contain::Error::Lost => GuestCode::Internal,
    };
    GuestError::new(code, error.to_string())
}

/// Bytes of one read at first: the usual capacity of a pipe.
const PIPE_BYTES: usize = 64 * 1024;
/// Size of the pipe of a command that has much to say. It is emptied by one read: each
/// read of a full pipe wakes the command, and a change between two address spaces costs
/// an emulated CPU as much as copying some 100 KiB.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;
/// How long output that follows other output closely is gathered.
const GATHER: Duration = Duration::from_millis(2);
/// Size from which output is not gathered any further.
const ENOUGH_BYTES: usize = PIPE_BYTES / 2;

struct Pump<'cx> {
    sink: &'cx OutputSink<'cx>,
    stream: Stream,
    pipe: &'cx AsyncFd<OwnedFd>,
    /// Cancelled when no process that could write is left.
    all_written: &'cx CancellationToken,
    may_send: u64,
    total: u64,
    /// Bytes of one read.
    at_once: usize,
}

impl<'cx> Pump<'cx> {
    fn new(
        sink: &'cx OutputSink<'cx>,
        stream: Stream,
        pipe: &'cx AsyncFd<OwnedFd>,
        may_send: u64,
        all_written: &'cx CancellationToken,
    ) -> Self {
        Self { sink, stream, pipe, all_written, may_send, total: 0, at_once: PIPE_BYTES }
    }

    /// Bytes read from the pipe, sent or not.
    fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Reads to the end of the pipe. A call that is cancelled, or a link that is
    /// gone, stops the sending but not the reading.
    async fn run(&mut self) {
        let mut last_sent: Option<Instant> = None;
        let mut bytes = Vec::new();
        while let Ok(1..) = self.read(&mut bytes).await {
            if last_sent.is_some_and(|sent| sent.elapsed() < GATHER) {
                self.gather(&mut bytes).await;
            }
            self.total += bytes.len() as u64;
            if bytes.len() >= PIPE_BYTES {
                self.enlarge();
            }
            bytes.truncate(usize::try_from(self.may_send).unwrap_or(usize::MAX).min(bytes.len()));
            if bytes.is_empty() {
                continue;
            }
            self.may_send -= bytes.len() as u64;
            let content = Bytes::from(std::mem::take(&mut bytes));
            if self.sink.send(self.stream, content).await.is_err() {
                self.may_send = 0;
            }
            last_sent = Some(Instant::now());
        }
    }

    fn enlarge(&mut self) {
        let large = self.at_once > PIPE_BYTES;
        if !large && rustix::pipe::fcntl_setpipe_size(self.pipe.get_ref(), LARGE_PIPE_BYTES).is_ok()
        {
            self.at_once = LARGE_PIPE_BYTES;
        }
    }

    /// A command that writes little pieces fast is given a moment to write more,
    /// so that not every piece becomes a frame.
    async fn gather(&mut self, bytes: &mut Vec<u8>) {
        if bytes.len() < ENOUGH_BYTES {
            tokio::time::sleep(GATHER).await;
            while bytes.len() < bytes.capacity()
                && let Ok(1..) = read_some(self.pipe.get_ref(), bytes)
            {}
        }
    }

    /// Reads into the emptied buffer; 0 at the end.
    async fn read(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        bytes.clear();
        bytes.reserve(self.at_once);
        loop {
            tokio::select! {
                biased;
                ready = self.pipe.readable() => {
                    if let Ok(read) = ready?.try_io(|pipe| read_some(pipe.get_ref(), bytes)) {
                        return read;
                    }
                }
                () = self.all_written.cancelled() => {
                    return match read_some(self.pipe.get_ref(), bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                        read => read,
                    };
                }
            }
        }
    }
}

fn read_some(pipe: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<usize> {
    Ok(rustix::io::read(pipe, spare_capacity(bytes))?)
}
