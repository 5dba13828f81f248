//! Reorder buffer: puts the workers' results in order again.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{MOST_SKIPPED, SearchHit, SearchLimit, SearchResults, SkippedNote};

/// Maximum number of chunks that workers may be ahead of the first incomplete one; their results
/// wait in memory.
const AHEAD: usize = 32;

/// Results of one chunk.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) hits: Vec<SearchHit>,
    pub(super) bytes: usize,
    pub(super) searched: usize,
    skipped: Vec<SkippedNote>,
    skipped_count: usize,
}

impl Part {
    pub(super) fn add(&mut self, hits: Vec<SearchHit>) {
        self.bytes += hits.iter().map(SearchHit::bytes).sum::<usize>();
        self.hits.extend(hits);
    }

    pub(super) fn skip(&mut self, skipped: SkippedNote) {
        self.skipped_count += 1;
        if self.skipped.len() < MOST_SKIPPED {
            self.skipped.push(skipped);
        }
    }
}

/// Collector that takes parts in any order and counts the completed prefix.
pub(super) struct Gather {
    most: usize,
    most_bytes: usize,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    found: SearchResults,
    bytes: usize,
    /// Index of the next chunk in order.
    next: usize,
    waiting: BTreeMap<usize, Part>,
    /// Closed: nothing more is needed, or a worker has given up.
    closed: bool,
}

impl Gather {
    pub(super) fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, state: Mutex::default(), moved: Condvar::new() }
    }

    /// Waits until a chunk may begin. False if it is not needed.
    pub(super) fn admits(&self, nth: usize) -> bool {
        let ahead = |state: &mut State| !state.closed && nth >= state.next + AHEAD;
        let state = self.moved.wait_while(self.lock(), ahead);
        !state.unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Closes the collector: a worker leaves a gap, so later chunks are not needed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }

    pub(super) fn put(&self, nth: usize, part: Part) {
        let mut state = self.lock();
        state.waiting.insert(nth, part);
        while let Some(part) = {
            let next = state.next;
            state.waiting.remove(&next)
        } {
            state.next += 1;
            if self.take(&mut state, part) {
                state.closed = true;
                state.waiting.clear();
            }
        }
        self.moved.notify_all();
    }

    /// Adds a part. True once a limit is reached.
    fn take(&self, state: &mut State, part: Part) -> bool {
        let found = &mut state.found;
        if found.cut.is_some() {
            return true;
        }
        found.searched += part.searched;
        found.skipped_count += part.skipped_count;
        let room = MOST_SKIPPED.saturating_sub(found.skipped.len());
        found.skipped.extend(part.skipped.into_iter().take(room));
        for hit in part.hits {
            if found.hits.len() == self.most {
                found.cut = Some(SearchLimit::Results);
                return true;
            }
            state.bytes += hit.bytes();
            if state.bytes > self.most_bytes {
                found.cut = Some(SearchLimit::Bytes);
                return true;
            }
            found.hits.push(hit);
        }
        false
    }

    /// Results of the completed prefix of chunks.
    pub(super) fn finish(self) -> SearchResults {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).found
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
