//! Hashing reader: counts and hashes the bytes that are read through it.

use std::io::{self, Read};

/// Reader that counts and hashes its bytes.
pub(super) struct Hashed<R> {
    pub(super) inner: R,
    pub(super) hasher: blake3::Hasher,
    pub(super) bytes: u64,
}

impl<R> Hashed<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hasher: blake3::Hasher::new(), bytes: 0 }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
