//! Soak by count: what a daemon holds at rest, before and after some rounds of all its work.
//!
//! ```text
//! warming ─ rest: the least of each quantity ─ rounds ─ rest: each quantity is no more than it was
//! ```
//! At rest nothing works, machines stand still, and what a round began is over. A round that leaves a file, process,
//! descriptor or thread is therefore seen by the number alone, whatever else the host does meanwhile. What has no
//! number, as memory, is for a soak by time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::holdings::Holdings;
use super::load::{self, Extent, HELD_BY_COUNT, PAUSE, Tally, Worker};
use crate::bench::house::BenchDaemon;

/// Rounds of each worker before the first count.
const WARMING: u64 = HELD_BY_COUNT as u64;
/// Rest before the first count: longer than a session that nobody resumes, and than the merges that warming left.
const REST: Duration = Duration::from_secs(8);
/// What is held a minute after the work is left over.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is left over, a line a quantity.
pub(super) fn left<'h>(house: &'h BenchDaemon, vms: bool, deeds: &Tally) -> Result<Vec<String>> {
    let make = |maker: load::Maker<'h>| {
        let mut worker = maker()?;
        worker.work(WARMING, deeds)?;
        worker.stop_machines().map(|()| worker)
    };
    let workers = beside_each_other(load::makers(house, Extent::Count, vms), make)?;
    let before = least(house)?;
    println!("held at rest: {before}");
    let work = |mut worker: Worker<'h>| {
        worker.start_machines()?;
        worker.work(worker.rounds, deeds)?;
        worker.stop_machines().map(|()| worker)
    };
    let began = Instant::now();
    let workers = beside_each_other(workers, work)?;
    println!("worked for {} s: {deeds}", began.elapsed().as_secs());
    let left = more_than(house, &before)?;
    // Their sessions hold what is theirs until now.
    drop(workers);
    Ok(left)
}

/// What each quantity went down to at rest.
fn least(house: &BenchDaemon) -> Result<Holdings> {
    let (began, mut least) = (Instant::now(), Holdings::of(house)?);
    while began.elapsed() < REST {
        thread::sleep(PAUSE);
        least.lower_to(Holdings::of(house)?);
    }
    Ok(least)
}

/// What does not go down to where it was.
fn more_than(house: &BenchDaemon, before: &Holdings) -> Result<Vec<String>> {
    let (began, mut least) = (Instant::now(), Holdings::of(house)?);
    loop {
        let more = least.more_than(before);
        if more.is_empty() || began.elapsed() >= PATIENCE {
            return Ok(more);
        }
        thread::sleep(PAUSE);
        least.lower_to(Holdings::of(house)?);
    }
}

/// Does some work with each of them, all at once.
fn beside_each_other<T: Send, U: Send>(
    all: Vec<T>,
    work: impl Fn(T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let ended: Vec<_> = ended.collect();
        ended.into_iter().map(|it| it.map_err(|_| anyhow!("a worker panicked"))?).collect()
    })
}
