//! Handshake: version negotiation, and the host's proof of identity.

use serde::{Deserialize, Serialize};

/// Version of this crate's types. Both sides state the range they serve.
pub const PROTOCOL_VERSION: u16 = 1;

/// First frame of the host after the sync preamble.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostHello {
    /// Lowest version the host speaks.
    pub min_version: u16,
    /// Highest version the host speaks.
    pub max_version: u16,
    /// Link token of the machine. The guest has only its BLAKE3 hash, so that nothing inside the
    /// guest can pose as the host.
    pub token: [u8; 32],
}

impl std::fmt::Debug for HostHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("min_version", &self.min_version)
            .field("max_version", &self.max_version)
            .finish_non_exhaustive()
    }
}

/// Acceptance by the guest; requests may follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestWelcome {
    /// Version that both will use.
    pub version: u16,
    /// Version of the guest daemon's build.
    pub guest_version: String,
    /// Boot id, which changes with each boot of the guest (the kernel's boot id), and with each
    /// [`crate::Reidentify`] (its instance id).
    pub boot_id: String,
    /// Number of starts of the guest daemon within one boot, from 1.
    pub daemon_starts: u32,
    /// Containment of a command's processes.
    pub containment: Containment,
}

/// Refusal by the guest, which then closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum HelloRefusal {
    /// No common version.
    #[error("guest speaks protocol {min_version} to {max_version}")]
    Version {
        /// Lowest version the guest speaks.
        min_version: u16,
        /// Highest version the guest speaks.
        max_version: u16,
    },
    /// The token does not match.
    #[error("the link token was not accepted")]
    Token,
}

/// Containment: the way a guest finds every process of a command when it has to kill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Containment {
    /// Cgroup v2 per command, ended by `cgroup.kill`.
    Cgroup,
    /// Child-subreaper per command, which walks its descendants.
    Subreaper,
}
