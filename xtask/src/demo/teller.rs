//! Tells each step with its time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// Tells the steps, and refuses the next one after an interruption: the cleaning
/// up then runs as after any failure.
pub(super) struct Teller {
    begun: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Default for Teller {
    fn default() -> Self {
        Self { begun: Instant::now(), interrupted: Arc::default() }
    }
}

impl Teller {
    /// From here on a signal does not end this process. The client, which gets a
    /// terminal's signals too, ends, and with it the step that waits for it.
    pub(super) fn hold_signals(&self) -> Result<()> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, self.interrupted.clone()).context("holding signals")?;
        }
        Ok(())
    }

    /// Runs a step; what it returns is told beside its time.
    pub(super) fn step(&self, name: &str, step: impl FnOnce() -> Result<String>) -> Result<()> {
        self.interrupted()?;
        let begun = Instant::now();
        let remark = step().with_context(|| name.to_owned())?;
        println!("{:>8}  {name:<27}{remark}", seconds(begun.elapsed()));
        Ok(())
    }

    /// An interruption, if there was one: what failed after it failed because of it.
    pub(super) fn interrupted(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    pub(super) fn failed(&self, last_words: &str) {
        println!("failed after {}; {last_words}", seconds(self.begun.elapsed()));
    }

    pub(super) fn closed(&self) {
        println!("\n{}  everything held, nothing is left", seconds(self.begun.elapsed()));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
