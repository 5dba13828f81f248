//! A soak test: mixed work, after which a daemon must hold no more than shortly after it began.
//!
//! By count, in each run of the tests: what some rounds of all work leave at rest ([`count`]). By time, for an hour:
//! also what grows slowly and has no number, as memory.
//!
//! ```text
//! workers (a session each, or one a call) ─▶ daemon ◀─ samples, one a second
//!                                                        │
//!                              verdict, curve, table ◀───┘
//! ```
//! Over a time, what is compared is the median of its second tenth with that of the last: the first tenth is for what a
//! daemon reads once.

mod count;
mod curve;
mod holdings;
mod load;
mod sample;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use crate::bench::{house::BenchDaemon, kit::BenchPrograms};
use crate::repo::Repo;
use crate::steps::StepOutcome;
use load::{Extent, Tally};
use sample::{Sample, Series};

/// Between two samples.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Soak {
    /// How long, five at least: before that, guests write over their file systems for the first time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..))]
    minutes: u64,
    /// Sandboxes only, where machines are too slow for the time there is
    #[arg(long)]
    no_vm: bool,
    /// Use a development build
    #[arg(long)]
    dev: bool,
    /// Write docs/soak.svg and docs/soak.md
    #[arg(long)]
    write: bool,
}

impl Soak {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let kit = BenchPrograms::new(repo, false, self.dev, Vec::new());
        kit.build_daemon()?;
        let outcome = soak(&kit, Duration::from_secs(60 * self.minutes), !self.no_vm)?;
        println!("\n{}", outcome.table());
        if self.write {
            curve::write(repo, &outcome)?;
            println!("written: docs/soak.svg, docs/soak.md");
        }
        let grown = outcome.grown();
        ensure!(grown.is_empty(), "grown: {}", grown.join(", "));
        Ok(())
    }
}

/// A soak by count of the daemon that the tests have built.
///
/// # Errors
/// When it cannot run; what is left is in the outcome.
pub(crate) fn check_by_count(repo: &Repo, vms: bool) -> Result<StepOutcome> {
    let house =
        BenchDaemon::open(&BenchPrograms::new(repo, false, true, Vec::new()), load::CONFIG)?;
    let deeds = Tally::default();
    let left = count::left(&house, vms, &deeds).inspect_err(|_| keep_logs(repo, &house))?;
    if left.is_empty() {
        return Ok(StepOutcome::Passed(deeds.to_string()));
    }
    keep_logs(repo, &house);
    left.iter().for_each(|line| println!("{line}"));
    Ok(StepOutcome::Failed(format!("left at rest: {}", left.join("; "))))
}

/// A soak by time of the daemon that the tests have built.
///
/// # Errors
/// When it cannot run; what grew is in the outcome.
pub(crate) fn check(repo: &Repo, time: Duration, vms: bool) -> Result<StepOutcome> {
    let outcome = soak(&BenchPrograms::new(repo, false, true, Vec::new()), time, vms)?;
    println!("{}", outcome.table());
    let grown = outcome.grown();
    Ok(match grown.is_empty() {
        true => StepOutcome::Passed(format!("{} s: {}", time.as_secs(), outcome.deeds)),
        false => StepOutcome::Failed(format!("grown: {}", grown.join(", "))),
    })
}

/// Findings of a run.
struct Soaked {
    time: Duration,
    series: Vec<Series>,
    deeds: Tally,
}

fn soak(kit: &BenchPrograms<'_>, time: Duration, vms: bool) -> Result<Soaked> {
    let house = BenchDaemon::open(kit, load::CONFIG)?;
    let (stop, deeds) = (AtomicBool::new(false), Tally::default());
    let began = Instant::now();
    let samples: Result<Vec<Sample>> = std::thread::scope(|scope| {
        let work = |make: load::Maker<'_>| {
            let mut worker = make()?;
            while !stop.load(Relaxed) {
                worker.work(1, &deeds)?;
                std::thread::sleep(load::PAUSE);
            }
            anyhow::Ok(())
        };
        let makers = load::makers(&house, Extent::Time, vms);
        let workers: Vec<_> =
            makers.into_iter().map(|make| scope.spawn(move || work(make))).collect();
        let mut samples = Vec::new();
        let sampled = loop {
            if began.elapsed() >= time {
                break Ok(());
            }
            if let Some(ended) = workers.iter().position(|worker| worker.is_finished()) {
                println!("worker {ended} ended early");
                break Ok(());
            }
            match Sample::take(&house, began.elapsed()) {
                Ok(sample) => samples.push(sample),
                Err(error) => break Err(error),
            }
            std::thread::sleep(EVERY);
        };
        stop.store(true, Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        sampled.map(|()| samples)
    });
    if samples.is_err() {
        keep_logs(kit.repo, &house);
    }
    Ok(Soaked { time, series: sample::series(&samples?)?, deeds })
}

fn keep_logs(repo: &Repo, house: &BenchDaemon) {
    let kept = repo.target.join("soak");
    match house.keep_logs(&kept) {
        Ok(()) => println!("the logs of the daemon and its machines are in {}", kept.display()),
        Err(error) => println!("no logs were kept: {error:#}"),
    }
}

impl Soaked {
    /// Quantities that are above their bounds at the end.
    fn grown(&self) -> Vec<String> {
        let grown = self.series.iter().filter(|series| !series.holds());
        grown.map(|series| series.name.to_owned()).collect()
    }

    fn table(&self) -> String {
        let mut lines = vec![
            "| what | after the first tenth | at the end | most | bound | holds |".to_owned(),
            "|---|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(self.series.iter().map(Series::row));
        lines.push(String::new());
        lines.push(format!("Deeds: {}.", self.deeds));
        lines.join("\n")
    }
}
