//! Driver of the queue: a task's way from its turn to its result, as a job of its own.

use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{
    Argv, GuestCode, GuestError, GuestEvent, JobStart, TaskNews, TaskPut, encode, limits,
};

use super::book::End;
use super::progress;
use crate::agent::Agent;
use crate::files::off_thread;
use crate::jobs::dir::{Found, JobDir, TaskTerms};
use crate::jobs::shim::SHUTDOWN_FILE;
use crate::jobs::start::{Attempt, attempt};
use crate::jobs::{end, watch};

/// Pause before what the disk refused is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause before another look at a job whose shim cannot be watched, or before it is started again.
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
            match agent.tasks.with(generation, |book| book.load()).await {
                Ok(begun) => {
                    take_up(&agent, generation, begun);
                    return next(&agent, generation);
                }
                Err(error) => say_once(&mut said, &error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
}

/// Goes on with tasks that were started before.
pub(super) fn take_up(agent: &Arc<Agent>, generation: u64, begun: Vec<u64>) {
    for seq in begun {
        tokio::spawn(follow(agent.clone(), generation, seq));
    }
}

/// Who is about to stop would only cut it short.
pub(super) fn starts_nothing(agent: &Agent) -> bool {
    agent.is_stopping() || agent.settings.run_dir.join(SHUTDOWN_FILE).exists()
}

/// Has started what may be started. Must be called within the runtime.
pub fn next(agent: &Arc<Agent>, generation: u64) {
    if starts_nothing(agent) {
        return;
    }
    let agent = agent.clone();
    tokio::spawn(async move {
        let claimed = agent.tasks.with(generation, |book| {
            Ok(std::iter::from_fn(|| book.queue.start_next()).collect::<Vec<_>>())
        });
        // None for a machine that has become another.
        let claimed = claimed.await.unwrap_or_default();
        if !claimed.is_empty() {
            agent.links.tell(&GuestEvent::TasksChanged);
        }
        for seq in claimed {
            tokio::spawn(carry(agent.clone(), generation, seq));
        }
    });
}

/// From its turn to its end.
pub(super) async fn carry(agent: Arc<Agent>, generation: u64, seq: u64) {
    let launching = agent.clone();
    match off_thread(move || launch(&launching, generation, seq)).await {
        Ok(()) => follow(agent, generation, seq).await,
        Err(end) => conclude(agent, generation, seq, None, end).await,
    }
}

/// Starts a task as a job, once its run is written down. Blocking.
fn launch(agent: &Agent, generation: u64, seq: u64) -> Result<(), End> {
    let another = || End::NotRun(GuestError::new(GuestCode::Cancelled, "another machine's"));
    let book = || agent.tasks.book(generation).ok_or_else(another);
    let begun = {
        let mut book = book()?;
        if book.is_cancelled(seq) {
            return Err(End::Cancelled);
        }
        book.begin(seq).map_err(End::NotRun)?
    };
    let Some((job, asked, workdir)) = begun else { return Err(End::Cancelled) };
    if let Attempt::Unknown(error) = start(agent, &job, asked, workdir).map_err(End::NotRun)? {
        crate::say!("task {}: {error}", job.id());
    }
    // Ordered, or become another machine's, while it was started.
    match book().map(|book| book.is_cancelled(seq)) {
        Ok(false) => {}
        Ok(true) => {
            let _ = job.note_cancel();
            kill(agent, &job);
        }
        Err(_) => kill(agent, &job),
    }
    Ok(())
}

fn start(
    agent: &Agent,
    job: &JobDir,
    asked: TaskPut,
    workdir: Option<String>,
) -> Result<Attempt, GuestError> {
    let limit_secs = asked.timeout_secs;
    if !(1..=limits::MAX_TASK_TIMEOUT_SECS).contains(&limit_secs) {
        let most = limits::MAX_TASK_TIMEOUT_SECS;
        let message = format!("timeout_secs: {limit_secs} is not 1 to {most}");
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let start = JobStart {
        job_id: job.id(),
        argv: Argv::Shell(asked.command),
        env: asked.env,
        workdir,
        spool_bytes: limits::TASK_SPOOL_BYTES,
    };
    let task = TaskTerms { limit_secs, outputs: job.outputs().to_path_buf() };
    attempt(agent, job, start, Some(task))
}

/// Kills what runs of a task. Blocking, for at most half a second.
pub(super) fn kill(agent: &Agent, job: &JobDir) {
    if let Err(error) = end::signal(&agent.contain, job, libc::SIGKILL) {
        crate::say!("task {}: cannot kill it: {error}", job.id());
    }
}

/// Waits for the end of a task that was started, by this daemon or an earlier one.
async fn follow(agent: Arc<Agent>, generation: u64, seq: u64) {
    let job = agent.tasks.with(generation, move |book| Ok(book.run(seq))).await;
    let Ok(Some(job)) = job else { return };
    let end = loop {
        // Whatever it says, the folder decides.
        tokio::select! {
            _ = watch::ended(&job) => {}
            () = progress::tell(agent.clone(), generation, seq, job.clone()) => return,
        }
        match agent.tasks.with(generation, move |book| Ok(book.found(seq))).await {
            Ok(Ok(Found::Running) | Err(_)) => tokio::time::sleep(LOOK).await,
            Ok(Ok(Found::Ended(_))) => break End::Found,
            Ok(Ok(Found::NeverBegan)) if job.is_cancelled() => break End::Cancelled,
            Ok(Ok(Found::NeverBegan)) => return again(&agent, generation, seq, job).await,
            Ok(Ok(Found::Lost)) => {
                // Before its end is told, nothing of it goes on.
                let (agent, job) = (agent.clone(), job.clone());
                off_thread(move || end::put_away(&agent.contain, &job)).await;
                break End::Found;
            }
            // Another machine's.
            Err(_) => return,
        }
    };
    conclude(agent, generation, seq, Some(&job), end).await;
}

/// Its shim died before the command began: another one is made for it.
async fn again(agent: &Arc<Agent>, generation: u64, seq: u64, job: JobDir) {
    discard(agent, job).await;
    tokio::time::sleep(LOOK).await;
    let waits = agent.tasks.with(generation, move |book| {
        book.queue.again(seq);
        Ok(())
    });
    if waits.await.is_ok() {
        next(agent, generation);
    }
}

/// Removes the folder of a job that is over, and its cgroup.
async fn discard(agent: &Arc<Agent>, job: JobDir) {
    let agent = agent.clone();
    off_thread(move || {
        agent.contain.remove_job(&job.id());
        let _ = std::fs::remove_dir_all(job.path());
    })
    .await;
}

/// Until its end is written down it is said to run. Then its job, if it had one, is removed.
async fn conclude(agent: Arc<Agent>, generation: u64, seq: u64, job: Option<&JobDir>, end: End) {
    let mut said = false;
    let (told, any_wait) = loop {
        let end = end.clone();
        if agent.tasks.generation() != generation {
            return;
        }
        let written = agent.tasks.with(generation, move |book| {
            book.end(seq, &end)?;
            Ok((book.news(seq), !book.queue.is_idle()))
        });
        match written.await {
            Ok((news, any_wait)) => {
                break (news.map_or(GuestEvent::TasksChanged, in_an_event), any_wait);
            }
            Err(error) => say_once(&mut said, &error),
        }
        tokio::time::sleep(AGAIN).await;
    };
    agent.links.tell(&told);
    if any_wait {
        next(&agent, generation);
    }
    if let Some(job) = job {
        discard(&agent, job.clone()).await;
    }
}

/// A result that is too much for an event is left to be asked for.
fn in_an_event(news: TaskNews) -> GuestEvent {
    let event = GuestEvent::TaskEnded(news);
    match encode(&event) {
        Ok(payload) if payload.len() <= limits::MAX_EVENT_BYTES => event,
        _ => GuestEvent::TasksChanged,
    }
}

/// What is tried again each second is not said again each second.
fn say_once(said: &mut bool, error: &GuestError) {
    if !std::mem::replace(said, true) {
        crate::say!("tasks: {error}");
    }
}
