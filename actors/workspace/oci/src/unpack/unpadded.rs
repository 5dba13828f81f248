//! Reader that fills up the last block of an archive: some programs (umoci's `insert`) end it with the
//! last entry's content, and others read that as the end.

use std::{
    cell::Cell,
    io::{self, Read},
};

const BLOCK_BYTES: u64 = 512;

pub(super) struct Unpadded<'a, R> {
    inner: R,
    read: u64,
    /// True once zeros were given that are not there.
    filled: &'a Cell<bool>,
}

impl<'a, R: Read> Unpadded<'a, R> {
    pub(super) fn new(inner: R, filled: &'a Cell<bool>) -> Self {
        Self { inner, read: 0, filled }
    }
}

impl<R: Read> Read for Unpadded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.read += got as u64;
        if got > 0 || buffer.is_empty() || self.read.is_multiple_of(BLOCK_BYTES) {
            return Ok(got);
        }
        let lacking = BLOCK_BYTES - self.read % BLOCK_BYTES;
        let zeros = buffer.len().min(usize::try_from(lacking).unwrap_or(usize::MAX));
        buffer[..zeros].fill(0);
        self.read += zeros as u64;
        self.filled.set(true);
        Ok(zeros)
    }
}
