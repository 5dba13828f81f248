//! State of the devices alone, of a machine whose memory is private: QEMU would write all of that into a
//! migration's stream, so the devices are asked for by the command that Xen's tools use, and get the head that a
//! migration without memory has.
//!
//! A whole state, as a machine with private memory gives it, is converted to memory and devices apart.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::MemfdFlags;

use super::{Saving, Shared, blocking, create};
use crate::vm::control::Control;
use crate::vm::launch::{self, Origin};
use crate::vm::nic;
use crate::vm::ram::{self, Copy};
use crate::{Disk, Driver, Error, LogsOnDiscard, MachinePlan};

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

impl Saving<'_> {
    /// Loads a whole state into a QEMU whose memory the daemon shares, and saves its devices alone.
    pub(super) async fn convert(&self, state: OwnedFd) -> Result<Shared, Error> {
        let (ram, memory_mb) = (self.converted(state).await?, self.held.shape.memory_mb);
        blocking(move || {
            let copy = Copy::of(ram, memory_mb).map_err(Error::io("copy", "ram".as_ref()))?;
            Ok(Arc::new(Mutex::new(copy)))
        })
        .await
    }

    /// Like [`Self::convert`], but returns the memory as that QEMU left it.
    pub(in crate::vm) async fn converted(&self, state: OwnedFd) -> Result<OwnedFd, Error> {
        let (plan, nic) = (self.converter(), self.held.shape.nic);
        let plan = blocking(move || nic::fit(&plan, nic)).await?;
        let memory_mb = self.held.shape.memory_mb;
        let made = || ram::make(memory_mb).and_then(|ram| Ok((ram.try_clone()?, ram)));
        let (kept, ram) = made().map_err(Error::io("make memory for", "ram".as_ref()))?;
        self.driver.prepare(&plan).await?;
        let converted = self.convert_with(&plan, Origin::Full { ram: kept, state }).await;
        self.driver.discard(&plan, LogsOnDiscard::Remove).await?;
        converted.map(|()| ram)
    }

    async fn convert_with(&self, plan: &MachinePlan, origin: Origin) -> Result<(), Error> {
        let processor = launch::processor_of(self.driver, plan, &self.held.shape);
        let launched = launch::launch(self.driver, plan, origin, processor).await?;
        let saved = async {
            let control = Control::of(&launched.handle).await?;
            control.prepare_save(create(self.folder.device()).await?, true).await?;
            Ok(control.save().await?)
        };
        let saved: Result<(), Error> = saved.await;
        self.driver.kill(&launched.handle).await?;
        saved
    }

    /// A machine of the same shape that never runs. Named so that no workspace accounts for it: if
    /// the daemon dies now, the next one's sweep removes it.
    fn converter(&self) -> MachinePlan {
        let workspace = format!("{}-convert", self.plan.workspace);
        let mut folders = self.plan.folders.clone();
        for dir in [&mut folders.run_dir, &mut folders.disk_dir, &mut folders.log_dir] {
            dir.set_file_name(&workspace);
        }
        let Disk { mut layers, top } = self.plan.disk();
        layers.push(top);
        let disk = Some(Disk { layers, top: folders.disk() });
        let cid = self.plan.cid.map(|cid| cid ^ 0x4000_0000);
        let uuid = uuid::Uuid::new_v4();
        MachinePlan { workspace, uuid, folders, disk, cid, nic: None, ..self.plan.clone() }
    }
}
