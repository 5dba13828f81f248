//! Progress events of running tasks.

use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{GuestEvent, TaskProgress, limits};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::agent::Agent;
use crate::files::off_thread;
use crate::jobs::dir::JobDir;

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
