//! Running a command and waiting for it.
//!
//! Both pipes are read while the command runs, so it never blocks on a full one.
//! The answer waits for the command itself; a process that it left behind gets a
//! moment (`LINGER`) to close the pipes by itself and is then killed with the rest of
//! the containment. That includes `server &`: what is to stay is started as a job.

pub mod command;
mod pump;

use std::time::Duration;

use hivekeep_protocol::{Exit, GuestCode, GuestError, RunCommand, RunCommandReply, Stream};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::as_user;
use crate::contain::{self, ProcessSet, RunningCommand};
use crate::session::call::{RequestContext, cancelled};
use crate::sys::spawn;
use command::PreparedCommand;
use pump::Pump;

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
    beside(cx, exec, |_| std::future::pending()).await
}

/// [`run`], with something done beside the command while it runs and no longer.
///
/// # Errors
/// As [`run`].
pub(crate) async fn beside<F: Future<Output = ()>>(
    cx: &RequestContext,
    mut exec: RunCommand,
    work: impl FnOnce(ProcessSet) -> F,
) -> Result<RunCommandReply, GuestError> {
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(exec.timeout_ms).min(LONGEST);
    let agent = &cx.agent;
    as_user::resolve(&mut exec).await?;
    let workdir = exec.workdir.as_deref();
    let PreparedCommand { program, script } =
        PreparedCommand::new(&exec.argv, &exec.env, workdir, &agent.settings.run_dir)?;
    let started = tokio::select! {
        started = agent.contain.start(program) => started,
        () = cx.cancel.cancelled() => return Err(cancelled()),
    };
    let (mut running, readers) = started.map_err(|error| contained(&error))?;
    let all_written = CancellationToken::new();
    let pump = |stream, pipe| Pump::new(cx, stream, pipe, exec.max_output_bytes, &all_written);
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
                () = cx.cancel.cancelled() => break Ended::Cancelled,
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
                () = cx.cancel.cancelled() => return Err(cancelled()),
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
