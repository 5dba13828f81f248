//! Exporter to InfluxDB: a reader of the segments that keeps its position in them.
//!
//! ```text
//! entries behind `sent` ─▶ lines ─▶ POST ─▶ 204 ─▶ record Sent ─▶ next
//!                                    ├─ away, slow, unauthorized: again, with growing pauses
//!                                    └─ refused: halves, down to the point that is refused
//! ```
//! A point's timestamp is its entry's time with the entry's place in the day as nanoseconds: no two points
//! are one, and a batch that is written again after a crash overwrites itself.

mod line;
mod target;

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use hivekeep_kernel::{ToolError, fault_point};

use crate::{
    entry::MetricEntry,
    ledger::SegmentRow,
    segment::{MOST_ENTRIES, SegmentId},
    service::MetricsStore,
};
pub(crate) use target::InfluxTarget;
use target::WriteFailure;

/// How often it looks when it was told nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long records are gathered once there is one.
const GATHER: Duration = Duration::from_millis(200);
/// Most bytes of one write.
const MOST_BYTES: usize = 1024 * 1024;
/// First and longest pause while the server is away.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Writes what there is, and waits until there may be more.
pub(crate) async fn write(metrics: &MetricsStore, target: &InfluxTarget) {
    if let Err(error) = catch_up(metrics, target).await {
        tracing::warn!(%error, "nothing is written to InfluxDB; it is tried again");
    }
    let told = metrics.recorded.notified();
    if tokio::time::timeout(LOOK_EVERY, told).await.is_ok() {
        tokio::time::sleep(GATHER).await;
    }
}

/// Writes everything that is not written yet. One segment is in memory at a time.
pub(crate) async fn catch_up(
    metrics: &MetricsStore,
    target: &InfluxTarget,
) -> Result<(), ToolError> {
    let rows = metrics.ledger.rows();
    for SegmentRow { id, sent, entries, .. } in rows {
        if sent >= entries {
            continue;
        }
        let Some(segment) = metrics.ledger.segment(id).await? else { continue };
        let broken = |why: String| ToolError::internal(format!("segment {id}: {why}"));
        let unpacked = tokio::task::spawn_blocking(move || segment.entries()).await;
        let entries = unpacked.map_err(|error| broken(error.to_string()))?.map_err(broken)?;
        let mut at = sent as usize;
        while let Some(batch) = entries.get(at..).filter(|rest| !rest.is_empty()) {
            let lines = lines(target, id, at, batch);
            at += lines.len();
            put(target, &lines).await;
            fault_point!("metrics.influx_written");
            metrics.ledger.sent(id, u32::try_from(at).unwrap_or(u32::MAX)).await?;
            fault_point!("metrics.influx_sent");
        }
    }
    Ok(())
}

/// Lines of the first entries, as many as one write takes; at least one.
fn lines(
    target: &InfluxTarget,
    id: SegmentId,
    from: usize,
    entries: &[MetricEntry],
) -> Vec<String> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for (nth, entry) in entries.iter().take(target.batch_points).enumerate() {
        let line = line::of(&target.measurement, entry, nanos(id, from + nth, entry.at_ms));
        bytes += line.len() + 1;
        if bytes > MOST_BYTES && !lines.is_empty() {
            break;
        }
        lines.push(line);
    }
    lines
}

/// Unix nanoseconds of an entry: within its millisecond, its place in the day.
fn nanos(id: SegmentId, nth: usize, at_ms: i64) -> i64 {
    let place = u64::from(id.number) * u64::from(MOST_ENTRIES) + nth as u64;
    let within = i64::try_from(place % 1_000_000).unwrap_or(0);
    at_ms.saturating_mul(1_000_000).saturating_add(within)
}

/// Writes lines, however long that takes; leaves out those that the server will never take.
async fn put(target: &InfluxTarget, lines: &[String]) {
    let mut waiting = vec![lines];
    while let Some(lines) = waiting.pop() {
        let Err(why) = persist(target, lines).await else { continue };
        match lines.split_at_checked(lines.len() / 2) {
            Some((first, second)) if !first.is_empty() => waiting.extend([second, first]),
            _ => tracing::error!(%why, "InfluxDB refuses a metric for ever; it is left out there"),
        }
    }
}

/// Writes until the server has taken or refused it; returns why it refuses.
async fn persist(target: &InfluxTarget, lines: &[String]) -> Result<(), String> {
    let body = lines.join("\n");
    let (first, longest) = PAUSES;
    let pauses = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times();
    let mut pauses = pauses.build();
    loop {
        let why = match target.write(&body).await {
            Ok(()) => return Ok(()),
            Err(WriteFailure::Refused(why)) => return Err(why),
            Err(WriteFailure::Away(why)) => why,
        };
        let pause = pauses.next().unwrap_or(longest);
        tracing::warn!(%why, ?pause, "InfluxDB takes nothing; metrics are kept for it");
        tokio::time::sleep(pause).await;
    }
}
