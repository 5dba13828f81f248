//! Entries of an allow-list: `example.org`, `*.example.org:443/tcp`, `10.1.2.0/24:5000-5010`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Protocol;

/// A text that is no entry of an allow-list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid destination: {why}")]
pub struct BadEgress {
    text: String,
    why: &'static str,
}

/// Destination that a member may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Egress {
    /// Name or addresses.
    pub to: Destination,
    /// Ports; `None` is every port and protocol.
    pub ports: Option<PortRange>,
}

/// Name or addresses of an [`Egress`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Addresses that a name resolves to, for as long as it does.
    Name(HostName),
    /// Addresses `a.b.c.d/BITS`, or a single one.
    Block(AddressBlock),
}

/// A range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The first, not 0.
    pub first: u16,
    /// The last, not below the first.
    pub last: u16,
    /// `None` is both.
    pub protocol: Option<Protocol>,
}

/// A host name, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName {
    /// Lower case, without a dot at the end.
    host: String,
    /// `*.host`: every name below, not the host itself.
    below: bool,
}

/// IPv4 addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressBlock {
    base: Ipv4Addr,
    prefix_len: u8,
}

impl Egress {
    /// True if it is a TCP port of a host: a name in lower case, or an address.
    pub fn admits_tcp(&self, host: &str, port: u16) -> bool {
        let host_fits = match &self.to {
            Destination::Name(name) => name.covers(host),
            Destination::Block(block) => host.parse().is_ok_and(|host| block.contains(host)),
        };
        let port_fits = self.ports.is_none_or(|ports| {
            (ports.first..=ports.last).contains(&port)
                && ports.protocol.is_none_or(|protocol| protocol == Protocol::Tcp)
        });
        host_fits && port_fits
    }
}

impl AddressBlock {
    /// `None` if bits are set behind the prefix, or it is longer than 32.
    pub fn new(base: Ipv4Addr, prefix_len: u8) -> Option<Self> {
        let block = Self { base, prefix_len };
        (prefix_len <= 32 && base.to_bits() & !block.mask() == 0).then_some(block)
    }

    /// The block of so many bits that an address is in.
    pub(crate) fn around(address: Ipv4Addr, prefix_len: u8) -> Self {
        let mut block = Self { base: address, prefix_len: prefix_len.min(32) };
        block.base = Ipv4Addr::from_bits(address.to_bits() & block.mask());
        block
    }

    /// The first address.
    pub fn base(self) -> Ipv4Addr {
        self.base
    }

    /// Length of the shared part in bits.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// True when an address is one of these.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.base.to_bits()
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_len)).unwrap_or(0)
    }
}

impl HostName {
    /// True when this covers a queried name, which is lower case and without a dot at the end.
    pub fn covers(&self, queried: &str) -> bool {
        match self.below {
            false => queried == self.host,
            true => queried
                .strip_suffix(self.host.as_str())
                .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
        }
    }

    /// True when one name is meant, not all below one.
    pub fn is_exact(&self) -> bool {
        !self.below
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.host)
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len {
            32 => self.base.fmt(f),
            bits => write!(f, "{}/{bits}", self.base),
        }
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Destination::Name(name) => name.fmt(f)?,
            Destination::Block(block) => block.fmt(f)?,
        }
        let Some(PortRange { first, last, protocol }) = self.ports else { return Ok(()) };
        write!(f, ":{first}")?;
        if last != first {
            write!(f, "-{last}")?;
        }
        protocol.map_or(Ok(()), |protocol| write!(f, "/{protocol}"))
    }
}

impl FromStr for AddressBlock {
    type Err = BadEgress;

    fn from_str(text: &str) -> Result<Self, BadEgress> {
        let bad = |why| BadEgress { text: text.to_owned(), why };
        let (base, bits) = text.split_once('/').unwrap_or((text, "32"));
        let base = base.parse().map_err(|_| bad("expected an IPv4 address"))?;
        let bits = bits.parse().map_err(|_| bad("expected 0 to 32 bits after the slash"))?;
        Self::new(base, bits).ok_or_else(|| bad("bits are set behind the prefix"))
    }
}

impl FromStr for HostName {
    type Err = BadEgress;

    fn from_str(text: &str) -> Result<Self, BadEgress> {
        let bad = |why| BadEgress { text: text.to_owned(), why };
        let (host, below) = match text.strip_prefix("*.") {
            Some(host) => (host, true),
            None => (text, false),
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        let label = |part: &str| (1..=63).contains(&part.len()) && part.bytes().all(letter);
        if host.len() > 253 || !host.split('.').all(label) {
            return Err(bad("expected a host name, `*.` and a host name, or an IPv4 block"));
        }
        if host.rsplit('.').next().is_some_and(|top| top.bytes().all(|b| b.is_ascii_digit())) {
            return Err(bad("a name does not end with a number"));
        }
        Ok(Self { host, below })
    }
}

impl FromStr for PortRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (range, protocol) = match text.split_once('/') {
            None => (text, None),
            Some((range, "tcp")) => (range, Some(Protocol::Tcp)),
            Some((range, "udp")) => (range, Some(Protocol::Udp)),
            Some(_) => return Err("the protocol is tcp or udp"),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u16>().map_err(|_| "expected PORT or PORT-PORT");
        let (first, last) = (number(first)?, number(last)?);
        match first >= 1 && first <= last {
            true => Ok(Self { first, last, protocol }),
            false => Err("ports begin at 1, and a range at its lower end"),
        }
    }
}

impl FromStr for Egress {
    type Err = BadEgress;

    fn from_str(text: &str) -> Result<Self, BadEgress> {
        let (place, ports) = match text.split_once(':') {
            None => (text, None),
            Some((place, ports)) => {
                let parsed = ports.parse();
                (place, Some(parsed.map_err(|why| BadEgress { text: text.to_owned(), why })?))
            }
        };
        let numeric = place.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'/');
        let to = match numeric {
            true => Destination::Block(place.parse()?),
            false => Destination::Name(place.parse()?),
        };
        Ok(Self { to, ports })
    }
}

impl TryFrom<String> for Egress {
    type Error = BadEgress;

    fn try_from(text: String) -> Result<Self, BadEgress> {
        text.parse()
    }
}

impl From<Egress> for String {
    fn from(egress: Egress) -> Self {
        egress.to_string()
    }
}
