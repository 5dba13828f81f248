//! Processes as the daemon sees them: input, and an end in order.
//!
//! An order is a file in the job's folder, and SIGUSR1 has the shim look at it. Repeating an order that
//! a killed daemon left half given completes it.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use hivekeep_protocol::{
    GuestCode, GuestError, JobKilled, JobPoll, JobStarted, ProcessInput, ProcessInputTaken,
    ProcessResize, ProcessResized, ProcessStart, ProcessStartHeld, ProcessStartWithoutInput,
    ProcessStop, limits,
};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};

use super::dir::{JobDir, ProcessStopOrder, ProcessTerms};
use super::start::Wanted;
use super::{disk, end};
use crate::contain::KILL_DEADLINE;
use crate::files::off_thread;
use crate::session::call::{RequestContext, cancelled};

/// Longest wait of a write for room in the pipe.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Interval between two looks at what takes no time.
const SOON: Duration = Duration::from_millis(2);

/// Answers [`ProcessStart`].
///
/// # Errors
/// As [`super::start()`].
pub async fn start(cx: &RequestContext, asked: ProcessStart) -> Result<JobStarted, GuestError> {
    let terms = ProcessTerms { pty: asked.pty, without_input: false, held: false };
    super::start_wanted(cx, Wanted { start: asked.job, process: Some(terms) }).await
}

/// Answers [`ProcessStartWithoutInput`].
///
/// # Errors
/// As [`super::start()`].
pub async fn start_without_input(
    cx: &RequestContext,
    asked: ProcessStartWithoutInput,
) -> Result<JobStarted, GuestError> {
    let terms = ProcessTerms { pty: None, without_input: true, held: false };
    super::start_wanted(cx, Wanted { start: asked.job, process: Some(terms) }).await
}

/// Answers [`ProcessStartHeld`].
///
/// # Errors
/// As [`super::start()`].
pub async fn start_held(
    cx: &RequestContext,
    asked: ProcessStartHeld,
) -> Result<JobStarted, GuestError> {
    let ProcessStartHeld { start, without_input } = asked;
    let terms = ProcessTerms { pty: start.pty, without_input, held: true };
    super::start_wanted(cx, Wanted { start: start.job, process: Some(terms) }).await
}

/// Has the shim take more of the output that is held back: the reader has read up to these cursors.
pub(super) async fn note_read(job: &JobDir, poll: &JobPoll) {
    let (job, read) = (job.clone(), [poll.stdout_from, poll.stderr_from]);
    off_thread(move || {
        let held = job.spec().is_ok_and(|spec| spec.process.is_some_and(|terms| terms.held));
        // A shim that is not woken stops holding output back after a while.
        if held && job.note_read(read).unwrap_or(false) {
            let _told = wake(&job);
        }
    })
    .await;
}

/// Answers [`ProcessResize`].
///
/// # Errors
/// `UnknownJob`, `Invalid` for a job without a terminal, `InputClosed` for one that has ended, disk errors,
/// `Internal` when its shim does not do it.
pub async fn resize(
    cx: &RequestContext,
    asked: ProcessResize,
) -> Result<ProcessResized, GuestError> {
    let (job, deadline) = (cx.agent.jobs.find(&asked.job_id)?, Instant::now() + ROOM_WAIT);
    let its = job.clone();
    off_thread(move || {
        let failed = |error: io::Error| disk(&error);
        if its.spec().map_err(failed)?.process.is_none_or(|process| process.pty.is_none()) {
            let message = format!("job {:?} was started without a terminal", its.id());
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        if its.is_over().map_err(failed)? {
            return Err(unread(&its));
        }
        its.order_size(asked.size).and_then(|()| wake(&its)).map_err(failed)
    })
    .await?;
    loop {
        let its = job.clone();
        let (left, over) = off_thread(move || (its.is_to_be_sized(), its.is_over())).await;
        if !left {
            return Ok(ProcessResized);
        }
        if over.map_err(|error| disk(&error))? {
            return Err(unread(&job));
        }
        if Instant::now() > deadline {
            let message = format!("the terminal of process {:?} keeps its size", job.id());
            return Err(GuestError::new(GuestCode::Internal, message));
        }
        tokio::select! {
            () = sleep(SOON) => {}
            () = cx.cancel.cancelled() => return Err(cancelled()),
        }
    }
}

/// Answers [`ProcessInput`].
///
/// # Errors
/// `UnknownJob`, `TooLarge`, `Invalid` for a job without an input, `InputClosed`, disk errors.
pub async fn input(
    cx: &RequestContext,
    asked: ProcessInput,
) -> Result<ProcessInputTaken, GuestError> {
    if asked.bytes.len() > limits::MAX_PROCESS_INPUT_BYTES {
        let most = limits::MAX_PROCESS_INPUT_BYTES;
        return Err(GuestError::new(GuestCode::TooLarge, format!("at most {most} bytes at once")));
    }
    let (job, deadline) = (cx.agent.jobs.find(&asked.job_id)?, Instant::now() + ROOM_WAIT);
    let (mut left, mut pipe) = (asked.bytes, None);
    let all = left.len();
    let closed = loop {
        let (job, close) = (job.clone(), asked.close);
        let step = off_thread(move || {
            let done = write(&job, &mut pipe, &mut left, close);
            (done, pipe, left)
        });
        let (done, held, rest) = step.await;
        (pipe, left) = (held, rest);
        let closed = done?;
        if left.is_empty() || Instant::now() > deadline {
            break closed;
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = cx.cancel.cancelled() => return Err(cancelled()),
        }
    };
    Ok(ProcessInputTaken { written: (all - left.len()) as u64, closed })
}

/// Writes what there is room for, and closes the input after the last byte. Returns whether it is
/// closed. Blocking, though not for room. `pipe` is held by one call at a time, so that inputs do not
/// mix.
fn write(
    job: &JobDir,
    pipe: &mut Option<File>,
    left: &mut Vec<u8>,
    close: bool,
) -> Result<bool, GuestError> {
    let failed = |error: io::Error| disk(&error);
    if job.spec().map_err(failed)?.process.is_none() {
        let message = format!("job {:?} was started without an input", job.id());
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    if job.is_over().map_err(failed)? || job.input_closed() && !left.is_empty() {
        return Err(unread(job));
    }
    if pipe.is_none() && !left.is_empty() {
        let opened = open(job).map_err(failed)?.ok_or_else(|| unread(job))?;
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => *pipe = Some(opened),
            // Another call writes.
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(disk(&error.into())),
        }
    }
    match pipe.as_mut().filter(|_| !left.is_empty()).map(|pipe| pipe.write(left)) {
        Some(Ok(written)) => drop(left.drain(..written)),
        Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Err(unread(job)),
        Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(disk(&error)),
        _ => {}
    }
    if close && left.is_empty() {
        job.note_input_closed().and_then(|()| wake(job)).map_err(failed)?;
    }
    Ok(job.input_closed())
}

fn unread(job: &JobDir) -> GuestError {
    let message = format!("process {:?} reads no input: it has ended or closed it", job.id());
    GuestError::new(GuestCode::InputClosed, message)
}

/// Opens the pipe; `None` when nobody reads it.
fn open(job: &JobDir) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(job.input_pipe(), flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::NXIO | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Answers [`ProcessStop`].
///
/// # Errors
/// `UnknownJob`, `Invalid` for a job that is no process, disk errors, `Internal` when something of it
/// does not die.
pub async fn stop(cx: &RequestContext, asked: ProcessStop) -> Result<JobKilled, GuestError> {
    let job = cx.agent.jobs.find(&asked.job_id)?;
    let grace_ms = asked.grace_ms.min(limits::MAX_STOP_GRACE_MS);
    let (contain, its) = (cx.agent.contain.clone(), job.clone());
    let already_ended = off_thread(move || {
        let failed = |error: io::Error| disk(&error);
        if its.spec().map_err(failed)?.process.is_none() {
            let message = format!("job {:?} is not a process; kill it instead", its.id());
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        if its.is_over().map_err(failed)? {
            // A killed shim may have left processes.
            end::clear_after_shim(&contain, &its);
            return Ok(true);
        }
        its.order_stop(ProcessStopOrder { grace_ms }).and_then(|()| wake(&its)).map_err(failed)?;
        Ok(false)
    })
    .await?;
    if !already_ended {
        see_it_end(cx, &job, Duration::from_millis(grace_ms)).await?;
    }
    let summary = off_thread(move || job.summary()).await.map_err(|error| disk(&error))?;
    Ok(JobKilled { already_ended, summary })
}

async fn see_it_end(cx: &RequestContext, job: &JobDir, grace: Duration) -> Result<(), GuestError> {
    let deadline = Instant::now() + grace + KILL_DEADLINE;
    loop {
        let (its, contain) = (job.clone(), cx.agent.contain.clone());
        let over = off_thread(move || {
            let over = its.is_over()?;
            if over {
                end::clear_after_shim(&contain, &its);
            }
            Ok(over)
        });
        if over.await.map_err(|error: io::Error| disk(&error))? {
            return Ok(());
        }
        if Instant::now() > deadline {
            let message = format!("something of process {:?} does not die", job.id());
            return Err(GuestError::new(GuestCode::Internal, message));
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = cx.cancel.cancelled() => return Err(cancelled()),
        }
    }
}

/// Has the shim look at its orders. A shim that has not recorded its process id yet will look by itself.
fn wake(job: &JobDir) -> io::Result<()> {
    let Some(process) = job.process()? else { return Ok(()) };
    let pid = Pid::from_raw(process.shim_pid).ok_or(io::ErrorKind::InvalidData)?;
    let shim = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(shim) => shim,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Looked at after the opening: while the lock is held, the pid is the shim's.
    if job.is_locked() {
        pidfd_send_signal(shim, Signal::USR1)?;
    }
    Ok(())
}
