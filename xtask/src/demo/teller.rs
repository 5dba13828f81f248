//! Tells each step with its time, and a long one before it begins.

use std::{
    fs,
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

impl Teller {
    /// Counts from when the command was typed: the build of this program is part of it.
    pub(super) fn new() -> Result<Self> {
        let now = Instant::now();
        let begun = now.checked_sub(age()?).unwrap_or(now);
        Ok(Self { begun, interrupted: Arc::default() })
    }

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

    /// The same for a step of minutes: says first what comes, how long it takes, and how much time
    /// has passed.
    pub(super) fn step_of(
        &self,
        name: &str,
        expected: &str,
        step: impl FnOnce() -> Result<String>,
    ) -> Result<()> {
        self.interrupted()?;
        println!("{:>8}  {name}: {expected}; {} so far", "..", minutes(self.begun.elapsed()));
        self.step(name, step)
    }

    /// Everything is made; the play begins.
    pub(super) fn prepared(&self, expected: &str) {
        println!("\n{} to prepare; the play takes {expected}\n", minutes(self.begun.elapsed()));
    }

    /// An interruption, if there was one: what failed after it failed because of it.
    pub(super) fn interrupted(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    pub(super) fn failed(&self, last_words: &str) {
        println!("failed after {}; {last_words}", minutes(self.begun.elapsed()));
    }

    pub(super) fn closed(&self) {
        println!("\n{} in all; everything held, nothing is left", minutes(self.begun.elapsed()));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

/// Age of this process. Cargo and the launcher become it, so it is as old as the command.
fn age() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat is cut short")?;
    // proc_pid_stat(5): the 22nd field, and the third stands behind the name.
    let ticks: u64 = fields.split_whitespace().nth(19).context("no start time")?.parse()?;
    let uptime = fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime.split(' ').next().unwrap_or_default().parse()?;
    let started = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok(Duration::from_secs_f64((uptime - started).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_age() {
        let first = age().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let grown = age().unwrap() - first;
        assert!((Duration::from_millis(40)..Duration::from_secs(30)).contains(&grown), "{grown:?}");
        assert_eq!(minutes(Duration::from_secs(605)), "10 min 05 s");
    }
}
