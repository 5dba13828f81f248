//! The names of everything that belongs to one network.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PlanError;

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
