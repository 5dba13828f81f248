//! Durable queue of tasks: what was assigned to this guest, each run once, as a job.
//!
//! ```text
//! TaskPut ─► written down ─► its turn ─► a job ─► result written down ─► reported
//!                  └► answered (4 at once)
//! ```
//! [`queue`] decides, and is pure; [`folder`] and its [`log`] are the disk, which survives the
//! machine; [`durable`] keeps both as one; [`run`] has it done, by a [job](crate::jobs) for each task.
//! A job goes on when this daemon dies, and its result is taken by the next one. After the death of
//! the machine, a task whose job may have begun is `interrupted` and not run again; the others wait
//! on.
//!
//! A machine that wakes up from another one's memory has that one's tasks, and does not know it until the
//! host gives it its identity. Then the tasks that run are killed, all of them are put aside, and none is
//! reported; unless the host has it [`keep`] them before, and they go on in the copy as they do in the other.

mod access;
pub mod durable;
pub mod folder;
pub mod log;
pub mod queue;
pub mod run;

use hivekeep_protocol::{
    GuestCode, GuestError, TaskAck, TaskAcked, TaskCancel, TaskCancelled, TaskListReply as Listed,
    TaskPut, TaskPutReply, TaskRead, TaskReadReply, TaskResults, TaskResultsReply, TasksKeep,
    TasksKept, limits,
};

pub use access::GuestTasks;

use crate::files::off_thread;
use crate::identity::is_machine_id;
use crate::session::call::RequestContext;
use durable::DurableQueue;

/// Asks the queue on behalf of a call, and loads it before.
async fn ask<T: Send + 'static>(
    cx: &RequestContext,
    work: impl FnOnce(&mut DurableQueue) -> Result<T, GuestError> + Send + 'static,
) -> Result<(T, u64), GuestError> {
    let generation = cx.agent.tasks.generation();
    let asked = cx.agent.tasks.with(generation, move |queue| {
        let begun = queue.load()?;
        Ok((work(queue), begun))
    });
    let (answer, begun) = asked.await?;
    run::take_up(&cx.agent, generation, begun);
    Ok((answer?, generation))
}

/// Answers [`TaskPut`].
///
/// # Errors
/// `Invalid` for an id that is none, `TooLarge`, `Busy`, `NoSpace` and other disk errors.
pub async fn put(cx: &RequestContext, asked: TaskPut) -> Result<TaskPutReply, GuestError> {
    check(&asked)?;
    let may_begin = !run::starts_nothing(&cx.agent);
    let ((taken, begins), generation) = ask(cx, move |queue| queue.put(asked, may_begin)).await?;
    match begins {
        Some(seq) => drop(tokio::spawn(run::run(cx.agent.clone(), generation, seq))),
        None => run::next(&cx.agent, generation),
    }
    Ok(taken)
}

fn check(asked: &TaskPut) -> Result<(), GuestError> {
    for (id, least) in [(&asked.task_id, 1), (&asked.message_id, 0)] {
        let fits = (least..=limits::MAX_TASK_ID_BYTES).contains(&id.len());
        if !fits || id.chars().any(char::is_control) {
            let shown: String = id.chars().take(limits::MAX_TASK_ID_BYTES).collect();
            let message = format!("{shown:?} is not a valid id of a task or message");
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
    }
    let env: usize = asked.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    for (what, bytes, most) in [
        ("the command", asked.command.len(), limits::MAX_TASK_COMMAND_BYTES),
        ("the environment", env, limits::MAX_TASK_ENV_BYTES),
        ("workdir", asked.workdir.as_ref().map_or(0, String::len), limits::MAX_PATH_BYTES),
    ] {
        if bytes > most {
            let message = format!("{what} has {bytes} bytes; at most {most}");
            return Err(GuestError::new(GuestCode::TooLarge, message));
        }
    }
    Ok(())
}

/// Answers [`hivekeep_protocol::TaskList`].
///
/// # Errors
/// Disk errors.
pub async fn list(cx: &RequestContext) -> Result<Listed, GuestError> {
    Ok(ask(cx, |queue| Ok(queue.list())).await?.0)
}

/// Answers [`TaskResults`].
///
/// # Errors
/// Disk errors.
pub async fn results(
    cx: &RequestContext,
    asked: TaskResults,
) -> Result<TaskResultsReply, GuestError> {
    Ok(ask(cx, move |queue| queue.results(asked.after, asked.limit)).await?.0)
}

/// Answers [`TaskRead`].
///
/// # Errors
/// `UnknownTask`, or disk errors.
pub async fn read(cx: &RequestContext, asked: TaskRead) -> Result<TaskReadReply, GuestError> {
    Ok(ask(cx, move |queue| queue.reading(&asked)).await?.0)
}

/// Answers [`TaskAck`].
///
/// # Errors
/// `TooLarge` for more ids than there can be tasks, or disk errors.
pub async fn acknowledge(cx: &RequestContext, asked: TaskAck) -> Result<TaskAcked, GuestError> {
    if asked.task_ids.len() > limits::MAX_TASKS {
        let message = format!("{} ids; at most {}", asked.task_ids.len(), limits::MAX_TASKS);
        return Err(GuestError::new(GuestCode::TooLarge, message));
    }
    Ok(ask(cx, move |queue| queue.acknowledge(&asked.task_ids)).await?.0)
}

/// Answers [`TasksKeep`].
///
/// # Errors
/// `Invalid` for an id that is none, or disk errors; then they are still the other machine's.
pub async fn keep(cx: &RequestContext, asked: TasksKeep) -> Result<TasksKept, GuestError> {
    let machine_id = asked.machine_id;
    if !is_machine_id(&machine_id) {
        let message = format!("{machine_id:?} is not a machine id");
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let (open, _) = ask(cx, move |queue| queue.keep(&machine_id)).await?;
    Ok(TasksKept { open })
}

/// Answers [`TaskCancel`].
///
/// # Errors
/// `UnknownTask`, or disk errors.
pub async fn cancel(cx: &RequestContext, asked: TaskCancel) -> Result<TaskCancelled, GuestError> {
    let ((state, job), generation) = ask(cx, move |queue| queue.cancel(&asked.task_id)).await?;
    if let Some(job) = job.filter(|job| job.path().exists()) {
        let agent = cx.agent.clone();
        off_thread(move || agent.tasks.kill(&job)).await;
    }
    cx.agent.links.tell(&hivekeep_protocol::GuestEvent::TasksChanged);
    run::next(&cx.agent, generation);
    Ok(TaskCancelled { state })
}
