//! Counts and times of each tool, kept without a lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Buckets for each doubling of a time, which is known to within a fifth.
const PER_OCTAVE: u32 = 4;
const BUCKETS: usize = 40 * PER_OCTAVE as usize;

/// Statistics of a tool since the daemon started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRow {
    /// The tool.
    pub tool: String,
    /// Family of the tool.
    pub family: String,
    /// Calls that got past the schema and the buckets.
    pub calls: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// Calls now queued or running.
    pub in_flight: u32,
    /// Half of the calls took at most this long, in microseconds, to within a fifth.
    pub p50_us: Option<u64>,
    /// 99 of 100 calls took at most this long, in microseconds, to within a fifth.
    pub p99_us: Option<u64>,
}

/// The counters of one tool.
#[derive(Debug)]
pub(crate) struct ToolStats {
    calls: AtomicU64,
    errors: AtomicU64,
    in_flight: AtomicU32,
    buckets: [AtomicU32; BUCKETS],
}

impl Default for ToolStats {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

impl ToolStats {
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.calls.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        Running(self.clone())
    }

    pub(crate) fn ended(&self, took: Duration, failed: bool) {
        if failed {
            self.errors.fetch_add(1, Relaxed);
        }
        self.buckets[bucket(took)].fetch_add(1, Relaxed);
    }

    pub(crate) fn row(&self, tool: &str, family: &str) -> ToolRow {
        let counts: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Relaxed).into()).collect();
        ToolRow {
            tool: tool.to_owned(),
            family: family.to_owned(),
            calls: self.calls.load(Relaxed),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            p50_us: quantile(&counts, 50),
            p99_us: quantile(&counts, 99),
        }
    }
}

/// A call being counted as in flight.
#[derive(Debug)]
pub(crate) struct Running(Arc<ToolStats>);

impl Running {
    pub(crate) fn ended(&self, took: Duration, failed: bool) {
        self.0.ended(took, failed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

fn bucket(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let octave = us.ilog2();
    // The next two bits after the leading one.
    let quarter = if octave >= 2 { (us >> (octave - 2)) & 3 } else { (us << (2 - octave)) & 3 };
    let index = (octave * PER_OCTAVE) as usize + usize::try_from(quarter).unwrap_or(0);
    index.min(BUCKETS - 1)
}

/// The upper bound of a bucket in microseconds.
fn bound_us(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / PER_OCTAVE as usize, bucket % PER_OCTAVE as usize);
    ((quarter as u64 + 5) << octave) / 4
}

fn quantile(counts: &[u64], percent: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let wanted = (total * percent).div_ceil(100).max(1);
    let mut seen = 0;
    counts.iter().enumerate().find_map(|(index, count)| {
        seen += count;
        (seen >= wanted).then(|| bound_us(index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_what_was_counted() {
        let stats = Arc::new(ToolStats::default());
        assert_eq!(stats.row("t", "f").p50_us, None);
        for ms in 1..=100 {
            let running = stats.begin();
            running.ended(Duration::from_millis(ms), ms % 10 == 0);
        }
        let still = stats.begin();
        let row = stats.row("t", "f");
        assert_eq!((row.calls, row.errors, row.in_flight), (101, 10, 1));
        let p50 = row.p50_us.expect("counted");
        assert!((50_000..=62_500).contains(&p50), "{p50}");
        drop(still);
        assert_eq!(stats.row("t", "f").in_flight, 0);
    }

    #[test]
    fn the_least_and_the_most_have_a_bucket_and_a_quantile_is_of_its_call() {
        let bound = |us| bound_us(bucket(Duration::from_micros(us)));
        assert_eq!([0, 1, 2, 3, 4].map(bound), [1, 1, 2, 3, 5]);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        let mut counts = [0; 20];
        (counts[8], counts[12], counts[16]) = (1, 98, 1);
        let at = |percent| quantile(&counts, percent).expect("counted");
        assert_eq!([at(0), at(1), at(2), at(99), at(100)], [5, 5, 10, 10, 20]);
        assert_eq!(quantile(&[0, 0], 50), None);
    }

    proptest! {
        #[test]
        fn a_bucket_bounds_its_times_to_within_a_quarter(us in 4u64..1 << 38) {
            let bound = bound_us(bucket(Duration::from_micros(us)));
            prop_assert!(us <= bound && bound <= us + us / 4 + 1, "{us} {bound}");
        }
    }
}
