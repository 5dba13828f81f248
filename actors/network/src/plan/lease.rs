//! Names and addresses of a network: its tag, its subnet, and the place of a workspace in one.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;

use hivekeep_kernel::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{AddressBlock, PlanError};

/// Prefix of the names of a network's interfaces and tables, so that several daemons can live on
/// one host: a lower-case letter and up to five more letters or digits. Names of two tags never
/// collide, since a dash follows the tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl Tag {
    /// Tag derived from a folder: two folders have the same tag with a chance of about one in 60 million.
    pub fn of_folder(folder: &Path) -> Self {
        let hash = blake3::hash(folder.as_os_str().as_encoded_bytes());
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let of_byte = |byte: &u8| char::from(digits[usize::from(*byte) % digits.len()]);
        let tail: String = hash.as_bytes()[..5].iter().map(of_byte).collect();
        Self(format!("h{tail}"))
    }

    /// The bridge.
    pub fn bridge(&self) -> String {
        format!("{self}-br")
    }

    /// The tables, one in the family `inet` and one in `bridge`.
    pub fn table(&self) -> String {
        format!("hivekeep-{self}")
    }

    /// The tap of the guest whose address is so far into the subnet; at most 15 bytes, since a
    /// subnet has at most 24 bits of it.
    pub(super) fn tap(&self, offset: u32) -> String {
        format!("{}{offset:04x}", self.tap_prefix())
    }

    /// Prefix of the names of all taps, and of no other interface of this network.
    pub fn tap_prefix(&self) -> String {
        format!("{self}-t")
    }

    /// True when an interface of this name is of this network.
    pub fn owns(&self, interface: &str) -> bool {
        interface == self.bridge()
            || interface.strip_prefix(&self.tap_prefix()).is_some_and(|hex| {
                hex.len() >= 4 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let opens = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        match opens && plain && text.len() <= 6 {
            true => Ok(Self(text.to_owned())),
            false => Err(PlanError::BadTag(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Tag {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

/// The IPv4 network of the guests: private, between /8 and /29. Its first address is the
/// gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    base: Ipv4Addr,
    prefix_len: u8,
}

impl Subnet {
    /// Subnets of which a daemon takes a free one, where none is configured: 10.213.0.0/16 and
    /// those after it.
    pub fn choices() -> impl Iterator<Item = Self> {
        (213..=236).map(|second| Self { base: Ipv4Addr::new(10, second, 0, 0), prefix_len: 16 })
    }

    /// True when some address is in both.
    pub fn overlaps(self, block: AddressBlock) -> bool {
        self.block().contains(block.base()) || block.contains(self.base)
    }

    /// Length of the network part in bits.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Subnet as a block of addresses.
    pub fn block(self) -> AddressBlock {
        AddressBlock::new(self.base, self.prefix_len).expect("a subnet's base is that of its block")
    }

    /// The host's address on the bridge.
    pub fn gateway(self) -> Ipv4Addr {
        self.nth(1)
    }

    /// True when a guest may have this address.
    pub fn is_guest(self, address: Ipv4Addr) -> bool {
        self.block().contains(address) && (2..self.size() - 1).contains(&self.offset(address))
    }

    /// Offset of an address in the subnet.
    pub(super) fn offset(self, address: Ipv4Addr) -> u32 {
        address.to_bits() & (self.size() - 1)
    }

    fn nth(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() | offset)
    }

    fn size(self) -> u32 {
        1 << (32 - self.prefix_len)
    }

    /// Guests' addresses: all but the network's, the gateway's and the broadcast's.
    fn places(self) -> u32 {
        self.size() - 3
    }

    /// Begins at a place that follows from the id, so that an address is not given to the next
    /// workspace as soon as its first owner is gone.
    pub(super) fn allot(
        self,
        id: WorkspaceId,
        taken: &BTreeSet<Ipv4Addr>,
    ) -> Result<AddressLease, PlanError> {
        let hash = blake3::hash(id.uuid().as_bytes());
        let word = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        let first = u32::from_le_bytes(*word) % self.places();
        let mut tries = (0..self.places()).map(|step| (first + step) % self.places() + 2);
        let free = tries.find(|offset| !taken.contains(&self.nth(*offset)));
        free.map(|offset| AddressLease::at(self.nth(offset))).ok_or(PlanError::SubnetFull(self))
    }
}

impl Default for Subnet {
    /// `10.213.0.0/16`, which is within the private addresses.
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 213, 0, 0), prefix_len: 16 }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_len)
    }
}

impl FromStr for Subnet {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let bad = |why| PlanError::BadSubnet { text: text.to_owned(), why };
        let block: AddressBlock = text.parse().map_err(|_| bad("it is not ADDRESS/BITS"))?;
        if !(8..=29).contains(&block.prefix_len()) {
            return Err(bad("it must have 8 to 29 bits"));
        }
        let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
        let inside = |whole: &str| {
            let whole: AddressBlock = whole.parse().expect("a block");
            whole.contains(block.base()) && block.prefix_len() >= whole.prefix_len()
        };
        if !private.into_iter().any(inside) {
            return Err(bad("it is not of the private address ranges"));
        }
        Ok(Self { base: block.base(), prefix_len: block.prefix_len() })
    }
}

impl TryFrom<String> for Subnet {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

/// Address and MAC of a workspace: durable, since its guest is configured with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressLease {
    /// IPv4 address of the guest, in the daemon's subnet.
    pub address: Ipv4Addr,
    /// MAC address of the guest's interface.
    pub mac: Mac,
}

impl AddressLease {
    /// The lease of an address; its MAC follows from it.
    pub fn at(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        // Locally administered, unicast.
        Self { address, mac: Mac([0x02, 0x68, a, b, c, d]) }
    }

    pub(super) fn clashes(self, other: Self) -> bool {
        self.address == other.address || self.mac == other.mac
    }
}

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
