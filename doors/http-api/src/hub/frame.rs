//! Frames: JSON objects, one a message, and the channels that they are of. A channel's scope decides event by event
//! what the client sees of it.

use std::collections::BTreeMap;

use chrono::Utc;
use hivekeep_hub::codes;
use hivekeep_kernel::{JobId, Layer, SessionId, ToolError};
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

/// A channel by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HubChannel {
    /// `process:ID`: output and state of a process.
    Process(JobId),
    /// `events`: all events, or those of some kinds.
    Events,
    /// `team:ID`: events of a team and of its members' inboxes.
    Team(String),
    /// `ingestions`: events of all ingestions; or of one collection's, by its id or name.
    Ingestions(Option<String>),
    /// `pages`: paths that a page of the client's user is to go to.
    Pages,
}

impl HubChannel {
    /// Reads a channel's name.
    ///
    /// # Errors
    /// `hub_channel_refused`.
    pub(super) fn parse(name: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            let shown: String = name.chars().take(80).collect();
            let message = format!("channel `{shown}`: {why}");
            ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, message).next(
                "follow `events`, `process:ID`, `team:ID`, `ingestions`, `ingestion:COLLECTION` or `pages`",
            )
        };
        let good = |id: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            (1..=128).contains(&id.len()) && id.bytes().all(plain)
        };
        match name.split_once(':') {
            None if name == "events" => Ok(Self::Events),
            None if name == "ingestions" => Ok(Self::Ingestions(None)),
            None if name == "pages" => Ok(Self::Pages),
            Some(("process", id)) => {
                id.parse().map(Self::Process).map_err(|_| refused("is not a valid process"))
            }
            Some(("team", id)) if good(id) => Ok(Self::Team(id.to_owned())),
            Some(("ingestion", id)) if good(id) => Ok(Self::Ingestions(Some(id.to_owned()))),
            _ => Err(refused("is not a valid channel")),
        }
    }

    /// Filter of a channel of events: prefix of the kinds, and subject.
    pub(super) fn events(self) -> (Option<&'static str>, Option<String>) {
        match self {
            Self::Process(_) | Self::Pages | Self::Events => (None, None),
            Self::Team(id) => (None, Some(id)),
            Self::Ingestions(collection) => (Some("ingestion."), collection),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_one_of_the_known_kinds() {
        let job = JobId::new();
        for (name, channel) in [
            ("events".to_owned(), HubChannel::Events),
            (format!("process:{job}"), HubChannel::Process(job)),
            ("team:team_1".to_owned(), HubChannel::Team("team_1".to_owned())),
            ("ingestions".to_owned(), HubChannel::Ingestions(None)),
            ("pages".to_owned(), HubChannel::Pages),
            ("ingestion:docs".to_owned(), HubChannel::Ingestions(Some("docs".to_owned()))),
        ] {
            assert_eq!(HubChannel::parse(&name), Ok(channel), "{name}");
        }
        for name in [
            "",
            "event",
            "events:x",
            "team",
            "team:",
            "pages:x",
            "team:a b",
            "process:x",
            "chat:x",
            "ingestion:",
        ] {
            let refused = HubChannel::parse(name).expect_err(name);
            assert_eq!(refused.code, "hub_channel_refused", "{name}");
        }
    }
}
