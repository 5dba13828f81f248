//! A task's way from its turn to its result.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{Argv, GuestCode, GuestError, GuestEvent, JobStart, TaskPut, limits};

use super::book::{Book, End};
use super::queue::Resume;
use crate::agent::Agent;
use crate::contain::{Contain, cgroup};
use crate::files::off_thread;
use crate::jobs::dir::{Found, JobDir, Spec};
use crate::jobs::shim::SHUTDOWN_FILE;
use crate::jobs::start::{NoTask, start_task};
use crate::jobs::{signal_and_wait, watch};

/// A task without a folder of its own runs in the first of these that is there.
const WORKDIRS: [&str; 2] = ["/workspace", "/root"];
/// Pause before what the disk refused is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause before another look at a run whose shim cannot be watched.
const LOOK: Duration = Duration::from_millis(200);

/// Takes up what an earlier daemon left. Must be called within the runtime.
pub fn resume(agent: &Arc<Agent>) {
    if !agent.tasks.any_left() {
        return;
    }
    let agent = agent.clone();
    tokio::spawn(async move {
        let (generation, mut said) = (agent.tasks.generation(), false);
        loop {
            match agent.tasks.with(generation, Book::load).await {
                Ok(open) => {
                    take_up(&agent, generation, open);
                    return next(&agent, generation);
                }
                Err(error) => say_once(&mut said, &error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
}

/// Goes on with tasks that were started before.
pub(super) fn take_up(agent: &Arc<Agent>, generation: u64, open: Vec<(u64, Resume)>) {
    for (seq, what) in open {
        if what != Resume::Wait {
            tokio::spawn(follow(agent.clone(), generation, seq));
        }
    }
}

/// Has started what may be started. Must be called within the runtime.
pub fn next(agent: &Arc<Agent>, generation: u64) {
    // Who is about to stop would only cut it short.
    if agent.is_stopping() || agent.settings.run_dir.join(SHUTDOWN_FILE).exists() {
        return;
    }
    let agent = agent.clone();
    tokio::spawn(async move {
        let claimed = agent.tasks.with(generation, |book| {
            Ok(std::iter::from_fn(|| book.queue.start_next()).collect::<Vec<_>>())
        });
        // None for a machine that has become another.
        for seq in claimed.await.unwrap_or_default() {
            tokio::spawn(carry(agent.clone(), generation, seq));
        }
    });
}

/// From its turn to its end.
async fn carry(agent: Arc<Agent>, generation: u64, seq: u64) {
    let launching = agent.clone();
    match off_thread(move || launch(&launching, generation, seq)).await {
        Ok(()) => {
            agent.links.tell(&GuestEvent::TasksChanged);
            follow(agent, generation, seq).await;
        }
        Err(end) => conclude(agent, generation, seq, end).await,
    }
}

/// Blocking.
fn launch(agent: &Agent, generation: u64, seq: u64) -> Result<(), End> {
    let not_run =
        |error: std::io::Error| End::NotRun(crate::files::io_error(&error, "the task's folder"));
    let gone = || End::NotRun(GuestError::new(GuestCode::Cancelled, "another machine's"));
    let tasks = &agent.tasks;
    let look = |seq| {
        let book = tasks.book(generation).ok_or_else(gone)?;
        Ok((book.folder.run(seq), book.asked(seq), book.is_cancelled(seq)))
    };
    let (run, asked, cancelled) = look(seq)?;
    if cancelled {
        return Err(End::Cancelled);
    }
    let asked = asked.map_err(not_run)?;
    if run.exists() {
        // An earlier daemon was killed before the command began.
        run.remove().map_err(not_run)?;
    }
    let spec = spec_of(asked, &run, agent.identity.boot_id.clone()).map_err(End::NotRun)?;
    match start_task(agent, &run, &spec) {
        Ok(()) | Err(NoTask::Unclear) => {}
        Err(NoTask::NotRun(error)) => return Err(End::NotRun(error)),
    }
    // Ordered, or become another machine's, while it was started.
    match look(seq) {
        Ok((_, _, false)) => {}
        Ok((_, _, true)) => {
            let _ = run.note_cancel();
            kill(agent, &run);
        }
        Err(_) => kill(agent, &run),
    }
    Ok(())
}

fn spec_of(asked: TaskPut, run: &JobDir, boot_id: String) -> Result<Spec, GuestError> {
    let secs = asked.timeout_secs;
    if !(1..=limits::MAX_TASK_TIMEOUT_SECS).contains(&secs) {
        let message = format!("timeout_secs: {secs} is not 1 to {}", limits::MAX_TASK_TIMEOUT_SECS);
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let default = || WORKDIRS.iter().find(|dir| Path::new(dir).is_dir()).map(|dir| (*dir).into());
    let start = JobStart {
        job_id: run.id(),
        argv: Argv::Shell(asked.command),
        env: asked.env,
        workdir: asked.workdir.or_else(default).or_else(|| Some("/".into())),
        spool_bytes: limits::TASK_SPOOL_BYTES,
    };
    Ok(Spec::now(start, boot_id, Some(secs * 1000)))
}

/// Kills what runs of a task. Blocking, for at most half a second.
pub fn kill(agent: &Agent, run: &JobDir) {
    let cgroup = cgroup_of(agent, run);
    if let Err(error) = signal_and_wait(run, cgroup.as_deref(), libc::SIGKILL) {
        crate::say!("task {}: cannot kill it: {error}", run.id());
    }
}

pub(super) fn cgroup_of(agent: &Agent, run: &JobDir) -> Option<std::path::PathBuf> {
    match &agent.contain {
        Contain::Cgroup(pool) => Some(pool.job_dir(&run.id())),
        Contain::Subreaper(_) => None,
    }
}

/// Waits for the end of a task that was started, by this daemon or an earlier one.
async fn follow(agent: Arc<Agent>, generation: u64, seq: u64) {
    let run = agent.tasks.folder.run(seq);
    loop {
        // Whatever it says, the folder decides.
        let _ = watch::ended(&run).await;
        let (looked, boot_id) = (run.clone(), agent.identity.boot_id.clone());
        match off_thread(move || looked.found(&boot_id)).await {
            Ok(Found::Running) | Err(_) => tokio::time::sleep(LOOK).await,
            // Its shim has left nothing alive: nobody has to wait for the cgroup.
            Ok(Found::Ended(_)) => {
                conclude(agent.clone(), generation, seq, End::Found).await;
                return put_away(&agent, &run).await;
            }
            Ok(_) => break,
        }
    }
    put_away(&agent, &run).await;
    conclude(agent, generation, seq, End::Found).await;
}

/// Kills what a dead shim left in the run's cgroup, and removes that.
async fn put_away(agent: &Agent, run: &JobDir) {
    if let Some(dir) = cgroup_of(agent, run) {
        off_thread(move || cgroup::remove(&dir)).await;
    }
}

/// Until its end is written down it is said to run.
async fn conclude(agent: Arc<Agent>, generation: u64, seq: u64, end: End) {
    let mut said = false;
    loop {
        let end = end.clone();
        if agent.tasks.generation() != generation {
            return;
        }
        match agent.tasks.with(generation, move |book| book.end(seq, &end)).await {
            Ok(()) => break,
            Err(error) => say_once(&mut said, &error),
        }
        tokio::time::sleep(AGAIN).await;
    }
    agent.links.tell(&GuestEvent::TasksChanged);
    next(&agent, generation);
}

/// What is tried again each second is not said again each second.
fn say_once(said: &mut bool, error: &GuestError) {
    if !std::mem::replace(said, true) {
        crate::say!("tasks: {error}");
    }
}
