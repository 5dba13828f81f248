//! Ports of the host that lead to a guest.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use super::{PlanError, Subnet};

/// What carries ports.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Lower-case name, as nft and people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port of the host that leads to a port of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forward {
    /// Address on which the host listens: one of loopback for itself alone, one of its other addresses, or
    /// 0.0.0.0 for all of them.
    pub host_ip: Ipv4Addr,
    /// Port of the host, not 0: automatic ports are chosen before, by [`crate::ports::PortReservation`].
    pub host_port: u16,
    /// Port of the guest.
    pub guest_port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl Forward {
    /// The host's end.
    pub fn host(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host_ip, self.host_port)
    }

    /// Whether only the host itself reaches the port.
    pub fn is_loopback(&self) -> bool {
        self.host_ip.is_loopback()
    }

    pub(super) fn clashes(&self, other: &Self) -> bool {
        let any = self.host_ip.is_unspecified() || other.host_ip.is_unspecified();
        self.protocol == other.protocol
            && self.host_port == other.host_port
            && (any || self.host_ip == other.host_ip)
    }

    pub(super) fn check(&self, subnet: Subnet) -> Result<(), PlanError> {
        let inside = subnet.block().contains(self.host_ip) || self.host_ip.is_multicast();
        if self.host_port == 0 || self.guest_port == 0 || inside {
            return Err(PlanError::BadForward(self.host(), self.guest_port));
        }
        Ok(())
    }
}
