//! The guest's network interface.

use serde::{Deserialize, Serialize};

/// Sets the one interface of a machine besides loopback, and nothing else stays on it: former
/// addresses, routes and neighbours go, IPv6 is off. Idempotent: what is as asked is not touched.
///
/// The interface comes up. Without a carrier its gateway is not asked for; a later call, which then
/// finds everything set, asks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNetwork {
    /// The interface's own address: unicast.
    pub mac: [u8; 6],
    /// IPv4.
    pub address: [u8; 4],
    /// Bits of the address that name its network, 8 to 30.
    pub prefix_len: u8,
    /// The next hop to everything else, in the same network.
    pub gateway: [u8; 4],
    /// Goes into `/etc/resolv.conf`; `None` leaves that file without a server.
    pub dns: Option<[u8; 4]>,
}

/// Answer to [`SetNetwork`]: what was read back from the kernel and from the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// The interface's name in the guest.
    pub interface: String,
    /// Its own address.
    pub mac: [u8; 6],
    /// Its only IPv4 address.
    pub address: [u8; 4],
    /// Bits of the address that name its network.
    pub prefix_len: u8,
    /// Where the default route leads.
    pub gateway: [u8; 4],
    /// The first server of `/etc/resolv.conf`.
    pub dns: Option<[u8; 4]>,
    /// The gateway answered an ARP request. If not, it was asked for about three seconds, or
    /// the interface has no carrier.
    pub gateway_answers: bool,
}
