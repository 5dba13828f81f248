//! Start of a connection: its place in the byte stream, version negotiation, the host's proof of identity.
//!
//! A virtio-serial port is one endless stream: after the daemon restarts, or a machine resumes from saved memory,
//! bytes of the older connection may still be in it. The host therefore opens each connection with a preamble that
//! contains a fresh nonce, and both sides drop everything before it.

use serde::{Deserialize, Serialize};

use crate::HEADER_LEN;

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

/// Length of the preamble.
pub const SYNC_LEN: usize = 32;

const NONCE_LEN: usize = 16;
/// Fixed bytes of the preamble: sixteen, not UTF-8 and not a valid frame header.
const MAGIC: [u8; 16] = [
    0xff, 0xfe, 0x68, 0x69, 0x76, 0x65, 0x6b, 0x65, 0x65, 0x70, 0x2d, 0x73, 0x79, 0x6e, 0x63, 0xff,
];

/// Preamble for a nonce; the guest sends the same bytes back.
pub fn sync_preamble(nonce: [u8; NONCE_LEN]) -> [u8; SYNC_LEN] {
    let mut bytes = [0; SYNC_LEN];
    bytes[..NONCE_LEN].copy_from_slice(&MAGIC);
    bytes[NONCE_LEN..].copy_from_slice(&nonce);
    bytes
}

/// Nonce of a preamble, if it is one.
pub fn nonce_of(bytes: &[u8; SYNC_LEN]) -> Option<[u8; NONCE_LEN]> {
    let (magic, nonce) = bytes.split_at(NONCE_LEN);
    (magic == MAGIC).then(|| nonce.try_into().expect("a split of 32 at 16"))
}

/// True if bytes in the place of a frame's header begin a preamble: the peer opens a new
/// connection. No header begins that way, for its length would exceed the limit.
pub fn begins_sync(header: &[u8; HEADER_LEN]) -> bool {
    *header == MAGIC[..HEADER_LEN]
}

/// Scanner that looks for a preamble byte by byte, buffering at most one preamble's length.
#[derive(Debug, Default)]
pub struct SyncScanner {
    window: Vec<u8>,
}

impl SyncScanner {
    /// Consumes bytes up to and including a preamble. Returns the nonce and the number of bytes of
    /// `input` used; without a preamble all are used.
    pub fn push(&mut self, input: &[u8]) -> (usize, Option<[u8; NONCE_LEN]>) {
        for (at, byte) in input.iter().enumerate() {
            self.window.push(*byte);
            while !self.window.is_empty() && !self.could_begin() {
                self.window.remove(0);
            }
            if let Ok(preamble) = <&[u8; SYNC_LEN]>::try_from(self.window.as_slice()) {
                let nonce = nonce_of(preamble);
                self.window.clear();
                return (at + 1, nonce);
            }
        }
        (input.len(), None)
    }

    fn could_begin(&self) -> bool {
        let known = self.window.len().min(MAGIC.len());
        self.window[..known] == MAGIC[..known]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_echo_of_the_preamble_holds_its_nonce() {
        assert_eq!(nonce_of(&sync_preamble([7; 16])), Some([7; 16]));
        assert_eq!(nonce_of(&[0; SYNC_LEN]), None);
    }

    #[test]
    fn a_preamble_is_never_taken_for_a_frame() {
        let header = sync_preamble([7; 16])[..HEADER_LEN].try_into().unwrap();
        assert!(begins_sync(&header));
        assert!(crate::Decoder::default().push(&header).is_err());
        let length = u32::from_be_bytes(header[..4].try_into().unwrap());
        assert!(length as usize > crate::limits::MAX_PAYLOAD_BYTES);
    }

    proptest! {
        #[test]
        fn found_behind_any_rubbish_in_any_pieces(
            rubbish in proptest::collection::vec(prop_oneof![Just(0xffu8), Just(0xfe), any::<u8>()], 0..200),
            nonce in any::<[u8; 16]>(),
            piece in 1usize..50,
        ) {
            let mut stream = rubbish;
            stream.extend_from_slice(&sync_preamble(nonce));
            let expected_end = stream.len();
            stream.extend_from_slice(b"tail");
            let mut scanner = SyncScanner::default();
            let (mut used, mut found) = (0, None);
            for part in stream.chunks(piece) {
                let (n, nonce) = scanner.push(part);
                used += n;
                if nonce.is_some() { found = nonce; break; }
            }
            prop_assert_eq!(found, Some(nonce));
            prop_assert_eq!(used, expected_end);
        }
    }
}
