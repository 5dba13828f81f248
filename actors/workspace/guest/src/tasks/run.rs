//! A task's way from its turn to its result.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{
    Argv, GuestCode, GuestError, GuestEvent, TaskNews, TaskPut, encode, limits,
};

use super::book::End;
use super::kill::{kill, mark_of, put_away};
use super::progress;
use super::queue::{Resume, Run};
use super::ready::{Going, Note, Order, Ready, discard};
use crate::agent::Agent;
use crate::contain::Contain;
use crate::exec::command::Prepared;
use crate::files::{io_error, off_thread};
use crate::jobs::dir::{Found, JobDir};
use crate::jobs::shim::SHUTDOWN_FILE;
use crate::jobs::watch;

/// A task without a folder of its own runs in the first of these that is there.
const WORKDIRS: [&str; 2] = ["/workspace", "/root"];
/// Pause before what the disk refused is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause before a shim is made that nobody has asked for.
const SOON: Duration = Duration::from_millis(250);
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
            let loading = agent.clone();
            match agent.tasks.with(generation, move |book| loading.tasks.load(book)).await {
                Ok(open) => {
                    take_up(&agent, generation, open);
                    next(&agent, generation);
                    return tidy(&agent, generation, None);
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

/// Who is about to stop would only cut it short.
fn starts_nothing(agent: &Agent) -> bool {
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
        for seq in claimed.await.unwrap_or_default() {
            tokio::spawn(carry(agent.clone(), generation, seq));
        }
    });
}

/// A shim and what it is to be told, once that is written down.
#[derive(Debug)]
pub struct Launch {
    ready: Ready,
    order: Order,
}

impl Launch {
    /// Tells the shim, or not: [`attend`] finds out.
    pub fn go(self) -> Gone {
        Gone { run: self.ready.run.clone(), going: self.ready.go(self.order) }
    }
}

/// A run that was to begin.
#[derive(Debug)]
pub struct Gone {
    run: JobDir,
    going: io::Result<Going>,
}

/// What a task would start with at once, if a shim waits. Waits for nothing.
pub fn at_hand(agent: &Agent, generation: u64, asked: &TaskPut) -> Option<(Run, Launch)> {
    if starts_nothing(agent) {
        return None;
    }
    let ready = agent.tasks.shelf.at_hand(generation)?;
    // What makes no sense is said by whoever has no shim at hand.
    launch_in(agent, ready, asked.clone()).ok()
}

/// Puts the shim back for another task when this one makes no sense.
fn launch_in(agent: &Agent, ready: Ready, asked: TaskPut) -> Result<(Run, Launch), GuestError> {
    let secs = asked.timeout_secs;
    let default = || WORKDIRS.iter().find(|dir| Path::new(dir).is_dir()).map(|dir| (*dir).into());
    let workdir = asked.workdir.or_else(default).or_else(|| Some("/".into()));
    let prepared = if (1..=limits::MAX_TASK_TIMEOUT_SECS).contains(&secs) {
        let argv = Argv::Shell(asked.command);
        Prepared::new(&argv, &asked.env, workdir.as_deref(), ready.run.path())
    } else {
        let message = format!("timeout_secs: {secs} is not 1 to {}", limits::MAX_TASK_TIMEOUT_SECS);
        Err(GuestError::new(GuestCode::Invalid, message))
    };
    let Prepared { mut program, script } = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            agent.tasks.shelf.put_back(ready);
            return Err(error);
        }
    };
    // A long script stays in the run's folder, which is removed as a whole.
    std::mem::forget(script);
    if matches!(*agent.contain, Contain::Subreaper(_)) {
        program.env.extend(mark_of(&ready.run));
    }
    let boot_id = agent.identity.boot_id.clone();
    let run = Run { number: ready.number, boot_id, workdir };
    Ok((run, Launch { ready, order: Order { program, limit_ms: secs * 1000 } }))
}

/// From its turn to its end.
async fn carry(agent: Arc<Agent>, generation: u64, seq: u64) {
    let launching = agent.clone();
    match off_thread(move || launch(&launching, generation, seq)).await {
        Ok(gone) => {
            agent.links.tell(&GuestEvent::TasksChanged);
            attend(agent, generation, seq, gone).await;
        }
        Err(end) => conclude(agent, generation, seq, None, end).await,
    }
}

/// Blocking.
fn launch(agent: &Agent, generation: u64, seq: u64) -> Result<Gone, End> {
    let failed = |error: io::Error| End::NotRun(io_error(&error, "the task's folder"));
    let another = || End::NotRun(GuestError::new(GuestCode::Cancelled, "another machine's"));
    let tasks = &agent.tasks;
    let book = || tasks.book(generation).ok_or_else(another);
    let (asked, cancelled) = {
        let book = book()?;
        (book.asked(seq), book.is_cancelled(seq))
    };
    if cancelled {
        return Err(End::Cancelled);
    }
    let asked = asked.map_err(failed)?;
    let ready = tasks.shelf.take(agent, &tasks.folder, generation).map_err(failed)?;
    let (run, launch) = launch_in(agent, ready, asked).map_err(End::NotRun)?;
    if !book()?.begin(seq, run).map_err(End::NotRun)? {
        return Err(End::Cancelled);
    }
    let gone = launch.go();
    // Ordered, or become another machine's, while it was started.
    let cancelled = book().map(|book| book.is_cancelled(seq));
    match cancelled {
        Ok(false) => {}
        Ok(true) => {
            let _ = gone.run.note_cancel();
            kill(agent, &gone.run);
        }
        Err(_) => kill(agent, &gone.run),
    }
    Ok(gone)
}

/// Sees a task to its end that was started by this daemon, or that was to be.
pub async fn attend(agent: Arc<Agent>, generation: u64, seq: u64, gone: Gone) {
    let full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    let Gone { run, going } = gone;
    let mut spent = None;
    let note = match going {
        Ok(going) => tokio::select! {
            heard = going.note() => heard.map(|(note, shim)| {
                spent = Some(shim);
                note
            }),
            () = progress::tell(agent.clone(), generation, seq, run.clone()) => return,
        },
        Err(error) if full(&error) => Ok(Some(Note::NotRun(io_error(&error, "the task's folder")))),
        Err(error) => Err(error),
    };
    match note {
        // Its shim has left nothing alive: nobody has to wait for the cgroup.
        Ok(Some(Note::Ended(ended))) => {
            if let (Some(shim), Contain::Cgroup(_)) = (spent, &*agent.contain) {
                agent.tasks.shelf.keep(shim);
            }
            conclude(agent, generation, seq, Some(&run), End::Told(ended)).await;
        }
        Ok(Some(Note::NotRun(error))) => {
            conclude(agent, generation, seq, None, End::NotRun(error)).await;
        }
        Ok(Some(Note::Ready) | None) | Err(_) => follow(agent, generation, seq).await,
    }
}

/// Waits for the end of a task that was started, by this daemon or an earlier one.
async fn follow(agent: Arc<Agent>, generation: u64, seq: u64) {
    let run = agent.tasks.with(generation, move |book| Ok(book.run(seq))).await;
    let Ok(Some(run)) = run else { return };
    loop {
        // Whatever it says, the folder decides.
        tokio::select! {
            _ = watch::ended(&run) => {}
            () = progress::tell(agent.clone(), generation, seq, run.clone()) => return,
        }
        match agent.tasks.with(generation, move |book| Ok(book.found(seq))).await {
            Ok(Ok(Found::Running) | Err(_)) => tokio::time::sleep(LOOK).await,
            Ok(Ok(Found::Ended(_))) => {
                return conclude(agent, generation, seq, Some(&run), End::Found).await;
            }
            Ok(Ok(Found::Nothing | Found::NeverBegan)) => {
                if run.is_cancelled() {
                    return conclude(agent, generation, seq, Some(&run), End::Cancelled).await;
                }
                let discarding = (agent.clone(), run);
                off_thread(move || discard(&discarding.0, &discarding.1)).await;
                return again(&agent, generation, seq).await;
            }
            Ok(Ok(Found::Lost)) => break,
            // Another machine's.
            Err(_) => return,
        }
    }
    // Before its end is told, nothing of it goes on.
    put_away(&agent, &run).await;
    conclude(agent, generation, seq, Some(&run), End::Found).await;
}

/// Its shim died before the command began: another one is made for it.
async fn again(agent: &Arc<Agent>, generation: u64, seq: u64) {
    let waits = agent.tasks.with(generation, move |book| {
        book.queue.again(seq);
        Ok(())
    });
    if waits.await.is_ok() {
        next(agent, generation);
    }
}

/// Until its end is written down it is said to run. Then its run, if it had one, is put away.
async fn conclude(agent: Arc<Agent>, generation: u64, seq: u64, run: Option<&JobDir>, end: End) {
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
    tidy(&agent, generation, run);
}

/// A result that is too much for an event is left to be asked for.
fn in_an_event(news: TaskNews) -> GuestEvent {
    let event = GuestEvent::TaskEnded(news);
    match encode(&event) {
        Ok(payload) if payload.len() <= limits::MAX_EVENT_BYTES => event,
        _ => GuestEvent::TasksChanged,
    }
}

/// Removes a run, and has a shim made for the next task: soon, because the machine may have been
/// for this task alone, and when the result is acknowledged, see [`fill_now`]. Must be called
/// within the runtime.
fn tidy(agent: &Arc<Agent>, generation: u64, run: Option<&JobDir>) {
    let (agent, run) = (agent.clone(), run.cloned());
    tokio::spawn(async move {
        if let Some(run) = run {
            let agent = agent.clone();
            off_thread(move || discard(&agent, &run)).await;
        }
        tokio::time::sleep(SOON).await;
        off_thread(move || fill(&agent, generation)).await;
    });
}

/// Has a shim made for the next task, unless one waits. Must be called within the runtime.
pub(super) fn fill_now(agent: &Arc<Agent>, generation: u64) {
    let agent = agent.clone();
    tokio::spawn(off_thread(move || fill(&agent, generation)));
}

/// Has a shim made for the next task, unless one waits. Blocking.
pub(super) fn fill(agent: &Agent, generation: u64) {
    if !starts_nothing(agent) {
        agent.tasks.shelf.fill(agent, &agent.tasks.folder, generation);
    }
}

/// What is tried again each second is not said again each second.
fn say_once(said: &mut bool, error: &GuestError) {
    if !std::mem::replace(said, true) {
        crate::say!("tasks: {error}");
    }
}
