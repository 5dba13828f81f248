//! Line codec of the control protocol.

use serde::Deserialize;
use serde_json::{Value, json};

/// Event in QEMU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct QmpEvent {
    /// Name, such as `SHUTDOWN` or `BLOCK_IO_ERROR`.
    #[serde(rename = "event")]
    pub name: String,
    /// Data as QEMU's schema says for this event.
    #[serde(default)]
    pub data: Value,
}

/// Line from QEMU.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Greeting,
    Answer {
        id: u64,
        /// Result, or the error's class and description.
        result: Result<Value, (String, String)>,
    },
    Event(QmpEvent),
}

/// Encodes a line to QEMU, without its end.
pub(super) fn command(id: u64, name: &str, arguments: Value) -> String {
    let mut object = json!({ "execute": name, "id": id });
    if !arguments.is_null() {
        object["arguments"] = arguments;
    }
    object.to_string()
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
    id: Option<u64>,
    #[serde(rename = "return")]
    done: Option<Value>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    class: String,
    desc: String,
}

pub(super) fn parse(line: &str) -> Result<Incoming, serde_json::Error> {
    use serde::de::Error;
    let line: Line = serde_json::from_str(line)?;
    if line.greeting.is_some() {
        return Ok(Incoming::Greeting);
    }
    if let Some(name) = line.event {
        return Ok(Incoming::Event(QmpEvent { name, data: line.data }));
    }
    let id = line.id.ok_or_else(|| serde_json::Error::custom("an answer without an id"))?;
    let result = match (line.done, line.error) {
        (_, Some(refusal)) => Err((refusal.class, refusal.desc)),
        (Some(value), None) => Ok(value),
        // `"return": null` reads as absent.
        (None, None) => Ok(Value::Null),
    };
    Ok(Incoming::Answer { id, result })
}
