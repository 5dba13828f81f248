//! Classifier of IP addresses: global unicast or not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), length)
}

const fn v6(a: u16, b: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// Blocks of IANA's special-purpose registry for IPv4 that are not globally reachable, the relays of
/// 6to4, multicast and what is reserved.
const NOT_GLOBAL_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4),
    v4(240, 0, 0, 4),
];

/// The only block of IPv6 from which global unicast is given out. Mapped and compatible IPv4, NAT64,
/// unique local, link-local and multicast lie outside of it.
const UNICAST_V6: Ipv6Net = v6(0x2000, 0, 3);

/// Blocks within [`UNICAST_V6`] that are not for hosts, or that carry an IPv4 address: protocol
/// assignments with Teredo, documentation, 6to4.
const NOT_GLOBAL_V6: [Ipv6Net; 4] =
    [v6(0x2001, 0, 23), v6(0x2001, 0xdb8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];

/// True for an address of a host in the internet. Some addresses of protocol assignments that are
/// reachable count as not global.
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_GLOBAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            UNICAST_V6.contains(&address) && !NOT_GLOBAL_V6.iter().any(|net| net.contains(&address))
        }
    }
}
