//! Content hash: the name of a blob.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// BLAKE3 hash of a blob, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobHash([u8; 32]);

impl From<blake3::Hash> for BlobHash {
    fn from(hash: blake3::Hash) -> Self {
        BlobHash(*hash.as_bytes())
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlobHash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Upper case would name the same blob twice.
        let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let hash = blake3::Hash::from_hex(text).ok().filter(|_| lower);
        hash.map(BlobHash::from)
            .ok_or_else(|| Error::invalid(format!("{text:?} is not a blob hash")))
    }
}

impl TryFrom<String> for BlobHash {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<BlobHash> for String {
    fn from(hash: BlobHash) -> String {
        hash.to_string()
    }
}
