//! A family of workspaces whose drivers, images, network and guests the test makes.

use std::sync::{Arc, Mutex, atomic::AtomicU64};

use hivekeep_image::fixture::ImageStoreFixture;
use hivekeep_kernel::{Address, RestartPolicy, Room, ToolError, ToolInfo};
use hivekeep_machine::{HostEnv, Isolation, fake::FakeDriver, sweep::Sweeper};
use hivekeep_runtime::{Daemon, Family, Mounted};
use hivekeep_testkit::Rig;

use crate::{
    Options,
    folders::WorkspaceFolders,
    logs::WorkspaceLogSet,
    manager::{Msg, Workspaces},
    shared::Shared,
    tools,
    workspaces::tests::{
        stage::{FLOOR, NoVolumes, Quota},
        wires::Wires,
    },
};

/// What a host has, whichever daemon runs on it.
pub(super) struct HostParts {
    pub(super) images: ImageStoreFixture,
    pub(super) driver: Arc<FakeDriver>,
    pub(super) network: Mutex<Arc<Wires>>,
    pub(super) free: Arc<AtomicU64>,
}

/// Parts of the daemon that is there now, for tests to look into.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) quota: Arc<Quota>,
    pub(super) manager: Address<Msg>,
}

impl Parts {
    pub(super) fn of(rig: &Rig<FakeHost>) -> Self {
        let ports = &rig.daemon.ports;
        Self {
            shared: ports.need().expect("it is offered"),
            quota: ports.need().expect("it is offered"),
            manager: Address::clone(&ports.need::<Address<Msg>>().expect("it is offered")),
        }
    }
}

pub(super) struct FakeHost;

impl Family for FakeHost {
    type Options = Options;

    fn tools() -> Vec<&'static ToolInfo> {
        tools::catalogue()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let host = daemon.ports.need::<HostParts>()?;
        let quota = Arc::new(Quota::default());
        let daemon = &Daemon {
            room: Room::from_counter(FLOOR, host.free.clone()),
            redact: Arc::new(|text| text.replace("s3cret", "[redacted]")),
            sessions: quota.clone(),
            ..daemon.clone()
        };
        let shared = Arc::new(shared(daemon, &host, options));
        daemon.ports.offer(quota);
        daemon.ports.offer(shared.clone());
        let manager = daemon.address("workspaces", RestartPolicy::ESSENTIAL);
        daemon.ports.offer(Arc::new(manager.clone()));
        Ok(Mounted::default()
            .serving::<Workspaces>(&manager, shared.clone())
            .directory("workspace", Arc::new(shared.directory.clone())))
    }
}

fn shared(daemon: &Daemon, host: &HostParts, options: Options) -> Shared {
    let below = |name: &str| daemon.folders.state.join(name);
    let folders = WorkspaceFolders {
        disks: below("disks"),
        layers: below("layers"),
        memories: below("memories"),
        run: below("run"),
        logs: below("logs"),
        transfers: below("transfers"),
    };
    for folder in [&folders.layers, &folders.memories] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let max_parallel_wakes = options.max_parallel_wakes;
    let ground = HostEnv::open(Default::default(), &folders.run);
    let disks = std::slice::from_ref(&folders.disks);
    Shared {
        daemon: daemon.clone(),
        transfers: crate::transfer_quota::TransferQuota::of_mb(1024),
        options,
        git: Default::default(),
        sweeper: Sweeper::new(ground, folders.run.clone(), disks),
        logs: WorkspaceLogSet::new(daemon.journal.clone(), below("disks")),
        folders,
        network: host.network.lock().expect("no panic").clone(),
        volumes: Arc::new(NoVolumes),
        puller: hivekeep_oci::ImagePuller::new(host.images.store.clone(), Default::default()),
        images: host.images.store.clone(),
        drivers: vec![host.driver.clone(), Arc::new(FakeDriver::new(Isolation::Sandbox))],
        directory: Default::default(),
        ref_counts: Default::default(),
        wakes: tokio::sync::Semaphore::new(max_parallel_wakes),
        merges: tokio::sync::Semaphore::new(1),
        fresh: Default::default(),
        traffic: Default::default(),
        booted: Default::default(),
    }
}
