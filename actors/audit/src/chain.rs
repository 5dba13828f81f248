//! Hash chain: lines, each with the hash of itself and of all before it.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

/// Length of a hash in hexadecimal.
const HEX: usize = 64;

/// SHA-256 of the hash of the line before and the JSON of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainHash([u8; 32]);

/// Position in the log: its last entry and that one's hash. Written `SEQ:HASH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Number of the last entry; 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub hash: ChainHash,
}

impl Head {
    /// The head of an empty log.
    pub const START: Self = Self { seq: 0, hash: ChainHash([0; 32]) };
}

impl ChainHash {
    fn digits(self) -> [u8; HEX] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; HEX];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        text
    }

    pub(crate) fn next(self, json: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(json);
        Self(hasher.finalize().into())
    }
}

/// Writes a line, and returns its hash. `json` writes the line's JSON.
pub(crate) fn push_line(
    into: &mut Vec<u8>,
    before: ChainHash,
    json: impl FnOnce(&mut Vec<u8>),
) -> ChainHash {
    let start = into.len();
    into.extend_from_slice(&[b' '; HEX + 1]);
    json(into);
    let hash = before.next(&into[start + HEX + 1..]);
    into[start..start + HEX].copy_from_slice(&hash.digits());
    into.push(b'\n');
    hash
}

/// Hash and JSON of a line without its end; `None` if it is not one.
pub(crate) fn split_line(line: &[u8]) -> Option<(ChainHash, &[u8])> {
    let (hash, rest) = line.split_at_checked(HEX)?;
    let json = rest.strip_prefix(b" ")?;
    Some((std::str::from_utf8(hash).ok()?.parse().ok()?, json))
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ChainHash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_one = "is not a hash of 64 hexadecimal digits";
        if text.len() != HEX
            || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(not_one);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| not_one)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| not_one)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Head {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seq, hash) = text.trim().split_once(':').ok_or("is not SEQ:HASH")?;
        let seq = seq.parse().map_err(|_| "does not begin with a number")?;
        Ok(Self { seq, hash: hash.parse()? })
    }
}
