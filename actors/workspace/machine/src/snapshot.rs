//! Snapshots: saving a machine, and starting machines from what was saved.
//!
//! ```text
//!            save                                   launch_from (any number of times)
//!  running ────────► frozen layer + memory image ───────────────────► paused ── resume ──► running
//!     │                                                                copy-on-write in memory
//!     └─ goes on with a new top layer                                  and on disk
//! ```
//! The disk part is a layer that is frozen and a new empty one above it; nothing is copied. The
//! memory part is a [`SnapshotFolder`]. Both are immutable from then on: a machine that is started
//! from them has its own top layer, and sees the memory image through a private mapping of a
//! sealed memfd, which no machine can write.
//!
//! The owner journals its intent, with the path of the new top, before it calls. If the daemon
//! dies inside [`Snapshots::save`] the machine may be left paused and may or may not have the new
//! top: [`Snapshots::switch_disk`] with the journalled path, then [`Snapshots::resume`], rolls
//! forward whatever was reached, and [`Snapshots::discard_snapshot`] removes the folder.

mod folder;

pub(super) use folder::{Packed, SnapshotDescription};

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CarrierKind, Error, LaunchedMachine, MachineHandle, MachinePlan};

pub use folder::SnapshotFolder;

/// Request for [`Snapshots::save`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveRequest {
    /// Layer that the machine writes from then on; made if it is missing. Absolute.
    pub new_top: PathBuf,
    /// Destination of the memory image; `None` saves the disk alone. The folder must not exist, its
    /// parent must.
    pub memory_into: Option<SnapshotFolder>,
}

/// Request for [`Snapshots::park`], and for the [`Snapshots::wake`] after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkRequest {
    /// Place of the memory. For a park the folder must not exist, its parent must.
    pub into: SnapshotFolder,
    /// Memory image that the machine began with: pages that still are as in it are not kept a second time. It
    /// must then stay until the machine is awake. An image that is missing, or does not fit, is no error of a
    /// park.
    pub base: Option<SnapshotFolder>,
}

/// Result of [`Snapshots::save`], durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveResult {
    /// Milliseconds for which the guest was paused, rounded up.
    pub pause_ms: u64,
    /// True if the frozen layer is now open read-only in the machine that wrote it. Otherwise only
    /// QEMU's own promise keeps it from being written.
    pub layer_is_read_only: bool,
    /// The memory image, if one was asked for.
    pub memory: Option<SavedMemory>,
}

/// The memory part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMemory {
    /// Bytes of the pages that are not zero.
    pub ram_bytes: u64,
    /// Bytes of the state of processor and devices.
    pub device_bytes: u64,
    /// Bytes of memory that had to be copied while the guest was paused.
    pub copied_in_pause_bytes: u64,
}

/// Properties that a memory image and a machine must have in common. Both sides are recorded when
/// they are made, so that a daemon with another QEMU refuses instead of failing in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineShape {
    /// The program that runs the machine, with its version.
    pub program: String,
    /// BLAKE3 of the command-line words that define the machine.
    pub machine: String,
    /// Number of virtual processors.
    pub vcpus: u32,
    /// RAM of the guest, in MiB.
    pub memory_mb: u64,
    /// The link's carrier.
    pub carrier: CarrierKind,
    /// Frequency of the time stamp counter that an emulated guest was given, in kHz; 0 otherwise.
    pub tsc_khz: u64,
    /// The network interface.
    #[serde(default)]
    pub nic: SavedNic,
}

/// A network interface in a machine's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedNic {
    /// No interface; a machine from this state cannot have one.
    #[default]
    None,
    /// Interface that works with any backend.
    Plain,
    /// Interface whose guest leaves checksums and segmentation to a tap: works with a tap only.
    Tap,
}

impl MachineShape {
    /// Refuses with the first difference.
    pub(super) fn must_fit(&self, saved: &Self) -> Result<(), Error> {
        let differs =
            |what, saved: String, here: String| Err(Error::ShapeDiffers { what, saved, here });
        if self.program != saved.program {
            return differs("QEMU's version", saved.program.clone(), self.program.clone());
        }
        if self.memory_mb != saved.memory_mb {
            return differs("memory_mb", saved.memory_mb.to_string(), self.memory_mb.to_string());
        }
        if self.vcpus != saved.vcpus {
            return differs("vcpus", saved.vcpus.to_string(), self.vcpus.to_string());
        }
        if self.carrier != saved.carrier {
            let word = |carrier: CarrierKind| carrier.as_str().to_owned();
            return differs("the link's carrier", word(saved.carrier), word(self.carrier));
        }
        // Two measurements on one host agree to a part per thousand; a guest with another
        // frequency would have a clock that runs wrong.
        if self.tsc_khz.abs_diff(saved.tsc_khz) > saved.tsc_khz / 500 {
            let khz = |khz: u64| format!("{khz} kHz");
            return differs("the time stamp counter", khz(saved.tsc_khz), khz(self.tsc_khz));
        }
        let has_nic = |shape: &Self| shape.nic != SavedNic::None;
        if has_nic(self) != has_nic(saved) || (saved.nic == SavedNic::Tap && self.nic != saved.nic)
        {
            let word = |nic| format!("{nic:?}").to_lowercase();
            return differs("the network interface", word(saved.nic), word(self.nic));
        }
        if self.machine != saved.machine {
            return differs("the machine's devices", saved.machine.clone(), self.machine.clone());
        }
        Ok(())
    }
}

/// Memory of a running machine; part of its handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineMemory {
    /// Shape of the machine when it started.
    pub shape: MachineShape,
    /// Location of its memory.
    pub ram: RamLocation,
}

/// Location of a machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "held", rename_all = "snake_case")]
pub enum RamLocation {
    /// A memfd that the machine's process has open under this number: readable from outside.
    Shared {
        /// Descriptor number in the machine's process.
        fd: i32,
    },
    /// Private pages of the machine above a sealed memory image.
    Private {
        /// Memory image; machines of earlier daemons do not name it.
        #[serde(default)]
        image: Option<SharedImage>,
    },
}

/// Memory image that machines begin with and share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedImage {
    /// Id of [`SnapshotDescription`].
    pub id: uuid::Uuid,
    /// Descriptor number of its memfd in the machine's process.
    pub fd: i32,
}

/// Pausing, saving and forking machines: [`super::Driver::snapshots`].
///
/// As with the driver, no method blocks the calling thread and each bounds its own waiting. An
/// operation that was begun on a machine runs to its end even if the future is dropped.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Stops the guest's processors. Succeeds if they are stopped already.
    async fn pause(&self, handle: &MachineHandle) -> Result<(), Error>;

    /// Lets the guest run. Succeeds if it runs already.
    async fn resume(&self, handle: &MachineHandle) -> Result<(), Error>;

    /// True if the guest is stopped by a pause.
    async fn is_paused(&self, handle: &MachineHandle) -> Result<bool, Error>;

    /// True if the guest is stopped at a write that the host's disk has no room for.
    /// [`Snapshots::resume`] repeats the write; without room the guest stops again at once.
    async fn is_disk_full(&self, handle: &MachineHandle) -> Result<bool, Error>;

    /// Freezes the disk's top layer ([`MachinePlan::disk`]) and puts `new_top` above it, which is made if
    /// it is missing. Succeeds if the machine has it already. Returns true if the frozen layer is
    /// now read-only, see [`SaveResult::layer_is_read_only`].
    async fn switch_disk(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        new_top: &Path,
    ) -> Result<bool, Error>;

    /// Saves a machine that runs or is paused, and leaves it in that state. `plan` is the machine's
    /// own, with its current disk.
    ///
    /// A failure leaves no folder, and the guest in the state it was in; otherwise the error says
    /// so, and says if the disk has the new top.
    async fn save(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        request: &SaveRequest,
    ) -> Result<SaveResult, Error>;

    /// Starts a machine from a memory image, paused: the caller connects the link, calls
    /// [`Snapshots::resume`] and has the guest given an identity of its own. `plan` names the
    /// snapshot's frozen layers below a top of its own. Legal after [`super::Driver::prepare`].
    ///
    /// Until it has its new identity the guest knows the token of the machine that was saved.
    ///
    /// The machine has a network interface if the saved machine had one, which [`MachineHandle::nic`] says;
    /// without one in the plan the interface has no backend. Until `SetNetwork` the guest uses the address
    /// and MAC of the machine that was saved. Therefore the link is off, in both directions, from before the
    /// guest's first instruction until [`super::Driver::plug`], which is legal once the guest has answered
    /// `SetNetwork`:
    ///
    /// ```text
    /// launch_from ─► resume ─► Reidentify ─► SetNetwork ─► plug ─► (SetNetwork: gateway_answers)
    /// ```
    /// A daemon that takes such a machine up again cannot know how far the one before came: it
    /// repeats the last two.
    async fn launch_from(
        &self,
        plan: &MachinePlan,
        snapshot: &SnapshotFolder,
    ) -> Result<LaunchedMachine, Error>;

    /// Stops a machine that runs or is paused, saves its memory and devices, and leaves it standing
    /// still with the disk as it is. Then the owner ends it, and wakes it later over the same disk;
    /// or it gives the memory up, and lets the machine go on. A failure leaves no folder, and the
    /// guest stopped.
    async fn park(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<SavedMemory, Error>;

    /// Starts a parked machine, paused: the caller connects the link and calls
    /// [`Snapshots::resume`], after which the memory does not belong to the disk any more. Legal
    /// after [`super::Driver::prepare`], once the machine that was parked is gone.
    ///
    /// It knows its own token, name and address. As with [`Snapshots::launch_from`] its network link
    /// is off until [`super::Driver::plug`].
    async fn wake(
        &self,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<LaunchedMachine, Error>;

    /// Removes a memory image, complete or not. Succeeds if it does not exist. Machines that were
    /// started from it keep their memory.
    async fn discard_snapshot(&self, snapshot: &SnapshotFolder) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn shape() -> MachineShape {
        MachineShape {
            program: "QEMU 7".into(),
            machine: "ab".into(),
            vcpus: 1,
            memory_mb: 256,
            carrier: CarrierKind::VirtioSerial,
            tsc_khz: 2_500_000,
            nic: SavedNic::Plain,
        }
    }

    #[test]
    fn the_first_difference_of_shapes_is_named() {
        let saved = shape();
        saved.must_fit(&saved).unwrap();
        MachineShape { tsc_khz: 2_500_900, ..shape() }.must_fit(&saved).unwrap();
        let with_tap = MachineShape { nic: SavedNic::Tap, ..shape() };
        with_tap.must_fit(&saved).unwrap();
        assert!(saved.must_fit(&with_tap).is_err());
        for (named, here) in [
            ("version", MachineShape { program: "QEMU 8".into(), ..shape() }),
            ("memory_mb", MachineShape { memory_mb: 512, ..shape() }),
            ("vcpus", MachineShape { vcpus: 2, ..shape() }),
            ("carrier", MachineShape { carrier: CarrierKind::Vsock, ..shape() }),
            ("time stamp", MachineShape { tsc_khz: 2_600_000, ..shape() }),
            ("interface", MachineShape { nic: SavedNic::None, ..shape() }),
            ("devices", MachineShape { machine: "cd".into(), ..shape() }),
        ] {
            let refused = here.must_fit(&saved).unwrap_err();
            assert!(matches!(refused, Error::ShapeDiffers { .. }), "{refused}");
            assert!(refused.to_string().contains(named), "{refused}");
        }
    }
}
