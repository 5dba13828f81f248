//! Section `[hub]`.

use hivekeep_runtime::{FamilyOptions, ListenerOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hub at `/ws`: processes, events, teams and ingestions, followed live over WebSocket. Clients show a
/// bearer credential, as at the HTTP API. Hosts, origins and bounds are those of `[http]`. If it is not
/// enabled, the tool `ws_start` opens it until the daemon stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Clients at once; one credential has half of them at most. One more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_clients: usize,
    /// Channels that one client may subscribe to.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_channels: usize,
    /// Messages that wait for a client that reads slowly, of each of its channels; it is told what it missed
    /// beyond them.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_behind: usize,
    /// Interval of pings. A client that has sent nothing for twice that is cut off.
    #[schemars(range(min = 1, max = 3_600))]
    pub ping_secs: u64,
    /// Shortest time between two reads of a process that is followed. Each is a call in its session.
    #[schemars(range(min = 20, max = 60_000))]
    pub poll_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:8080"),
            max_clients: 256,
            max_channels: 64,
            max_behind: 256,
            ping_secs: 30,
            poll_ms: 1_000,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        self.listener.problems()
    }
}
