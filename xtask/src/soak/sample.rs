//! Samples of a daemon's memory, files and disk, second by second.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::house::BenchDaemon;

/// Allowed ratio of a quantity's level at the end to that after the first tenth.
const GROWTH: f64 = 1.1;

/// One look.
pub(super) struct Sample {
    at: Duration,
    values: [f64; QUANTITIES.len()],
}

/// A quantity and its unit.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// Random variation, in that unit.
    chance: f64,
    /// The same in a run whose first tenth is too short for caches to fill and whose last one is
    /// shorter than what comes and goes in minutes.
    chance_in_short: f64,
}

/// From which time on a run is no short one: its tenths are of two minutes and more.
const LONG_SECS: f64 = 20.0 * 60.0;

const QUANTITIES: [Quantity; 6] = [
    Quantity { name: "memory", unit: "MiB", chance: 0.0, chance_in_short: 20.0 },
    Quantity { name: "descriptors", unit: "", chance: 0.0, chance_in_short: 16.0 },
    // As many for blocking work as were ever busy at once; each goes on while there is some work.
    Quantity { name: "threads", unit: "", chance: 8.0, chance_in_short: 16.0 },
    // Its own bound is three times what lives in it and a constant: between two compactions it
    // grows.
    Quantity { name: "journal", unit: "MiB", chance: 64.0, chance_in_short: 64.0 },
    Quantity { name: "state", unit: "MiB", chance: 64.0, chance_in_short: 64.0 },
    // What sandboxes write, and the layers of machines, which become one when a machine stands: in
    // short runs up to twice their level for a while. A short run sees 100 KiB that each of a
    // thousand sandboxes leaves, not less: that is for a long one, which allows a tenth alone.
    Quantity { name: "disks", unit: "MiB", chance: 0.0, chance_in_short: 64.0 },
];

impl Sample {
    pub(super) fn take(house: &BenchDaemon, at: Duration) -> Result<Self> {
        let process = format!("/proc/{}", house.pid());
        let status = fs::read_to_string(format!("{process}/status"))?;
        let field = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_ascii_whitespace().next());
            Ok(word.with_context(|| format!("no {name} in a process's status"))?.parse()?)
        };
        let descriptors = fs::read_dir(format!("{process}/fd"))?.count();
        let state = house.path().join("state");
        let journal = disk_bytes(&state.join("journal"));
        let disks = ["disks", "layers"].map(|folder| disk_bytes(&state.join(folder)));
        // A memory is there as long as its snapshot: for a moment.
        let rest = ["journal", "disks", "layers", "memories"];
        let mut other = 0;
        for entry in fs::read_dir(&state)? {
            let entry = entry?;
            if !rest.iter().any(|name| entry.file_name() == *name) {
                other += disk_bytes(&entry.path());
            }
        }
        let values = [
            // Its own: memory of machines is mapped while snapshots of it are made and forked.
            field("RssAnon:")? / 1024.0,
            descriptors as f64,
            field("Threads:")?,
            mib(journal),
            mib(journal + other),
            mib(disks.iter().sum()),
        ];
        Ok(Self { at, values })
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Bytes that a file or tree takes. Files come and go meanwhile: those that are gone count nothing.
fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let entries = if meta.is_dir() { fs::read_dir(path).ok() } else { None };
    let inside = entries.into_iter().flatten().flatten();
    meta.blocks() * 512 + inside.map(|entry| disk_bytes(&entry.path())).sum::<u64>()
}

/// One quantity over the whole time.
pub(super) struct Series {
    pub(super) name: &'static str,
    unit: &'static str,
    chance: f64,
    /// Seconds since the beginning, and the value.
    pub(super) points: Vec<(f64, f64)>,
}

/// # Errors
/// When there are too few to be compared.
pub(super) fn series(samples: &[Sample]) -> Result<Vec<Series>> {
    ensure!(samples.len() >= 20, "{} samples are too few to compare", samples.len());
    let short = samples.last().is_none_or(|last| last.at.as_secs_f64() < LONG_SECS);
    let one = |(nth, quantity): (usize, &Quantity)| Series {
        name: quantity.name,
        unit: quantity.unit,
        chance: if short { quantity.chance_in_short } else { quantity.chance },
        points: samples.iter().map(|it| (it.at.as_secs_f64(), it.values[nth])).collect(),
    };
    Ok(QUANTITIES.iter().enumerate().map(one).collect())
}

impl Series {
    fn tenth(&self, nth: usize) -> f64 {
        let len = self.points.len();
        let mut values: Vec<f64> =
            self.points[len * nth / 10..len * (nth + 1) / 10].iter().map(|(_, v)| *v).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Level once the daemon has begun.
    pub(super) fn level(&self) -> f64 {
        self.tenth(1)
    }

    fn bound(&self) -> f64 {
        self.level() * GROWTH + self.chance
    }

    pub(super) fn most(&self) -> f64 {
        self.points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    pub(super) fn holds(&self) -> bool {
        self.tenth(9) <= self.bound()
    }

    pub(super) fn row(&self) -> String {
        let shown = |value: f64| format!("{value:.1} {}", self.unit).trim_end().to_owned();
        format!(
            "| {} | {} | {} | {} | {} | {} |",
            self.name,
            shown(self.level()),
            shown(self.tenth(9)),
            shown(self.most()),
            shown(self.bound()),
            if self.holds() { "yes" } else { "NO" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: impl Fn(f64) -> f64) -> Series {
        let points = (0..100).map(|n| (f64::from(n), value(f64::from(n)))).collect();
        Series { name: "memory", unit: "MiB", chance: 2.0, points }
    }

    #[test]
    fn a_straight_line_upwards_is_seen_and_a_beginning_is_not_one() {
        assert!(of(|_| 50.0).holds());
        assert!(of(|n| if n < 10.0 { n } else { 50.0 + n % 5.0 }).holds());
        assert!(!of(|n| 50.0 + n / 5.0).holds());
    }
}
