//! The host's end of the port for plain bytes; see the guest's `selftest-raw`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// As the guest: what a data frame carries.
const CHUNK_BYTES: usize = 64 * 1024;
/// As the link asks of its carrier.
const READ_BYTES: usize = 256 * 1024;
/// Nothing measured here takes nearly as long.
const SILENCE: Duration = Duration::from_secs(120);

pub(super) struct Raw(UnixStream);

impl Raw {
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self(stream))
    }

    fn order(&mut self, letter: u8, bytes: u64) -> Result<()> {
        let mut order = [letter; 9];
        order[1..].copy_from_slice(&bytes.to_le_bytes());
        Ok(self.0.write_all(&order)?)
    }

    /// Time of an echo of a frame's size, in microseconds.
    pub(super) fn echo_us(&mut self) -> Result<f64> {
        let mut bytes = [b'x'; 64];
        let began = Instant::now();
        self.order(b'e', bytes.len() as u64)?;
        self.0.write_all(&bytes)?;
        self.0.read_exact(&mut bytes)?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Time for so many bytes out of the guest.
    pub(super) fn download(&mut self, bytes: u64) -> Result<Duration> {
        let mut buffer = vec![0; READ_BYTES];
        let began = Instant::now();
        self.order(b's', bytes)?;
        let mut left = bytes;
        while left > 0 {
            let read = self.0.read(&mut buffer)?;
            anyhow::ensure!(read > 0, "the raw port was closed");
            left -= read as u64;
        }
        Ok(began.elapsed())
    }

    /// Time for so many bytes into the guest, until it says that it has them.
    pub(super) fn upload(&mut self, bytes: u64) -> Result<Duration> {
        let chunk = vec![b'x'; CHUNK_BYTES];
        let began = Instant::now();
        self.order(b'r', bytes)?;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(CHUNK_BYTES as u64);
            self.0.write_all(&chunk[..part as usize])?;
            left -= part;
        }
        self.0.read_exact(&mut [0])?;
        Ok(began.elapsed())
    }
}
