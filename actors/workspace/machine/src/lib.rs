//! Machine drivers: they start, watch and end the process behind a workspace.
//!
//! ```text
//!  owner ── MachinePlan ──► prepare ──► launch ──► MachineHandle ──► journal
//!                                              │
//!            after a daemon restart: reattach ─┤
//!                                              ├─► watch ─► MachineExit   (a message to the owner)
//!                                              ├─► power_down / kill
//!  release (run folder, sockets, cgroup) ◄─────┘      discard (the disk too)
//! ```
//!
//! Two real drivers implement [`Driver`]: [`vm::VmDriver`] runs QEMU, [`sandbox::SandboxDriver`]
//! runs bubblewrap. A machine is its own session, outlives the daemon, and is only ever addressed
//! through a pidfd whose start time was checked, so a recycled pid is never touched.
//!
//! The owner journals its intent (the [`MachinePlan`]) before `launch` and the handle after it. At the
//! next start [`sweep::Sweeper`] finds machines that were started in between.

pub mod cgroup;
pub mod codes;
pub mod console;
pub mod doctor;
mod error;
mod exit;
mod facts;
#[cfg(any(test, feature = "test-util"))]
pub mod fake;
mod folders;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handle;
mod host_env;
mod kvm;
pub mod layer;
mod options;
mod plan;
mod process;
pub mod qmp;
pub mod sandbox;
pub mod snapshot;
mod spawn;
pub mod sweep;
mod trash;
pub mod vm;

use async_trait::async_trait;
use hivekeep_ports::ForwardedPort;

pub use cgroup::programs::{ProgramGroup, ProgramGroups};
pub use error::{Error, ReattachError, host_disk_full};
pub use exit::{ExitHow, MachineExit};
pub use facts::{
    AcceleratorKind, AppliedLimits, Capabilities, CapabilitySupport, CgroupVersion, Confinement,
    DriverFacts, Enforcement, HostUser, Isolation, Landlock, LandlockExtent,
};
pub use folders::{LogsOnDiscard, MachineFolders, MachineLogs};
pub use handle::{Endpoint, MachineHandle, ProcessId};
pub use host_env::HostEnv;
pub use kvm::{KvmVerdict, probe_kvm};
pub use options::{Accelerator, CarrierChoice, Options, SandboxOptions};
pub use plan::{
    CarrierKind, Disk, Images, MAX_VOLUMES, MachinePlan, Nic, NicEnd, VOLUME_TAG, VolumeMount,
};
pub use process::MachineUsage;
pub use sandbox::ids_of_programs;
pub use snapshot::{
    MachineMemory, MachineShape, ParkRequest, RamLocation, SaveRequest, SaveResult, SavedMemory,
    SavedNic, SharedImage, SnapshotFolder, Snapshots,
};
pub use spawn::raise_open_files;

/// Started machine.
#[derive(Debug, Clone)]
pub struct LaunchedMachine {
    /// Handle, to be journalled by the owner before it answers anyone.
    pub handle: MachineHandle,
    /// Limits that are enforced, and by which mechanism.
    pub limits: AppliedLimits,
}

/// Driver of one kind of machine. Object safe: owners hold an `Arc<dyn Driver>`.
///
/// No method blocks the calling thread, and each bounds its own waiting.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Isolation of this driver's machines.
    fn isolation(&self) -> Isolation;

    /// Facts found at start: accelerator, versions, carrier, limitations.
    fn facts(&self) -> &DriverFacts;

    /// Capabilities of this kind of machine.
    fn capabilities(&self) -> &Capabilities;

    /// Makes the run folder, the log folder and the disk where they are missing. Legal to repeat
    /// at any time, also after a crash in the middle; never touches an existing disk.
    async fn prepare(&self, plan: &MachinePlan) -> Result<(), Error>;

    /// Starts the machine. Legal after [`Driver::prepare`] while no machine of this plan runs.
    /// A failure leaves no process and no cgroup; the logs stay.
    async fn launch(&self, plan: &MachinePlan) -> Result<LaunchedMachine, Error>;

    /// Reattaches a journalled machine, after checking that it is the very process that was
    /// launched. Starts nothing and ends nothing.
    async fn reattach(&self, handle: &MachineHandle) -> Result<(), ReattachError>;

    /// Resolves when the machine's process is gone, at once if it already is. May be called by
    /// several owners, for children and for machines launched by an earlier daemon. Dropping the
    /// future has no effect on the machine.
    async fn watch(&self, handle: &MachineHandle) -> MachineExit;

    /// Asks the machine to shut down by itself; returns once it was asked, not once it is down.
    async fn power_down(&self, handle: &MachineHandle) -> Result<(), Error>;

    /// Kills the machine with SIGKILL, then waits until the process and everything in its cgroup is
    /// gone. Success if it already was.
    async fn kill(&self, handle: &MachineHandle) -> Result<(), Error>;

    /// Removes run folder, sockets and cgroup. Legal once the machine is gone. Logs and disk stay.
    async fn release(&self, plan: &MachinePlan) -> Result<(), Error>;

    /// Releases the machine like [`Driver::release`], then removes the disk, and the logs if asked.
    async fn discard(&self, plan: &MachinePlan, logs: LogsOnDiscard) -> Result<(), Error>;

    /// Snapshot operations, where machines of this kind support them.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// Has all of the machine stand still, with its memory. Succeeds if it does already.
    async fn halt(&self, handle: &MachineHandle) -> Result<(), Error> {
        match self.snapshots() {
            Some(snapshots) => snapshots.pause(handle).await,
            None => Err(Error::CannotPause { why: "this kind of machine cannot" }),
        }
    }

    /// Lets a machine that stands still go on. Succeeds if it runs.
    async fn go_on(&self, handle: &MachineHandle) -> Result<(), Error> {
        match self.snapshots() {
            Some(snapshots) => snapshots.resume(handle).await,
            None => Err(Error::CannotPause { why: "this kind of machine cannot" }),
        }
    }

    /// True if the machine stands still by [`Driver::halt`].
    async fn is_halted(&self, handle: &MachineHandle) -> Result<bool, Error> {
        match self.snapshots() {
            Some(snapshots) => snapshots.is_paused(handle).await,
            None => Ok(false),
        }
    }

    /// Lets frames pass between the machine and the host side of its network card. A machine that
    /// boots is plugged in; one from a memory image is not, see [`Snapshots::launch_from`]. Success
    /// if it is plugged in already.
    async fn plug(&self, handle: &MachineHandle) -> Result<(), Error> {
        Err(Error::NoInterface { workspace: handle.workspace.clone() })
    }

    /// Sets the forwards of a running machine with [`NicEnd::User`] to exactly these: all others
    /// end first. After a failure it can be called again.
    async fn set_forwards(
        &self,
        handle: &MachineHandle,
        wanted: &[ForwardedPort],
    ) -> Result<(), Error> {
        let _there_are_none = wanted;
        Err(Error::NoInterface { workspace: handle.workspace.clone() })
    }

    /// Endpoint of the guest link.
    fn endpoint(&self, handle: &MachineHandle) -> Endpoint {
        handle.endpoint.clone()
    }

    /// Resources that the machine's processes use.
    async fn usage(&self, handle: &MachineHandle) -> Result<MachineUsage, Error>;

    /// Kept console and stderr of a machine that runs, stopped, or failed to start.
    async fn logs(&self, folders: &MachineFolders) -> Result<MachineLogs, Error> {
        folders::read_logs(folders).await
    }
}
