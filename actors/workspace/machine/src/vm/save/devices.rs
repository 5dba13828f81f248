//! State of the devices alone, of a machine whose memory is private: QEMU would write all of that into a
//! migration's stream, so the devices are asked for by the command that Xen's tools use, and get the head that a
//! migration without memory has.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;

use rustix::fs::MemfdFlags;

use super::{Saving, blocking, create};
use crate::Error;

/// Longest state of devices; those of a machine have some hundred KiB.
const MAX_BYTES: u64 = 64 << 20;
/// File magic and version, as QEMU's `migration/savevm.c` has them.
const MAGIC: [u8; 8] = *b"QEVM\0\0\0\x03";
const CONFIGURATION: u8 = 7;
const SUBSECTION: u8 = 5;
const DESCRIPTION: u8 = 6;
const CAPABILITIES: &[u8] = b"configuration/capabilities";
const IGNORE_SHARED: &[u8] = b"x-ignore-shared";
/// Machine of `args`.
const MACHINE: &[u8] = b"microvm";

impl Saving<'_> {
    /// Writes the devices' file.
    pub(in crate::vm) async fn devices_alone(&self) -> Result<(), Error> {
        let io = |error| Error::io("take the state of the", "devices".as_ref())(error);
        let made = || {
            let state =
                File::from(rustix::fs::memfd_create("hivekeep-devices", MemfdFlags::CLOEXEC)?);
            // QEMU takes a descriptor of the access that it asks for, and no other.
            let again = format!("/proc/self/fd/{}", state.as_raw_fd());
            Ok((File::options().write(true).open(again)?.into(), state))
        };
        let (into, state) = made().map_err(io)?;
        self.control.save_devices(into).await?;
        let device = File::from(create(self.folder.device()).await?);
        blocking(move || complete(state, device).map_err(io)).await
    }
}

/// Writes a stream that is loaded as a migration's is.
fn complete(mut state: File, mut into: impl Write) -> io::Result<()> {
    state.rewind()?;
    let mut magic = [0; MAGIC.len()];
    state.read_exact(&mut magic)?;
    if magic != MAGIC || state.metadata()?.len() > MAX_BYTES {
        return Err(io::Error::other("not the state of devices"));
    }
    into.write_all(&head())?;
    io::copy(&mut state.take(MAX_BYTES), &mut into)?;
    // An empty description of its own, which QEMU looks for behind the end.
    into.write_all(&[DESCRIPTION, 0, 0, 0, 2, b'{', b'}'])
}

/// Head of the stream of a machine whose memory is left out: its name, and that.
pub(super) fn head() -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let short = |text: &[u8]| [&[u8::try_from(text.len()).unwrap_or(u8::MAX)], text].concat();
    let (version, count) = (word(1), word(1));
    [
        &MAGIC[..],
        &[CONFIGURATION],
        &word(MACHINE.len()),
        MACHINE,
        &[SUBSECTION],
        &short(CAPABILITIES),
        &version,
        &count,
        &short(IGNORE_SHARED),
    ]
    .concat()
}
