//! What became of a call between the dispatcher and its target.

use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use tokio::time::Instant;

/// How far a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not handed over: nothing was done.
    Waiting,
    /// Put into the target's mailbox: what was done is the target's to say.
    HandedOver,
    /// The target's mailbox did not take it: nothing was done.
    Unreached,
    /// Refused by admission: nothing was done.
    Refused,
}

/// Shared by the dispatcher, which reads it, and the registry, which writes it.
#[derive(Debug)]
pub(crate) struct Ticket {
    made: Instant,
    fate: AtomicU8,
    waited_us: AtomicU64,
}

impl Ticket {
    pub(crate) fn new() -> Self {
        Self { made: Instant::now(), fate: AtomicU8::new(0), waited_us: AtomicU64::new(0) }
    }

    /// Called before the mailbox is tried, so that a call which did get there is
    /// never taken for one which did not.
    pub(super) fn handed_over(&self) {
        let us = u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited_us.store(us, SeqCst);
        self.fate.store(1, SeqCst);
    }

    pub(super) fn unreached(&self) {
        self.fate.store(2, SeqCst);
    }

    pub(super) fn refused(&self) {
        self.fate.store(3, SeqCst);
    }

    pub(crate) fn fate(&self) -> Fate {
        match self.fate.load(SeqCst) {
            0 => Fate::Waiting,
            1 => Fate::HandedOver,
            2 => Fate::Unreached,
            _ => Fate::Refused,
        }
    }

    /// Time from the dispatcher to the target's mailbox.
    pub(crate) fn queue_wait(&self) -> Duration {
        match self.fate() {
            Fate::HandedOver | Fate::Unreached => {
                Duration::from_micros(self.waited_us.load(SeqCst))
            }
            Fate::Waiting | Fate::Refused => self.made.elapsed(),
        }
    }
}
