//! Virtual machines by QEMU: the driver for `isolation = "vm"`.
//!
//! QEMU runs as an unprivileged user with its system call filter on, in a session and a cgroup of
//! its own. It opens no path of the host: sockets, disk, base image, kernel and initrd come as descriptors.
//! It is controlled over QMP, one short connection a request.

mod args;
mod control;
mod launch;
mod nic;
mod park;
mod ram;
mod save;
mod tap;
mod vhost;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hivekeep_ports::ForwardedPort;
use serde_json::Value;

pub(super) use volumes::{Export, REMEDY as VIRTIOFSD_REMEDY};

use crate::console;
use crate::exit::MachineExit;
use crate::folders;
use crate::host_env::{self, HostEnv};
use crate::kvm;
use crate::layer;
use crate::options::{self, Accelerator, CarrierChoice};
use crate::qmp;
use crate::{
    AcceleratorKind, Capabilities, CapabilitySupport, CarrierKind, Driver, DriverFacts, Error,
    Isolation, KvmVerdict, LaunchedMachine, LogsOnDiscard, MachineHandle, MachinePlan,
    MachineUsage, Options, ReattachError, Snapshots,
};

const QMP_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const QEMU_REMEDY: &str = "apt-get install qemu-system-x86";

/// Makes an overlay from backing image, size in bytes and path of the new file. Called on a
/// blocking thread with a temporary path; the driver syncs and renames.
pub type OverlayMaker = Arc<dyn Fn(&Path, u64, &Path) -> std::io::Result<()> + Send + Sync>;

/// Driver for `isolation = "vm"`. Clones share one driver.
#[derive(Clone)]
pub struct VmDriver {
    host_env: HostEnv,
    qemu: PathBuf,
    accelerator: AcceleratorKind,
    tsc_khz: u64,
    make_overlay: OverlayMaker,
    images: ram::RamCache,
    facts: DriverFacts,
    capabilities: Capabilities,
}

impl VmDriver {
    /// Inspects the host: QEMU's version, the time stamp counter, the carrier. `kvm` is the result
    /// of [`super::probe_kvm`], taken once per daemon. Blocks for some 150 ms.
    pub fn open(
        host_env: HostEnv,
        kvm: &KvmVerdict,
        make_overlay: OverlayMaker,
    ) -> Result<Self, Error> {
        let options = &host_env.options;
        let qemu = options::find_program(&options.qemu_path, QEMU_REMEDY)?;
        let accelerator = choose_accelerator(options.accelerator, kvm)?;
        let carrier = choose_carrier(options)?;
        let mut cannot = Vec::new();
        if let Some((what, why)) = host_env.cgroups.missing() {
            cannot.push(format!("limit {what}: {why}"));
        }
        let memory_snapshots = if carrier == CarrierKind::VhostUserVsock {
            CapabilitySupport::no("QEMU cannot save a machine with a vhost-user-vsock device")
        } else {
            CapabilitySupport::Yes
        };
        let facts = DriverFacts {
            accelerator,
            accelerator_why: match options.accelerator {
                Accelerator::Tcg => "accelerator = \"tcg\"".into(),
                Accelerator::Auto | Accelerator::Kvm => kvm.reason.clone(),
            },
            program: options::program_version(&qemu)?,
            carrier,
            cgroup: host_env.cgroups.version(),
            cannot,
            confinement: None,
        };
        let capabilities = Capabilities {
            memory_snapshots,
            own_kernel: CapabilitySupport::Yes,
            disk_limit: CapabilitySupport::Yes,
            several_users: CapabilitySupport::Yes,
            volumes: volumes::support(options),
        };
        let tsc_khz = if accelerator == AcceleratorKind::Tcg { kvm::measure_khz() } else { 0 };
        let images = ram::RamCache::default();
        Ok(Self { host_env, qemu, accelerator, tsc_khz, make_overlay, images, facts, capabilities })
    }

    /// Connects, sends one command, and leaves the socket to the next.
    async fn ask(&self, handle: &MachineHandle, command: &str) -> Result<Value, qmp::Error> {
        let (client, _events) = qmp::QmpClient::connect(&handle.qmp_path(), QMP_TIMEOUT).await?;
        client.execute(command, Value::Null, QMP_TIMEOUT).await
    }

    fn begin_beside(&self, handle: &MachineHandle) {
        let folders = &handle.folders;
        let drain = console::drain(folders.console_socket(), folders.console_log());
        let mut tasks = vec![tokio::spawn(drain).abort_handle()];
        for helper in &handle.helpers {
            let end = vhost::end_with(self.host_env.clone(), handle.clone(), *helper);
            tasks.push(tokio::spawn(end).abort_handle());
        }
        self.host_env.begin_beside(handle, tasks);
    }
}

#[async_trait]
impl Driver for VmDriver {
    fn isolation(&self) -> Isolation {
        Isolation::Vm
    }

    fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn prepare(&self, plan: &MachinePlan) -> Result<(), Error> {
        plan.check()?;
        let (plan, make_overlay) = (plan.clone(), Arc::clone(&self.make_overlay));
        let prepare = move || {
            host_env::make_folders(&plan)?;
            make_disk(&plan, &make_overlay)
        };
        tokio::task::spawn_blocking(prepare).await.map_err(Error::lost_task)?
    }

    async fn launch(&self, plan: &MachinePlan) -> Result<LaunchedMachine, Error> {
        let launched =
            launch::launch(self, plan, launch::Origin::Boot, args::Processor::Current).await?;
        self.begin_beside(&launched.handle);
        Ok(launched)
    }

    async fn reattach(&self, handle: &MachineHandle) -> Result<(), ReattachError> {
        handle.verify_process()?;
        let reason = match self.ask(handle, "query-uuid").await {
            Ok(answer) if answer["UUID"] == handle.uuid.to_string() => None,
            Ok(answer) => Some(format!("it says its uuid is {}", answer["UUID"])),
            Err(error) if is_slow(&error) => {
                handle.verify_process()?;
                return Err(ReattachError::Silent { reason: error.to_string() });
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            handle.verify_process()?;
            return Err(ReattachError::Uncontrollable { reason });
        }
        self.begin_beside(handle);
        Ok(())
    }

    async fn watch(&self, handle: &MachineHandle) -> MachineExit {
        self.host_env.watch(handle).await
    }

    async fn power_down(&self, handle: &MachineHandle) -> Result<(), Error> {
        handle.verify_process()?;
        self.ask(handle, "system_powerdown").await?;
        Ok(())
    }

    async fn kill(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.host_env.kill(handle).await
    }

    async fn release(&self, plan: &MachinePlan) -> Result<(), Error> {
        self.host_env.release(plan).await
    }

    async fn discard(&self, plan: &MachinePlan, logs: LogsOnDiscard) -> Result<(), Error> {
        self.host_env.discard(plan, logs).await
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    async fn plug(&self, handle: &MachineHandle) -> Result<(), Error> {
        Ok(control_of_nic(handle).await?.set_link(true).await?)
    }

    async fn set_forwards(
        &self,
        handle: &MachineHandle,
        wanted: &[ForwardedPort],
    ) -> Result<(), Error> {
        nic::set(&control_of_nic(handle).await?, wanted).await
    }

    async fn usage(&self, handle: &MachineHandle) -> Result<MachineUsage, Error> {
        self.host_env.usage(handle).await
    }
}

/// True if QEMU may answer later. Its main loop pauses while it empties a disk's queue or the host
/// swaps; then it accepts no connections, and the socket's queue soon fills with abandoned ones.
fn is_slow(error: &qmp::Error) -> bool {
    match error {
        qmp::Error::Timeout { .. } | qmp::Error::Closed(_) => true,
        qmp::Error::Connect(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        qmp::Error::Refused { .. } => false,
    }
}

async fn control_of_nic(handle: &MachineHandle) -> Result<control::Control, Error> {
    if !handle.nic {
        return Err(Error::NoInterface { workspace: handle.workspace.clone() });
    }
    control::Control::of(handle).await
}

fn choose_accelerator(request: Accelerator, kvm: &KvmVerdict) -> Result<AcceleratorKind, Error> {
    match (request, kvm.usable) {
        (Accelerator::Tcg, _) | (Accelerator::Auto, false) => Ok(AcceleratorKind::Tcg),
        (Accelerator::Auto | Accelerator::Kvm, true) => Ok(AcceleratorKind::Kvm),
        (Accelerator::Kvm, false) => Err(Error::KvmUnusable { reason: kvm.reason.clone() }),
    }
}

fn choose_carrier(options: &Options) -> Result<CarrierKind, Error> {
    let vsock = Path::new(launch::VHOST_VSOCK).exists();
    match (options.carrier, vsock) {
        (CarrierChoice::Vsock | CarrierChoice::Auto, true) => Ok(CarrierKind::Vsock),
        (CarrierChoice::VirtioSerial, _) | (CarrierChoice::Auto, false) => {
            Ok(CarrierKind::VirtioSerial)
        }
        (CarrierChoice::Vsock, false) => Err(Error::ToolMissing {
            program: launch::VHOST_VSOCK.into(),
            detail: "modprobe vhost_vsock, or choose another carrier".into(),
        }),
        (CarrierChoice::VhostUserVsock, _) => {
            options::find_program(&options.vhost_device_vsock_path, vhost::REMEDY)?;
            Ok(CarrierKind::VhostUserVsock)
        }
    }
}

/// Makes the writable layer so that it appears under its name complete and synced, or not at all.
fn make_disk(plan: &MachinePlan, make_overlay: &OverlayMaker) -> Result<(), Error> {
    let disk = plan.disk();
    let size_bytes = u64::from(plan.disk_gb) << 30;
    if !disk.layers.is_empty() {
        return layer::make_top(&disk.top, size_bytes);
    }
    if disk.top.exists() {
        return Ok(());
    }
    let base = MachinePlan::image(&plan.images.rootfs_ext4, "root file system")?;
    layer::publish(&disk.top, |fresh| make_overlay(base, size_bytes, fresh))
}

#[cfg(test)]
mod tests;
