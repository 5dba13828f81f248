use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a link is made and kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkOptions {
    /// Time for all attempts to connect together. The default is three times the
    /// slowest boot measured under software emulation, rounded up.
    pub deadline_ms: u64,
    /// Time for one attempt: dialling and handshake. On virtio-serial it has to
    /// hold two of the slow preamble repeats (3 s apart).
    pub attempt_timeout_ms: u64,
    /// Time for dialling alone; a vsock peer may say nothing at all.
    pub dial_timeout_ms: u64,
    /// Pause after the first failed attempt; doubled after each further one.
    pub retry_first_ms: u64,
    /// Longest pause between attempts.
    pub retry_max_ms: u64,
    /// How long a call that was cancelled or is out of time waits for the guest
    /// to say how it ended.
    pub cancel_grace_ms: u64,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            deadline_ms: 20_000,
            attempt_timeout_ms: 10_000,
            dial_timeout_ms: 2_000,
            retry_first_ms: 5,
            retry_max_ms: 500,
            cancel_grace_ms: 250,
        }
    }
}

impl LinkOptions {
    pub(super) fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    pub(super) fn attempt_timeout(&self) -> Duration {
        Duration::from_millis(self.attempt_timeout_ms)
    }

    pub(super) fn dial_timeout(&self) -> Duration {
        Duration::from_millis(self.dial_timeout_ms)
    }

    pub(super) fn cancel_grace(&self) -> Duration {
        Duration::from_millis(self.cancel_grace_ms)
    }
}

/// How a [`super::LinkSupervisor`] keeps its link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSupervisorOptions {
    /// One connecting phase and the calls.
    pub link: LinkOptions,
    /// Silence of the guest after which it is pinged.
    pub ping_idle_ms: u64,
    /// Time for the pong; without it the guest counts as unresponsive.
    pub ping_timeout_ms: u64,
    /// Unanswered pings in a row after which a link on a carrier without
    /// connections is made anew: there a restarted guest daemon does not show
    /// as a closed stream. Other carriers keep the link.
    pub resync_after_pings: u32,
    /// Pause before re-connecting after a loss; doubled each time a link did not
    /// last for `stable_after_ms`.
    pub reconnect_first_ms: u64,
    /// Longest pause before re-connecting.
    pub reconnect_max_ms: u64,
    /// A link that lasted this long starts the pauses afresh.
    pub stable_after_ms: u64,
}

impl Default for LinkSupervisorOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            ping_idle_ms: 5_000,
            ping_timeout_ms: 5_000,
            resync_after_pings: 2,
            reconnect_first_ms: 20,
            reconnect_max_ms: 5_000,
            stable_after_ms: 10_000,
        }
    }
}
