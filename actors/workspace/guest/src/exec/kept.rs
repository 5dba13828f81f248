//! Memory of commands under keys: which there are, and the output and end of each, within bounds.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hivekeep_protocol::{GuestError, RunCommand, RunCommandReply, Stream, limits};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// End of a command.
pub(super) type RunEnd = Result<RunCommandReply, GuestError>;

/// Commands under keys, those that run and the latest that have ended.
#[derive(Debug, Default)]
pub struct KeyedRuns(Mutex<HashMap<String, Arc<KeyedRun>>>);

/// Command under a key.
#[derive(Debug)]
pub(crate) struct KeyedRun {
    /// Hash of the request.
    pub(super) asked: blake3::Hash,
    /// Fires when the command is to be killed.
    pub(super) stop: CancellationToken,
    /// Fires once the end is there.
    pub(super) over: CancellationToken,
    most_bytes: usize,
    tail: bool,
    /// stdout and stderr.
    output: Mutex<[Vec<u8>; 2]>,
    /// End, and its time.
    end: OnceLock<(RunEnd, Instant)>,
}

impl KeyedRuns {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<KeyedRun>>> {
        lock(&self.0)
    }

    /// Kills what runs and forgets all, in a machine that was begun from memory.
    pub(crate) fn abandon(&self) {
        self.lock().drain().for_each(|(_, run)| run.stop.cancel());
    }

    /// Records how a command ended.
    pub(super) fn ended(&self, run: &KeyedRun, end: RunEnd) {
        for bytes in &mut *lock(&run.output) {
            let surplus = bytes.len().saturating_sub(run.most_bytes);
            bytes.drain(..surplus);
            bytes.shrink_to_fit();
        }
        let mut runs = self.lock();
        let _the_only_end = run.end.set((end, Instant::now()));
        run.over.cancel();
        forget(&mut runs);
    }
}

/// Forgets results beyond what is kept, the oldest first.
pub(super) fn forget(runs: &mut HashMap<String, Arc<KeyedRun>>) {
    let ended = |run: &KeyedRun| run.end.get().map(|(_, at)| *at);
    let all = runs.iter().filter_map(|(key, run)| Some((ended(run)?, key.clone(), run.clone())));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(at, ..)| Reverse(*at));
    let oldest = Duration::from_secs(limits::KEPT_RUN_SECS);
    let mut bytes = 0_usize;
    for (place, (at, key, run)) in all.into_iter().enumerate() {
        bytes += lock(&run.output).iter().map(Vec::len).sum::<usize>();
        let fits = place < limits::KEPT_RUNS && bytes <= limits::KEPT_RUNS_BYTES;
        if !fits || at.elapsed() > oldest {
            runs.remove(&key);
        }
    }
}

impl KeyedRun {
    pub(super) fn new(asked: blake3::Hash, command: &RunCommand, tail: bool) -> Self {
        let most_bytes = usize::try_from(command.max_output_bytes).unwrap_or(usize::MAX);
        Self {
            asked,
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
            most_bytes: most_bytes.min(limits::KEPT_STREAM_BYTES),
            tail,
            output: Mutex::default(),
            end: OnceLock::new(),
        }
    }

    pub(super) fn end(&self) -> Option<RunEnd> {
        self.end.get().map(|(end, _)| end.clone())
    }

    pub(super) fn output(&self) -> [Vec<u8>; 2] {
        lock(&self.output).clone()
    }

    /// Keeps the first or the last of what a command writes; of the last a quarter more until it ends.
    pub(super) fn keep(&self, stream: Stream, content: &[u8]) {
        let mut output = lock(&self.output);
        let kept = &mut output[usize::from(stream == Stream::Stderr)];
        if !self.tail {
            let room = self.most_bytes.saturating_sub(kept.len());
            return kept.extend_from_slice(&content[..content.len().min(room)]);
        }
        kept.extend_from_slice(&content[content.len().saturating_sub(self.most_bytes)..]);
        if kept.len() > self.most_bytes + self.most_bytes / 4 {
            kept.drain(..kept.len() - self.most_bytes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
