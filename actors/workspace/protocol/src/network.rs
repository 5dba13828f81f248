//! Network request: configures the guest's network interface.

use serde::{Deserialize, Serialize};

/// Sets the one interface of a machine besides loopback, exclusively: former addresses, routes and
/// neighbours are removed, IPv6 is off. Idempotent: settings that are right already are not
/// touched.
///
/// The interface comes up. Without a carrier its gateway is not queried; a later call, which then
/// finds everything set, queries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNetwork {
    /// MAC address of the interface: unicast.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub address: [u8; 4],
    /// Length of the network prefix in bits, 8 to 30.
    pub prefix_len: u8,
    /// Address of the next hop to everything else, in the same network.
    pub gateway: [u8; 4],
    /// Server for `/etc/resolv.conf`; `None` leaves that file without a server.
    pub dns: Option<[u8; 4]>,
}

/// Answer to [`SetNetwork`]: the settings read back from the kernel and from the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// Name of the interface in the guest.
    pub interface: String,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Only IPv4 address of the interface.
    pub address: [u8; 4],
    /// Length of the network prefix in bits.
    pub prefix_len: u8,
    /// Target of the default route.
    pub gateway: [u8; 4],
    /// First server of `/etc/resolv.conf`.
    pub dns: Option<[u8; 4]>,
    /// True if the gateway answered an ARP request. If not, it was queried for about three seconds,
    /// or the interface has no carrier.
    pub gateway_answers: bool,
}
