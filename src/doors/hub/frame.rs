//! Frames: JSON objects, one a message.

use std::collections::BTreeMap;

use chrono::Utc;
use hivekeep_kernel::{SessionId, ToolError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Kinds of events that one subscription names.
const MOST_KINDS: usize = 32;

/// Frame from a client.
#[derive(Debug, Deserialize)]
pub(super) struct HeardFrame {
    /// `subscribe`, `unsubscribe` or `ping`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Id chosen by the client; the answer has the same.
    #[serde(default)]
    pub(super) id: Value,
    #[serde(default)]
    channel: Option<String>,
    /// The channel, as clients of the published protocol write it.
    #[serde(default)]
    data: Option<Value>,
    /// Where to begin: an event's number, or `{"stdout": n, "stderr": n}` in bytes.
    #[serde(default)]
    pub(super) from: Option<FollowFrom>,
    /// Kinds of events.
    #[serde(default)]
    pub(super) kinds: Vec<String>,
    /// Session whose process it is.
    #[serde(default)]
    pub(super) session: Option<SessionId>,
}

/// Position in a channel.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum FollowFrom {
    Event(u64),
    Output(BTreeMap<String, u64>),
}

impl HeardFrame {
    /// Reads a message.
    ///
    /// # Errors
    /// `invalid_input`.
    pub(super) fn read(text: &str) -> Result<Self, ToolError> {
        let frame: Self = hivekeep_runtime::json_text::from_str(text)
            .map_err(|error| ToolError::invalid(format!("the message is not a frame: {error}")))?;
        let good_id = match &frame.id {
            Value::Null | Value::Number(_) => true,
            Value::String(id) => id.len() <= 128,
            _ => false,
        };
        if !good_id {
            return Err(ToolError::invalid("`id` is not a number or a short string"));
        }
        if frame.kinds.len() > MOST_KINDS || frame.kinds.iter().any(|kind| kind.len() > 200) {
            return Err(ToolError::invalid(format!("more than {MOST_KINDS} kinds, or a long one")));
        }
        Ok(frame)
    }

    /// Name of the channel.
    pub(super) fn channel(&self) -> Option<&str> {
        self.channel.as_deref().or_else(|| self.data.as_ref()?.as_str())
    }
}

/// A frame to send.
#[derive(Debug)]
pub(super) struct ToldFrame(Map<String, Value>);

impl ToldFrame {
    pub(super) fn new(kind: &str) -> Self {
        let frame = Map::from_iter([("type".to_owned(), json!(kind))]);
        Self(frame).with("timestamp", json!(Utc::now()))
    }

    /// A frame of a channel.
    pub(super) fn of(kind: &str, channel: &str, data: Value) -> Self {
        Self::new(kind).with("channel", json!(channel)).with("data", data)
    }

    /// A refusal.
    pub(super) fn error(id: &Value, channel: Option<&str>, error: &ToolError) -> Self {
        let data =
            json!({ "code": error.code, "message": error.message, "next_step": error.next_step });
        let frame = Self::new("error").with("id", id.clone()).with("data", data);
        match channel {
            Some(channel) => frame.with("channel", json!(channel)),
            None => frame,
        }
    }

    #[must_use]
    pub(super) fn with(mut self, key: &str, value: Value) -> Self {
        if !value.is_null() {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    pub(super) fn text(self) -> String {
        Value::Object(self.0).to_string()
    }
}
