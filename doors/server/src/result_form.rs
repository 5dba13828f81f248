//! Form of a result: JSON, or blocks of content in MCP's form, as those of images and of other servers. Waiting
//! messages are announced beside it.

use chrono::{DateTime, Utc};
use hivekeep_kernel::ToolSpec;
use hivekeep_ports::WaitingSummary;
use serde_json::{Value, json};

use super::DaemonServices;

/// Maker of a result's blocks, see [`ToolSpec::content`].
pub type ContentOf = fn(&Value) -> Option<Vec<Value>>;

/// See the module.
#[derive(Debug)]
pub enum ResultForm {
    /// A value, for clients to read as text.
    Json(Value),
    /// A whole result of MCP: `content`, and `structuredContent` where there is one.
    Blocks(Value),
}

impl ResultForm {
    /// The form of a result; what another server answers has its own already.
    pub fn of(value: Value, from_source: bool, content: ContentOf) -> Self {
        if from_source {
            return Self::Blocks(value);
        }
        match content(&value) {
            Some(blocks) => Self::Blocks(
                json!({ "content": blocks, "structuredContent": value, "isError": false }),
            ),
            None => Self::Json(value),
        }
    }
}

/// Maker of the blocks of a tool's results.
pub fn content_of(core: &DaemonServices, tool: &str) -> ContentOf {
    let spec: Option<&ToolSpec> = core.catalogue().find(tool).map(|entry| entry.spec);
    spec.map_or(hivekeep_kernel::tool::plain_result, |spec| spec.content)
}

/// Key of the field in a result's `_meta`.
pub const ANNOUNCEMENT_FIELD: &str = "hivekeep/waiting";

/// The announcement as one line, with the call that reads the oldest message.
pub fn announcement(waits: &WaitingSummary, now: DateTime<Utc>) -> String {
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
pub fn announcement_field(waits: &WaitingSummary, now: DateTime<Utc>) -> Value {
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
