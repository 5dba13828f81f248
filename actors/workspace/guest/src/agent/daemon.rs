//! The agent's role: from options to a running daemon, and the loop that accepts its connections.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Agent, EventListeners, GuestIdentity, SHUTDOWN_STATUS};
use crate::carrier::virtio::Virtio;
use crate::carrier::{GuestCarrier, Unix, Vsock};
use crate::contain::{Contain, cgroup, reaper};
use crate::files::operation::FileOperations;
use crate::freeze::Freezer;
use crate::identity::Persona;
use crate::jobs::{self, JobsFolder};
use crate::session::{self, StreamKind};
use crate::settings::{AgentArgs, AgentSettings, GuestKind, LinkPort};
use crate::sys::{self, descriptors, signals};
use crate::tasks::{self, GuestTasks};

/// Threads for disks at once: a guest has few CPUs and one disk.
const BLOCKING_THREADS: usize = 4;
/// How long the link's device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);

/// Any role's failure to start; said and then the process ends.
pub type RoleFailure = Box<dyn std::error::Error>;

/// The daemon's runtime: one thread, and a few for disks.
///
/// # Errors
/// When the kernel has no epoll or threads left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()
}

/// Runs the daemon until the host orders a shutdown.
///
/// # Errors
/// When it cannot start.
pub fn run(args: AgentArgs) -> Result<ExitCode, RoleFailure> {
    sys::keep_freed_memory();
    signals::restore_defaults();
    descriptors::close_on_exec();
    let inherited = match args.link {
        LinkPort::UnixFd(fd) => Some(descriptors::inherited(fd)?),
        _ => None,
    };
    let runtime = runtime()?;
    runtime.block_on(async {
        let agent = Agent::start(AgentSettings {
            token_hash: args.token_hash,
            exe: Path::new("/proc/self/exe").to_path_buf(),
            state_dir: args.state_dir,
            run_dir: args.run_dir,
            place: args.place,
            cgroup_root: args.cgroup_root,
        })
        .await?;
        match (args.link, inherited) {
            (LinkPort::Virtio, _) => agent.serve(Virtio::open(DEVICE_WAIT).await?).await,
            (LinkPort::Vsock(cids), _) => {
                agent.serve(Vsock::bind(crate::carrier::VSOCK_PORT, cids)?).await;
            }
            (LinkPort::UnixPath(path), _) => agent.serve(Unix::bind(&path, args.peer_uids)?).await,
            (LinkPort::UnixFd(_), Some(fd)) => {
                agent.serve(Unix::inherited(fd, args.peer_uids)?).await;
            }
            (LinkPort::UnixFd(_), None) => {}
        }
        Ok::<_, RoleFailure>(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::from(SHUTDOWN_STATUS))
}

/// Connections served at once; the next waits to be accepted.
const MAX_CONNECTIONS: usize = 8;
/// Shorter than the usual time limit of a command, and too long to cost anything.
const EARLIER: Duration = Duration::from_secs(30);

impl Agent {
    /// Prepares the daemon: state folders, identity, containment, jobs of before.
    ///
    /// # Errors
    /// When a folder cannot be made or the containment does not work.
    pub async fn start(settings: AgentSettings) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(&settings.run_dir)?;
        raise_open_files();
        let identity = GuestIdentity::read(&settings)?;
        let persona = Persona::read(&settings, &identity.boot_id);
        let freezer = match settings.place {
            GuestKind::Vm => Freezer::new(),
            GuestKind::Sandbox => Freezer::default(),
        };
        let contain = match &settings.cgroup_root {
            Some(root) => Contain::Cgroup(cgroup::CgroupPool::open(root)?),
            None => Contain::Subreaper(Arc::new(reaper::Shim::new(&settings.exe)?)),
        };
        let agent = Arc::new(Self {
            runs: Default::default(),
            jobs: JobsFolder::open(&settings)?,
            news: Default::default(),
            watches: Default::default(),
            listeners: Default::default(),
            tasks: GuestTasks::new(&settings, &identity.boot_id, contain.clone()),
            null: std::fs::File::open("/dev/null")?,
            files: FileOperations::new()?,
            identity,
            persona,
            freezer,
            contain,
            network: Default::default(),
            volumes: Default::default(),
            links: EventListeners::default(),
            stopping: CancellationToken::new(),
            settings,
        });
        jobs::watch_all(&agent);
        tasks::run::resume(&agent);
        Ok(agent)
    }

    /// Accepts and serves connections until the host orders a shutdown.
    pub async fn serve<C: GuestCarrier>(self: Arc<Self>, mut carrier: C) {
        tokio::spawn(an_earlier_timer());
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = self.stopping.cancelled() => return,
                accepted = accept(&mut carrier, &slots) => accepted,
            };
            let (slot, reader, writer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    crate::say!("{}: {error}", C::NAME);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
            };
            let serving = session::serve(self.clone(), reader, writer, C::STREAM);
            match C::STREAM {
                StreamKind::Endless => tokio::select! {
                    () = self.stopping.cancelled() => return,
                    () = serving => {}
                },
                StreamKind::Connection => {
                    tokio::spawn(async move {
                        serving.await;
                        drop(slot);
                    });
                }
            }
        }
    }
}

/// Never ends. The runtime wakes itself to look at a timer that would expire before all
/// others, even if it set it itself: a write and another wait for each command with a time
/// limit. Behind this one such a timer is none of its business for a while.
async fn an_earlier_timer() {
    loop {
        tokio::time::sleep(EARLIER).await;
    }
}

type Accepted<C> =
    (tokio::sync::OwnedSemaphorePermit, <C as GuestCarrier>::Reader, <C as GuestCarrier>::Writer);

async fn accept<C: GuestCarrier>(
    carrier: &mut C,
    slots: &Arc<Semaphore>,
) -> io::Result<Accepted<C>> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (reader, writer) = carrier.accept().await?;
    Ok((slot, reader, writer))
}

/// Several descriptors a call: the usual soft limit of 1024 is too few.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: Some(65_536), maximum: Some(1_048_576) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
