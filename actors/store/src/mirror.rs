//! A dirty set: the keys that commits change while a copy of the database is made.
//!
//! The writer notes the keys of a commit once the database has it; whoever makes the copy takes
//! them and reads them again. A key that is noted after it was read is read once more, so nothing
//! is missed, and the set stays as small as what is committed between two takings.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Error;

/// More keys than this are not kept: the copy is given up, for it is too slow to ever end.
const MOST_KEYS: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<Vec<u8>>,
    ended: Option<&'static str>,
}

impl Mirror {
    /// Notes what a commit changed.
    pub(crate) fn note(&self, keys: Vec<Vec<u8>>) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.keys.extend(keys);
        if state.keys.len() > MOST_KEYS {
            state.keys = BTreeSet::new();
            state.ended = Some("more was changed meanwhile than it could follow");
        }
    }

    /// Takes what was noted since the last time.
    pub(crate) fn take(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.state().keys)
    }

    /// Tells whoever makes the copy that nobody wants it any more.
    pub(crate) fn end(&self, why: &'static str) {
        let mut state = self.state();
        state.keys = BTreeSet::new();
        state.ended.get_or_insert(why);
    }

    /// An error once the copy cannot become whole.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.state().ended {
            None => Ok(()),
            Some(why) => Err(Error::invalid(format!("the copy was given up: {why}"))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
