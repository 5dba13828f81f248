//! Driver of the queue: a task's way from its turn to its result, as a job of its own, with its progress.

use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{
    Argv, GuestCode, GuestError, GuestEvent, JobStart, TaskProgress, TaskPut, TaskResultsPush,
    encode, limits,
};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::durable::TaskCommandEnd;
use crate::agent::Agent;
use crate::files::off_thread;
use crate::jobs::dir::{JobDir, JobState, TaskTerms};
use crate::jobs::start::{StartAttempt, attempt};
use crate::jobs::{self, end};
use crate::settings::SHUTDOWN_FILE;

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
            match agent.tasks.with(generation, |queue| queue.load()).await {
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

/// True if the machine is about to stop, and would only cut short what it starts.
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
        let claimed = agent.tasks.with(generation, |queue| {
            Ok(std::iter::from_fn(|| queue.tasks.start_next()).collect::<Vec<_>>())
        });
        // None for a machine that has become another.
        let claimed = claimed.await.unwrap_or_default();
        if !claimed.is_empty() {
            agent.links.tell(&GuestEvent::TasksChanged);
        }
        for seq in claimed {
            tokio::spawn(run(agent.clone(), generation, seq));
        }
    });
}

/// Runs a task from its turn to its end: its run is written down, and then it is started as a job.
pub(super) async fn run(agent: Arc<Agent>, generation: u64, seq: u64) {
    let begun = agent.tasks.with(generation, move |queue| match queue.is_cancelled(seq) {
        true => Ok(None),
        false => queue.begin(seq),
    });
    let (job, asked, workdir) = match begun.await {
        Ok(Some(begun)) => begun,
        Ok(None) => return conclude(agent, generation, seq, None, TaskCommandEnd::Cancelled).await,
        Err(error) => {
            return conclude(agent, generation, seq, None, TaskCommandEnd::NotRun(error)).await;
        }
    };
    let (starting, its_job) = (agent.clone(), job.clone());
    match off_thread(move || start(&starting, &its_job, asked, workdir)).await {
        Ok(StartAttempt::Unknown(error)) => crate::say!("task {}: {error}", job.id()),
        Ok(_) => {}
        Err(error) => {
            return conclude(agent, generation, seq, None, TaskCommandEnd::NotRun(error)).await;
        }
    }
    // Ordered, or become another machine's, while it was started.
    let cancelled = agent.tasks.with(generation, move |queue| Ok(queue.is_cancelled(seq))).await;
    if !matches!(cancelled, Ok(false)) {
        let agent = agent.clone();
        off_thread(move || {
            let _ = job.note_cancel();
            agent.tasks.kill(&job);
        })
        .await;
    }
    follow(agent, generation, seq).await;
}

/// Starts a task's command as a job, with the task's time limit. Blocks.
fn start(
    agent: &Agent,
    job: &JobDir,
    asked: TaskPut,
    workdir: Option<String>,
) -> Result<StartAttempt, GuestError> {
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
    attempt(agent, job, start, None, Some(task))
}

/// Waits for the end of a task that was started, by this daemon or an earlier one.
async fn follow(agent: Arc<Agent>, generation: u64, seq: u64) {
    let job = agent.tasks.with(generation, move |queue| Ok(queue.run(seq))).await;
    let Ok(Some(job)) = job else { return };
    let end = loop {
        // Whatever it says, the folder decides.
        tokio::select! {
            _ = jobs::ended(&job) => {}
            () = tell(agent.clone(), generation, seq, job.clone()) => return,
        }
        match agent.tasks.with(generation, move |queue| Ok(queue.job_state(seq))).await {
            Ok(Ok(JobState::Running) | Err(_)) => tokio::time::sleep(LOOK).await,
            Ok(Ok(JobState::Ended(_))) => break TaskCommandEnd::OfJob,
            Ok(Ok(JobState::NeverBegan)) if job.is_cancelled() => break TaskCommandEnd::Cancelled,
            Ok(Ok(JobState::NeverBegan)) => return requeue(&agent, generation, seq, job).await,
            Ok(Ok(JobState::Lost)) => {
                // Nothing of the task goes on when its end is reported.
                let (agent, job) = (agent.clone(), job.clone());
                off_thread(move || end::clear_after_shim(&agent.contain, &job)).await;
                break TaskCommandEnd::OfJob;
            }
            // The tasks are another machine's.
            Err(_) => return,
        }
    };
    conclude(agent, generation, seq, Some(&job), end).await;
}

/// Has a task wait for its turn again whose shim died before the command began.
async fn requeue(agent: &Arc<Agent>, generation: u64, seq: u64, job: JobDir) {
    discard(agent, job).await;
    tokio::time::sleep(LOOK).await;
    let waits = agent.tasks.with(generation, move |queue| {
        queue.tasks.requeue(seq);
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

/// Writes down how a task ended, again and again until that is on the disk, and publishes it. Then its
/// job, if it had one, is removed.
async fn conclude(
    agent: Arc<Agent>,
    generation: u64,
    seq: u64,
    job: Option<&JobDir>,
    end: TaskCommandEnd,
) {
    let mut said = false;
    let (told, any_wait) = loop {
        let end = end.clone();
        if agent.tasks.generation() != generation {
            return;
        }
        let written = agent.tasks.with(generation, move |queue| {
            queue.end(seq, &end)?;
            Ok((queue.results_push(seq), !queue.tasks.is_idle()))
        });
        match written.await {
            Ok((push, any_wait)) => {
                break (push.map_or(GuestEvent::TasksChanged, as_event), any_wait);
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
fn as_event(push: TaskResultsPush) -> GuestEvent {
    let event = GuestEvent::TaskEnded(push);
    match encode(&event) {
        Ok(payload) if payload.len() <= limits::MAX_EVENT_BYTES => event,
        _ => GuestEvent::TasksChanged,
    }
}

/// Says an error once, although what failed is tried again each second.
fn say_once(said: &mut bool, error: &GuestError) {
    if !std::mem::replace(said, true) {
        crate::say!("tasks: {error}");
    }
}

/// Between two words about one task.
const EVERY: Duration = Duration::from_secs(1);

/// Tells, whenever a task has written something, and at most so often. Never returns: it is
/// dropped when the task ends.
pub(super) async fn tell(agent: Arc<Agent>, generation: u64, seq: u64, run: JobDir) {
    let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut told, mut ids) = ([0; 2], None);
    loop {
        ticks.tick().await;
        let looked = run.clone();
        let output = off_thread(move || new_output(&looked, told));
        let Some((written, tail)) = output.await else { continue };
        if ids.is_none() {
            let named = agent.tasks.with(generation, move |queue| {
                Ok(queue
                    .tasks
                    .task(seq)
                    .map(|task| (task.task_id.clone(), task.message_id.clone())))
            });
            ids = named.await.ok().flatten();
        }
        let Some((task_id, message_id)) = ids.clone() else { continue };
        told = written;
        let [stdout_bytes, stderr_bytes] = written;
        let progress = TaskProgress { task_id, message_id, stdout_bytes, stderr_bytes, tail };
        agent.links.tell(&GuestEvent::TaskProgress(progress));
    }
}

/// Sizes of the streams and the end of one that has grown since `told`; `None` if none has.
fn new_output(run: &JobDir, told: [u64; 2]) -> Option<([u64; 2], Vec<u8>)> {
    let totals = run.totals();
    let length = |name| std::fs::metadata(run.outputs().join(name)).map_or(0, |file| file.len());
    let kept = [length("stdout"), length("stderr")];
    let written = [totals[0].max(kept[0]), totals[1].max(kept[1])];
    let grown = (0..2).find(|stream| written[*stream] > told[*stream])?;
    let tail_bytes = limits::MAX_TASK_TAIL_BYTES as u64;
    let from = kept[grown].saturating_sub(tail_bytes);
    let name = ["stdout", "stderr"][grown];
    let tail = run.part(name, from, tail_bytes, 0).map_or(Vec::new(), |part| part.bytes);
    Some((written, tail))
}
