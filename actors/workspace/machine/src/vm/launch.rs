//! Launch of QEMU from a plan, up to its first answer.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::args::{self, Fds, Machine, Processor};
use super::ram::{self, Sealed};
use super::{VmDriver, control, nic, qmp, tap, vhost, volumes};
use crate::cgroup::CgroupLimits;
use crate::folders;
use crate::handle::{Endpoint, ProcessId, boot_id};
use crate::host_env::{HostEnv, Newborn};
use crate::options::MachineUser;
use crate::spawn::{self, Spawn};
use crate::{
    AcceleratorKind, AppliedLimits, CarrierKind, Enforcement, Error, Isolation, LaunchedMachine,
    MachineHandle, MachineMemory, MachinePlan, MachineShape, NicEnd, RamLocation, SharedImage,
};

/// Device of the kernel's side of AF_VSOCK guests.
pub(super) const VHOST_VSOCK: &str = "/dev/vhost-vsock";
/// Port on which the guest daemon listens for requests.
const GUEST_PORT: u32 = 5000;
/// Limit of threads; QEMU with its translation and I/O threads stays far below.
const MAX_THREADS: u32 = 256;
/// Wait between a broken QMP connection and the notice that QEMU ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Running QEMU that has not yet answered.
struct Started {
    newborn: Newborn,
    process: ProcessId,
    helpers: Vec<ProcessId>,
    uid: u32,
    cgroup_dirs: Vec<std::path::PathBuf>,
    limits: AppliedLimits,
    endpoint: Endpoint,
}

/// Source of a machine's memory and state.
#[derive(Debug)]
pub(super) enum Origin {
    /// A boot.
    Boot,
    /// A memory image that others share, and the state of its devices.
    Fork { id: Uuid, image: Arc<Sealed>, device: OwnedFd },
    /// Memory of the machine's own, and the state of its devices.
    Woken { ram: OwnedFd, device: OwnedFd },
    /// A state with the memory in it, loaded into memory that is shared with the daemon.
    Full { ram: OwnedFd, state: OwnedFd },
}

impl Origin {
    /// Returns the memory to be mapped, and true if the machine may write it.
    fn ram(&self, plan: &MachinePlan) -> std::io::Result<(OwnedFd, bool)> {
        match self {
            Self::Boot => Ok((ram::make(plan.memory_mb)?, true)),
            Self::Fork { image, .. } => Ok((image.fd()?, false)),
            Self::Full { ram, .. } | Self::Woken { ram, .. } => Ok((ram.try_clone()?, true)),
        }
    }
}

/// Shape that a machine of this plan shares with those whose memory it can take.
pub(super) fn shape(driver: &VmDriver, plan: &MachinePlan, processor: Processor) -> MachineShape {
    MachineShape {
        program: driver.facts.program.clone(),
        machine: devices(driver, plan, processor),
        vcpus: plan.vcpus,
        memory_mb: plan.memory_mb,
        carrier: plan.carrier,
        tsc_khz: driver.tsc_khz,
        nic: nic::saved(plan),
    }
}

/// Hash of processor and devices.
fn devices(driver: &VmDriver, plan: &MachinePlan, processor: Processor) -> String {
    let mut words = blake3::Hasher::new();
    for word in args::shape_words(plan, driver.accelerator, processor) {
        words.update(word.as_encoded_bytes()).update(&[0]);
    }
    words.finalize().to_hex().to_string()
}

/// Processor that saved memory of this shape needs.
pub(super) fn processor_of(
    driver: &VmDriver,
    plan: &MachinePlan,
    saved: &MachineShape,
) -> Processor {
    match saved.machine == devices(driver, plan, Processor::WithCx16) {
        true => Processor::WithCx16,
        false => Processor::Current,
    }
}

pub(super) async fn launch(
    driver: &VmDriver,
    plan: &MachinePlan,
    origin: Origin,
    processor: Processor,
) -> Result<LaunchedMachine, Error> {
    plan.check()?;
    if let Some(NicEnd::Tap(tap)) = plan.nic.as_ref().map(|nic| &nic.end) {
        tap::check(tap)?;
    }
    driver.host_env.check_limits()?;
    let (ram, shared_ram) =
        origin.ram(plan).map_err(Error::io("make memory for", "ram".as_ref()))?;
    let fd = ram.as_raw_fd();
    let held = match &origin {
        Origin::Fork { id, .. } => {
            RamLocation::Private { image: Some(SharedImage { id: *id, fd }) }
        }
        Origin::Boot | Origin::Woken { .. } | Origin::Full { .. } => RamLocation::Shared { fd },
    };
    let starter = Starter {
        host_env: driver.host_env.clone(),
        program: driver.qemu.clone(),
        accelerator: driver.accelerator,
        processor,
        tsc_khz: driver.tsc_khz,
        plan: plan.clone(),
        ram,
        shared_ram,
        incoming: !matches!(origin, Origin::Boot),
    };
    // Runs to its end even if this future is dropped; its result then kills what it started.
    let started = tokio::task::spawn_blocking(move || starter.start());
    let started = started.await.map_err(Error::lost_task)??;
    let (socket, timeout) = (plan.folders.qmp(), driver.host_env.options.launch_timeout());
    let up = control::come_up(&socket, origin, plan.nic.is_some(), timeout);
    await_control(driver, plan, started.process, up).await?;
    let Started { newborn, process, helpers, uid, cgroup_dirs, limits, endpoint } = started;
    newborn.keep();
    let handle = MachineHandle {
        workspace: plan.workspace.clone(),
        isolation: Isolation::Vm,
        process,
        helpers,
        boot_id: boot_id(),
        uuid: plan.uuid,
        uid,
        folders: plan.folders.clone(),
        cgroup_dirs,
        endpoint,
        memory: Some(MachineMemory { shape: shape(driver, plan, processor), ram: held }),
        nic: plan.nic.is_some(),
    };
    Ok(LaunchedMachine { handle, limits })
}

/// Waits until QEMU is `up`, or ended.
async fn await_control(
    driver: &VmDriver,
    plan: &MachinePlan,
    process: ProcessId,
    up: impl Future<Output = Result<(), qmp::Error>>,
) -> Result<(), Error> {
    let exited = driver.host_env.watcher.exited(process);
    tokio::pin!(exited);
    let broken = tokio::select! {
        how = &mut exited => {
            let stderr_tail = folders::stderr_tail(&plan.folders);
            return Err(Error::DiedAtStart { how, stderr_tail });
        }
        up = up => match up {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
    };
    let stderr_tail = || folders::stderr_tail(&plan.folders);
    if let qmp::Error::Timeout { after, .. } = broken {
        return Err(Error::StartTimeout { after, stderr_tail: stderr_tail() });
    }
    // QEMU closes its sockets before its exit can be seen.
    match tokio::time::timeout(LAST_WORDS, exited).await {
        Ok(how) => Err(Error::DiedAtStart { how, stderr_tail: stderr_tail() }),
        Err(_) => Err(broken.into()),
    }
}

/// Blocking part of a launch.
struct Starter {
    host_env: HostEnv,
    program: std::path::PathBuf,
    accelerator: AcceleratorKind,
    processor: Processor,
    tsc_khz: u64,
    plan: MachinePlan,
    ram: OwnedFd,
    shared_ram: bool,
    incoming: bool,
}

impl Starter {
    fn start(self) -> Result<Started, Error> {
        let plan = &self.plan;
        let user = self.host_env.options.machine_user(plan.slot)?;
        let mut newborn = Newborn::new(&self.host_env, &plan.workspace);
        let overhead_mb = self.host_env.options.vm_memory_overhead_mb;
        let limits = CgroupLimits {
            memory_bytes: Some((plan.memory_mb + overhead_mb) << 20),
            vcpus: plan.vcpus,
            pids: MAX_THREADS,
        };
        let group = self.host_env.cgroups.create(&plan.workspace, &limits);
        if self.host_env.options.cgroup_required {
            group.require()?;
        }
        let (link_fd, endpoint, mut helpers) = self.link(user, &mut newborn)?;
        let servers = volumes::start(&self.host_env, plan, user, &group, &mut newborn)?;
        helpers.extend(servers.iter().map(|server| server.process));
        let groups = self.groups()?;
        let mut inherited = Inherited::default();
        let mut fds = inherited.open(plan, self.ram, link_fd)?;
        fds.volumes = servers.into_iter().map(|server| inherited.add(server.device)).collect();
        let mut listen = vec![fds.qmp, fds.console];
        if plan.carrier == CarrierKind::VirtioSerial {
            listen.push(fds.link);
        }
        let machine = Machine {
            accelerator: self.accelerator,
            processor: self.processor,
            tsc_khz: self.tsc_khz,
            direct: spawn::takes_direct(&plan.disk().top),
            shared_ram: self.shared_ram,
            incoming: self.incoming,
            fds,
        };
        let stderr = spawn::append_log(&plan.folders.stderr_log())?;
        let process = Spawn {
            program: self.program.clone(),
            args: args::command_line(plan, &machine),
            fds: inherited.0,
            listen,
            user,
            groups,
            door: group.door()?,
            enclosure: None,
            stdout: spawn::append_log(&plan.folders.stderr_log())?,
            stderr,
        }
        .start()?;
        newborn.add(process);
        let by = format!("virtual size of the overlay = {} GiB", plan.disk_gb);
        let cgroup_dirs = group.dirs.clone();
        let limits = group.applied(Enforcement::Yes { by });
        Ok(Started { newborn, process, helpers, uid: user.uid, cgroup_dirs, limits, endpoint })
    }

    /// Makes the link's device: its descriptor, its endpoint and its helpers on the host.
    fn link(
        &self,
        user: MachineUser,
        newborn: &mut Newborn,
    ) -> Result<(OwnedFd, Endpoint, Vec<ProcessId>), Error> {
        let plan = &self.plan;
        let peer_uid = user.uid;
        let cid = || match plan.cid {
            Some(cid) if cid >= 3 && cid != u32::MAX => Ok(cid),
            other => Err(Error::BadPlan(format!("{other:?} is not a valid context id of a guest"))),
        };
        match plan.carrier {
            CarrierKind::VirtioSerial => {
                let path = plan.folders.link_socket();
                let socket = folders::bind(&path)?;
                Ok((socket, Endpoint::VirtioSerial { path, peer_uid }, Vec::new()))
            }
            CarrierKind::Vsock => {
                let endpoint = Endpoint::Vsock { cid: cid()?, port: GUEST_PORT };
                let (device, _) = spawn::open_for(VHOST_VSOCK.as_ref(), true)?;
                Ok((device, endpoint, Vec::new()))
            }
            CarrierKind::VhostUserVsock => {
                let helper = vhost::start(&self.host_env, plan, cid()?, user, newborn)?;
                let uds_path = vhost::uds_path(&plan.folders);
                let endpoint = Endpoint::VhostUserVsock { uds_path, port: GUEST_PORT, peer_uid };
                Ok((helper.device, endpoint, vec![helper.process]))
            }
            CarrierKind::Unix => Err(Error::BadPlan("a VM has no Unix socket carrier".into())),
        }
    }

    /// `/dev/kvm` usually belongs to a group; the machine's user needs it for as long as it runs.
    fn groups(&self) -> Result<Vec<u32>, Error> {
        use std::os::unix::fs::MetadataExt;
        if self.accelerator != AcceleratorKind::Kvm {
            return Ok(Vec::new());
        }
        let kvm = std::path::Path::new("/dev/kvm");
        let meta = std::fs::metadata(kvm).map_err(Error::io("look at", kvm))?;
        Ok(vec![meta.gid()])
    }
}

/// Descriptors that QEMU gets.
#[derive(Default)]
struct Inherited(Vec<OwnedFd>);

impl Inherited {
    fn open(&mut self, plan: &MachinePlan, ram: OwnedFd, link: OwnedFd) -> Result<Fds, Error> {
        let images = &plan.images;
        let base = MachinePlan::image(&images.rootfs_ext4, "root file system")?;
        let kernel = MachinePlan::image(&images.kernel, "kernel")?;
        let initrd = MachinePlan::image(&images.initrd, "initrd")?;
        let disk = plan.disk();
        let mut layers = Vec::with_capacity(disk.layers.len());
        for layer in &disk.layers {
            layers.push(self.add(spawn::open_for(layer, false)?.0));
        }
        Ok(Fds {
            layers,
            ram: self.add(ram),
            qmp: self.add(folders::bind(&plan.folders.qmp())?),
            console: self.add(folders::bind(&plan.folders.console_socket())?),
            top: self.add(spawn::open_for(&disk.top, true)?.0),
            base: self.add(spawn::open_for(base, false)?.0),
            kernel: self.add(spawn::open_for(kernel, false)?.0),
            initrd: self.add(spawn::open_for(initrd, false)?.0),
            link: self.add(link),
            tap: match plan.nic.as_ref().map(|nic| &nic.end) {
                Some(NicEnd::Tap(tap)) => {
                    let tap = tap.try_clone();
                    self.add(tap.map_err(Error::io("duplicate the", "tap".as_ref()))?)
                }
                Some(NicEnd::Unplugged | NicEnd::User { .. }) | None => -1,
            },
            volumes: Vec::new(),
        })
    }

    fn add(&mut self, fd: OwnedFd) -> RawFd {
        let number = fd.as_raw_fd();
        self.0.push(fd);
        number
    }
}
