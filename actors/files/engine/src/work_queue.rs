//! Work queue of a walk: a stack that bounded workers take from and put what they find on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Stop;

/// Work that is not done yet. The last comes first, which keeps the walk deep and the stack small.
pub(crate) struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    stack: Vec<T>,
    /// Workers that may still put something on the stack.
    busy: usize,
}

impl<T> WorkQueue<T> {
    pub(crate) fn of(first: Vec<T>) -> Self {
        let state = Mutex::new(State { stack: first, busy: 0 });
        Self { state, changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work on the stack, the last of it to be done first.
    pub(crate) fn push(&self, work: impl IntoIterator<Item = T>) {
        self.state().stack.extend(work);
        self.changed.notify_all();
    }

    /// Works until nothing is left and nobody works any more, or `stop` fires.
    pub(crate) fn work(&self, stop: Stop<'_>, mut each: impl FnMut(T)) {
        while let Some(work) = self.take(stop) {
            let _turn = Turn(self);
            each(work);
        }
    }

    fn take(&self, stop: Stop<'_>) -> Option<T> {
        let mut state = self.state();
        loop {
            if stop() {
                state.stack.clear();
            }
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A worker's turn, which ends also when it panics: the others do not wait for it.
struct Turn<'q, T>(&'q WorkQueue<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.changed.notify_all();
        }
    }
}
