//! Plain bytes over a virtio-serial port of its own, without the protocol: what
//! the link's speed is measured against. A measuring aid: no machine of the
//! daemon's has such a port.
//!
//! The host sends an order of nine bytes, a letter and a number of bytes in
//! little-endian order: `e` to have so many bytes back, `s` to be sent so many,
//! `r` to send so many and then get one byte, `q` to end this.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::roles::RoleFailure;

/// Two of the driver's 32 KiB buffers; more at once is no quicker.
const CHUNK_BYTES: usize = 64 * 1024;
/// A port without a host reads as at its end.
const AWAY_POLL: Duration = Duration::from_millis(10);

/// Serves the port with this device node until the host says `q`.
///
/// # Errors
/// When the port cannot be used, or an order makes no sense.
pub fn run(device: Option<OsString>) -> Result<ExitCode, RoleFailure> {
    let device = device.ok_or("selftest-raw needs the port's device node")?;
    let mut port = File::options().read(true).write(true).open(device)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut order = [0; 9];
        fill(&mut port, &mut order)?;
        let [letter, number @ ..] = order;
        let bytes = usize::try_from(u64::from_le_bytes(number))?;
        match letter {
            b'e' => {
                let echo = chunk.get_mut(..bytes).ok_or("an echo is one chunk at most")?;
                fill(&mut port, echo)?;
                port.write_all(echo)?;
            }
            b's' => each(bytes, &mut chunk, |part| port.write_all(part))?,
            b'r' => {
                each(bytes, &mut chunk, |part| fill(&mut port, part))?;
                port.write_all(b".")?;
            }
            b'q' => return Ok(ExitCode::SUCCESS),
            other => return Err(format!("{other} is not an order").into()),
        }
    }
}

/// Does something with each chunk of so many bytes.
fn each(
    bytes: usize,
    chunk: &mut [u8],
    mut act: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = left.min(chunk.len());
        act(&mut chunk[..part])?;
        left -= part;
    }
    Ok(())
}

fn fill(port: &mut File, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match port.read(bytes)? {
            0 => std::thread::sleep(AWAY_POLL),
            read => bytes = &mut bytes[read..],
        }
    }
    Ok(())
}
