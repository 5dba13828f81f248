//! Parameters of a link: endpoint, token, options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroize;

use crate::carrier::{Carrier, UnixCarrier, VhostUserCarrier, VirtioSerialCarrier, VsockCarrier};

/// Address of a guest. Part of a machine's journalled handle.
///
/// `peer_uid` is the uid of the process that called `listen` on the socket: the daemon's own where
/// it binds the socket and passes it on, else QEMU's or the sandbox's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Endpoint {
    /// Guest daemon of the sandbox.
    Unix {
        /// Path of its listening socket.
        path: PathBuf,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
    /// QEMU's chardev socket of the virtio-serial port.
    VirtioSerial {
        /// Path of the chardev's socket.
        path: PathBuf,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
    /// AF_VSOCK of the host kernel.
    Vsock {
        /// Context id of the guest.
        cid: u32,
        /// Guest port.
        port: u32,
    },
    /// Device process of vhost-user-vsock.
    VhostUserVsock {
        /// Path of its socket.
        uds_path: PathBuf,
        /// Guest port.
        port: u32,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
}

impl Endpoint {
    /// Carrier for this endpoint.
    pub fn carrier(&self) -> Arc<dyn Carrier> {
        match self.clone() {
            Self::Unix { path, peer_uid } => Arc::new(UnixCarrier { path, peer_uid }),
            Self::VirtioSerial { path, peer_uid } => {
                Arc::new(VirtioSerialCarrier { path, peer_uid })
            }
            Self::Vsock { cid, port } => Arc::new(VsockCarrier { cid, port }),
            Self::VhostUserVsock { uds_path, port, peer_uid } => {
                Arc::new(VhostUserCarrier { uds_path, port, peer_uid })
            }
        }
    }
}

const LEN: usize = 32;

/// Secret of a machine. Its holder can control the guest; the guest itself has only the hash. Never
/// shown; wiped from memory when dropped.
///
/// Serialized (for the owner's journal) as 64 hex digits.
#[derive(Clone)]
pub struct LinkToken([u8; LEN]);

impl LinkToken {
    /// Makes a token from the operating system's random source.
    ///
    /// # Errors
    /// Fails when the system gives no random bytes.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; LEN];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Makes a token of known bytes.
    pub fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// BLAKE3 of the token as 64 hex digits, as the guest is given it.
    pub fn hash_hex(&self) -> String {
        blake3::hash(&self.0).to_hex().to_string()
    }

    /// BLAKE3 of the token.
    pub fn hash(&self) -> [u8; LEN] {
        *blake3::hash(&self.0).as_bytes()
    }

    pub(super) fn bytes(&self) -> [u8; LEN] {
        self.0
    }
}

impl Drop for LinkToken {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkToken(..)")
    }
}

impl Serialize for LinkToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `Hash` is only a 32-byte array here; nothing is hashed.
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for LinkToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        let parsed = blake3::Hash::from_hex(&text);
        text.zeroize();
        parsed
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| D::Error::custom("a link token is 64 hex digits"))
    }
}

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
    /// Options of a link: of a connecting phase, and of calls.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_journal_and_is_never_shown() {
        let token = LinkToken::generate().unwrap();
        let json = serde_json::to_string(&token).unwrap();
        let back: LinkToken = serde_json::from_str(&json).unwrap();
        assert_eq!(back.bytes(), token.bytes());
        assert_eq!(back.hash_hex(), blake3::hash(&token.bytes()).to_hex().as_str());
        assert_eq!(format!("{token:?}"), "LinkToken(..)");
        assert!(serde_json::from_str::<LinkToken>("\"abc\"").is_err());
    }
}
