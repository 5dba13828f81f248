//! Announcement of waiting messages, in the words and the field that clients get.

use chrono::{DateTime, Utc};
use hivekeep_ports::WaitingSummary;
use serde_json::{Value, json};

/// Key of the field in a result's `_meta`.
pub(super) const FIELD: &str = "hivekeep/waiting";

/// The announcement as one line, with the call that reads the oldest message.
pub(super) fn line(waits: &WaitingSummary, now: DateTime<Utc>) -> String {
    let counted = |count, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {one}s")),
    };
    let what = [counted(waits.messages, "message"), counted(waits.results, "result")];
    let what = what.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    let verb = if waits.messages + waits.results == 1 { "waits" } else { "wait" };
    let oldest = &waits.oldest;
    let read = json!({ "action": "receive", "name": oldest.team, "agent": oldest.member });
    let (age, from) = (age_secs(waits, now), &oldest.from);
    format!("[hivekeep] {what} {verb}, the oldest from `{from}` for {age} s: team {read}")
}

/// The announcement as data.
pub(super) fn field(waits: &WaitingSummary, now: DateTime<Utc>) -> Value {
    let oldest = &waits.oldest;
    json!({
        "messages": waits.messages,
        "results": waits.results,
        "oldest": {
            "team": oldest.team,
            "agent": oldest.member,
            "from": oldest.from,
            "age_secs": age_secs(waits, now),
        },
    })
}

/// Age of the oldest message in whole seconds; 0 where the clock went back.
fn age_secs(waits: &WaitingSummary, now: DateTime<Utc>) -> i64 {
    (now - waits.oldest.since).num_seconds().max(0)
}
