//! Channels: what a client can follow, and who may.

use hivekeep_hub::codes;
use hivekeep_kernel::{JobId, Layer, ToolError};

use crate::{credentials::CredentialScope, doors::http::caller::HttpCaller};

/// A channel by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HubChannel {
    /// `process:ID`: output and state of a process.
    Process(JobId),
    /// `events`: all events, or those of some kinds.
    Events,
    /// `team:ID`, `ingestion:ID`: events about one thing.
    Subject(String),
}

impl HubChannel {
    /// Reads a channel's name, for a caller that may follow it.
    ///
    /// # Errors
    /// `hub_channel_refused`.
    pub(super) fn parse(name: &str, caller: &HttpCaller) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            let shown: String = name.chars().take(80).collect();
            let message = format!("channel `{shown}`: {why}");
            ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, message)
                .next("follow `events`, `process:ID`, `team:ID` or `ingestion:ID`")
        };
        let good = |id: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            (1..=128).contains(&id.len()) && id.bytes().all(plain)
        };
        match name.split_once(':') {
            None if name == "events" => Ok(Self::Events),
            Some(("process", id)) => {
                id.parse().map(Self::Process).map_err(|_| refused("is not a valid process"))
            }
            // Their events name no session, so nothing says whose they are.
            Some(("team" | "ingestion", id)) if good(id) => match caller.scope {
                CredentialScope::Session => Err(refused("needs scope operator or read-only")),
                _ => Ok(Self::Subject(id.to_owned())),
            },
            _ => Err(refused("is not a valid channel")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_one_of_four_kinds_and_a_session_follows_its_own() {
        let caller = HttpCaller::bearer();
        let operator = HttpCaller { scope: CredentialScope::Operator, ..caller.clone() };
        assert_eq!(HubChannel::parse("events", &caller), Ok(HubChannel::Events));
        let job = JobId::new();
        let process = format!("process:{job}");
        assert_eq!(HubChannel::parse(&process, &caller), Ok(HubChannel::Process(job)));
        let team = HubChannel::Subject("team_1".to_owned());
        assert_eq!(HubChannel::parse("team:team_1", &operator), Ok(team));
        for (name, caller) in [
            ("team:team_1", &caller),
            ("ingestion:x", &caller),
            ("", &operator),
            ("event", &operator),
            ("events:x", &operator),
            ("team:", &operator),
            ("team:a b", &operator),
            ("process:x", &operator),
            ("chat:x", &operator),
        ] {
            let refused = HubChannel::parse(name, caller).expect_err(name);
            assert_eq!(refused.code, "hub_channel_refused", "{name}");
        }
    }
}
