//! Exporter to InfluxDB: a reader of the segments that keeps its position in them, and writes their entries as
//! lines of its protocol, `measurement,tag=value field=value timestamp`.
//!
//! ```text
//! entries behind `sent` ─▶ lines ─▶ POST ─▶ 204 ─▶ record Sent ─▶ next
//!                                    ├─ away, slow, unauthorized: again, with growing pauses
//!                                    └─ refused: halves, down to the point that is refused
//! ```
//! A point's timestamp is its entry's time with the entry's place in the day as nanoseconds: no two points
//! are one, and a batch that is written again after a crash overwrites itself.

mod target;

use std::{fmt::Write as _, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use hivekeep_kernel::{ToolError, fault_point};
use serde_json::Value;

use crate::{
    ledger::SegmentRow,
    segment::{MOST_ENTRIES, SegmentId},
    tally::{MetricEntry, owner},
    tools::MetricsStore,
};
use target::WriteFailure;

pub(crate) use target::InfluxTarget;

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
async fn catch_up(metrics: &MetricsStore, target: &InfluxTarget) -> Result<(), ToolError> {
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
        let line = line_of(&target.measurement, entry, nanos(id, from + nth, entry.at_ms));
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

/// Most numbers of an entry's data that become fields of their own.
const MOST_FIELDS: usize = 32;

/// Line of an entry, without its end.
///
/// Tags are `type`, `repo`, `agent_id` and `user`; fields are `value`, which is 1, `n_KEY` for each number
/// in its data, and `data`, all of that as JSON. A field has one type for ever, whatever sessions record.
fn line_of(measurement: &str, entry: &MetricEntry, nanos: i64) -> String {
    let mut line = escaped(measurement, &[',', ' ']);
    let user = owner(entry);
    // In the order of their names, as the server likes it best.
    for (name, value) in [
        ("agent_id", &entry.agent_id),
        ("repo", &entry.repo),
        ("type", &entry.kind),
        ("user", &user),
    ] {
        if !value.is_empty() {
            let _infallible = write!(line, ",{name}={}", tag(value));
        }
    }
    line.push_str(" value=1i");
    let numbers = entry.data.iter().filter_map(|(key, value)| Some((key, finite(value)?)));
    let plain = numbers.filter(|(key, _)| !key.is_empty() && !key.chars().any(char::is_control));
    for (key, number) in plain.take(MOST_FIELDS) {
        let _infallible = write!(line, ",n_{}={number}", tag(key));
    }
    if !entry.data.is_empty() {
        let data = Value::Object(entry.data.clone()).to_string();
        let _infallible = write!(line, ",data=\"{}\"", escaped(&data, &['"', '\\']));
    }
    let _infallible = write!(line, " {nanos}");
    line
}

fn finite(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// A tag's value, or a name of a tag or field. A backslash at the end would escape what follows, and there
/// is no way to write one: it is written as in URLs.
fn tag(text: &str) -> String {
    let bare = text.trim_end_matches('\\');
    let mut tag = escaped(bare, &[',', '=', ' ']);
    (bare.len()..text.len()).for_each(|_| tag.push_str("%5C"));
    tag
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_special_is_escaped_where_it_is() {
        let data = json!({ "ms": 1.5, "n": 3, "x y": -2, "s": "a \"b\" \\c,d=e\n", "t": true });
        let entry = MetricEntry {
            at_ms: 7,
            user: None,
            kind: "a b,c=d".to_owned(),
            repo: "C:\\r\\".to_owned(),
            agent_id: String::new(),
            data: data.as_object().cloned().expect("an object"),
        };
        let line = line_of("m x,y", &entry, 7_000_001);
        let expected = concat!(
            r"m\ x\,y,repo=C:\r%5C,type=a\ b\,c\=d,user=daemon value=1i,n_ms=1.5,n_n=3,n_x\ y=-2,",
            r#"data="{\"ms\":1.5,\"n\":3,\"x y\":-2,\"s\":\"a \\\"b\\\" \\\\c,d=e\\n\",\"t\":true}" 7000001"#,
        );
        assert_eq!(line, expected);
    }
}
