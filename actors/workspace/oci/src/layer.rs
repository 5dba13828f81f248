//! Layer archives: decompression within a budget, checked by the digest of what comes out; their last block filled
//! up, and their extension records read.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::MultiGzDecoder;
use tokio_util::sync::CancellationToken;

use crate::{Error, OciResult, PullLimits, Sha256Digest};

/// Largest window of zstd that is accepted, as the `zstd` program has it: 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Packing of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerPacking {
    /// Tar archive as it is.
    Plain,
    /// Compressed by gzip.
    Gzip,
    /// Compressed by zstd.
    Zstd,
}

impl LayerPacking {
    /// Packing that the first bytes of a file show.
    pub(crate) fn of_magic(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// Part of a file that is a layer.
#[derive(Debug)]
pub struct LayerFile {
    /// File, which may hold other things too.
    pub file: File,
    /// Offset at which the layer begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Its packing.
    pub packing: LayerPacking,
    /// Digest of the archive in it.
    pub diff_id: Sha256Digest,
}

impl LayerFile {
    /// Archive in the layer. What it gives counts against the budget.
    pub(crate) fn open<'a>(mut self, budget: &'a Budget<'_>) -> OciResult<Box<dyn Read + 'a>> {
        let opening = || "open a layer";
        self.file.seek(SeekFrom::Start(self.offset)).map_err(Error::io(opening()))?;
        let raw = BufReader::with_capacity(128 << 10, self.file.take(self.bytes));
        Ok(match self.packing {
            LayerPacking::Plain => Box::new(Metered { inner: raw, budget }),
            LayerPacking::Gzip => Box::new(Metered { inner: MultiGzDecoder::new(raw), budget }),
            LayerPacking::Zstd => {
                let mut inner =
                    zstd::stream::read::Decoder::with_buffer(raw).map_err(Error::io(opening()))?;
                inner.window_log_max(ZSTD_WINDOW_LOG).map_err(Error::io(opening()))?;
                Box::new(Metered { inner, budget })
            }
        })
    }
}

/// Bytes and entries that the layers of one image may still have.
pub(crate) struct Budget<'a> {
    limits: PullLimits,
    bytes: Cell<u64>,
    entries: Cell<u64>,
    cancel: &'a CancellationToken,
    /// Callback with the bytes unpacked so far.
    tell: &'a (dyn Fn(u64) + Send + Sync),
    exceeded: Cell<bool>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(
        limits: PullLimits,
        cancel: &'a CancellationToken,
        tell: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Self {
        Self {
            limits,
            bytes: Cell::default(),
            entries: Cell::default(),
            cancel,
            tell,
            exceeded: Cell::default(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.get()
    }

    /// Counts an entry.
    pub(crate) fn entry(&self) -> OciResult<()> {
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() <= self.limits.entries {
            return Ok(());
        }
        let (what, key) = ("entries", "workspace.images.max_entries");
        Err(Error::TooLarge { what, key, limit: self.limits.entries })
    }

    /// Error of a layer that could not be read: the limit's, the caller's or its own.
    pub(crate) fn error_of(&self, layer: usize, error: &io::Error) -> Error {
        if self.exceeded.get() {
            let (what, key) = ("bytes unpacked", "workspace.images.max_unpacked_mb");
            return Error::TooLarge { what, key, limit: self.limits.unpacked_bytes };
        }
        if self.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        Error::BadLayer { layer, reason: error.to_string() }
    }

    fn take(&self, got: usize) -> io::Result<()> {
        let before = self.bytes.get();
        let bytes = before.saturating_add(got as u64);
        self.bytes.set(bytes);
        if bytes > self.limits.unpacked_bytes {
            self.exceeded.set(true);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        if bytes >> 20 != before >> 20 {
            (self.tell)(bytes);
        }
        Ok(())
    }
}

struct Metered<'a, 'b, R> {
    inner: R,
    budget: &'a Budget<'b>,
}

impl<R: Read> Read for Metered<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.budget.take(got)?;
        Ok(got)
    }
}

/// Reads all records; `None` if one is malformed.
pub(crate) fn records(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let digits = bytes.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
        let record = bytes.get(digits + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((&record[..equals], &record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Some(records)
}

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

#[cfg(test)]
mod tests {
    use super::records;

    #[test]
    fn values_may_have_line_breaks_and_nonsense_is_none() {
        let bytes = b"12 path=a\nb\n7 k=\0\xff\n";
        let read = records(bytes).unwrap();
        assert_eq!(read, [(b"path".as_slice(), b"a\nb".as_slice()), (b"k", b"\0\xff")]);
        assert_eq!(records(b""), Some(Vec::new()));
        for bad in [&b"x"[..], b"5 a=b\n", b"99 a=b\n", b"0 \n", b"2 a=b\n", b"6 a=bX", b"5 ab\n"] {
            assert_eq!(records(bad), None, "{bad:?}");
        }
    }
}
