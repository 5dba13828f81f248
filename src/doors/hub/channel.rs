//! Channels that a client can follow. Its scope decides event by event what the client sees of them.

use hivekeep_hub::codes;
use hivekeep_kernel::{JobId, Layer, ToolError};

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
                "follow `events`, `process:ID`, `team:ID`, `ingestions` or `ingestion:COLLECTION`",
            )
        };
        let good = |id: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            (1..=128).contains(&id.len()) && id.bytes().all(plain)
        };
        match name.split_once(':') {
            None if name == "events" => Ok(Self::Events),
            None if name == "ingestions" => Ok(Self::Ingestions(None)),
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
            Self::Process(_) | Self::Events => (None, None),
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
