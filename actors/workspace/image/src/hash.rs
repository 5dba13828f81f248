//! Content hash: the name of an object.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Error, Result};

/// BLAKE3 hash; 64 lower-case hex digits in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(blake3::Hash);

impl ContentHash {
    /// Hash of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    /// Hash of a file's content, holes read as zeros. Blocks.
    pub(super) fn of_file(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(Error::io("open", path))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let got = file.read(&mut buffer).map_err(Error::io("read", path))?;
            if got == 0 {
                return Ok(Self(hasher.finalize()));
            }
            hasher.update(&buffer[..got]);
        }
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        blake3::Hash::from_hex(&text)
            .map(Self)
            .map_err(|error| format!("`{text}` is not a BLAKE3 hash: {error}"))
    }
}
