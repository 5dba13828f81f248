//! Dirty set: the keys that commits change while a copy of the database is made.
//!
//! The writer notes the keys of a commit once the database has it; the thread that makes the copy
//! takes them and reads them again. A key noted after it was read is read once more, so nothing is
//! missed, and the set stays as small as what is committed between two takes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Error;

/// Maximum number of keys; beyond it the copy is given up, for it is too slow to ever end.
const MOST_KEYS: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct DirtyKeys {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<Vec<u8>>,
    ended: Option<&'static str>,
}

impl DirtyKeys {
    /// Notes the keys that a commit changed.
    pub(crate) fn note(&self, keys: Vec<Vec<u8>>) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.keys.extend(keys);
        if state.keys.len() > MOST_KEYS {
            state.keys = BTreeSet::new();
            state.ended = Some("more keys changed than the copy could follow");
        }
    }

    /// Takes the keys noted since the last call.
    pub(crate) fn take(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.state().keys)
    }

    /// Cancels the copy: nobody wants it any more.
    pub(crate) fn end(&self, why: &'static str) {
        let mut state = self.state();
        state.keys = BTreeSet::new();
        state.ended.get_or_insert(why);
    }

    /// Fails once the copy cannot be completed.
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
