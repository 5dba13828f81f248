//! SHA-256 digests, and readers that compute them.

use std::{fmt, io::Read, str::FromStr};

use sha2::{Digest, Sha256};

use crate::{Error, OciResult};

/// Digest of a blob, `sha256:` and 64 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// Digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 digits.
    pub fn hex(&self) -> String {
        use fmt::Write;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }

    /// Compares content with what it should be.
    pub(crate) fn expect(self, expected: Self, what: impl Into<String>) -> OciResult<()> {
        if self == expected {
            return Ok(());
        }
        Err(Error::Digest {
            what: what.into(),
            found: self.to_string(),
            expected: expected.to_string(),
        })
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Digest {
    type Err = Error;

    fn from_str(text: &str) -> OciResult<Self> {
        let no = || Error::unsupported(format!("{text:.80?} is not a SHA-256 digest"));
        let hex = text.strip_prefix("sha256:").ok_or_else(no)?;
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if hex.len() != 64 || !hex.bytes().all(lower) {
            return Err(no());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| no())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| no())?;
        }
        Ok(Self(bytes))
    }
}

/// Digest of what comes in pieces.
#[derive(Default)]
pub(crate) struct RunningDigest(Sha256);

impl RunningDigest {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

/// Reader that computes the digest of what passes.
pub(crate) struct DigestReader<R> {
    inner: R,
    digest: RunningDigest,
}

impl<R: Read> DigestReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, digest: RunningDigest::default() }
    }

    pub(crate) fn finish(self) -> Sha256Digest {
        self.digest.finish()
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.digest.update(&buffer[..got]);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is() {
        let digest = Sha256Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Sha256Digest>().unwrap(), digest);
        for bad in [&text[7..], &text[..70], &text.to_uppercase(), "sha512:00", "sha256:é"] {
            assert!(bad.parse::<Sha256Digest>().is_err(), "{bad}");
        }
    }
}
