//! Differential tests: searches against the programs `rg` and `find`, edits against `sed` and `patch`.
#![allow(clippy::print_stdout)]

mod edits;
mod programs;
mod real_trees;
mod searches;
mod trees;

use fastrand::Rng;

/// How many cases of each kind; 10000 in a nightly run.
const CASES_VARIABLE: &str = "TEST_HIVEKEEP_FILE_CASES";
const CASES: u64 = 100;
/// To see a failure again: its own seed, which is printed.
const SEED_VARIABLE: &str = "TEST_HIVEKEEP_FILE_SEED";

fn given(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs so many cases, `each` of them with a seed of its own.
fn cases(count: u64, mut each: impl FnMut(&mut Rng)) {
    let seeds: Vec<_> = match given(SEED_VARIABLE) {
        Some(seed) => vec![seed],
        None => (0..count).map(|_| fastrand::u64(..)).collect(),
    };
    for seed in seeds {
        let told = Told(seed);
        each(&mut Rng::with_seed(seed));
        std::mem::forget(told);
    }
}

/// Tells the seed of a case that panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("{SEED_VARIABLE}={}", self.0);
    }
}
