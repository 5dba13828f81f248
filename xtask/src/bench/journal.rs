//! Gain by group commit. `journal-bench` measures both sides in turns; this takes the
//! median of several runs of it.

use anyhow::{Context, Result};
use serde_json::Value;

use super::figure::{Figure, Target, median, round};
use super::kit::{BenchPrograms, output};

const ROUNDS: usize = 5;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (mut ours, mut bare, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        let told: Value = serde_json::from_str(&output(kit.baseline("journal-bench"))?)?;
        let number = |pointer: &str| {
            let value = told.pointer(pointer).and_then(Value::as_f64);
            value.with_context(|| format!("journal-bench tells no {pointer}"))
        };
        ours.push(number("/journal/durable_appends_per_sec")?);
        bare.push(number("/one_flush_per_append/appends_per_sec")?);
        synced.push(number("/one_flush_and_fdatasync_per_append/appends_per_sec")?);
    }
    Ok(vec![Figure {
        name: "journal_appends",
        unit: "appends/s",
        value: median(ours),
        baseline: Some(median(bare)),
        target: Target::AtLeastTimes(3.0),
        remark: format!(
            "the journal also syncs the file, which sled's flush does not do by itself: with that \
             one writer reaches {} a second",
            round(median(synced))
        ),
    }])
}
