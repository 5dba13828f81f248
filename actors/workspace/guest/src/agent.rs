//! The daemon: what its connections share, and the loops that accept them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hivekeep_protocol::{Frame, GuestEvent, Kind, encode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::carrier::Carrier;
use crate::contain::{Contain, cgroup, reaper};
use crate::freeze::Freezer;
use crate::identity::Persona;
use crate::jobs::Jobs;
use crate::session::{self, Stream, outbox::Outbox};
use crate::settings::{Place, Settings};
use crate::tasks::{self, Tasks};

/// Connections served at once; the next waits to be accepted.
const MAX_CONNECTIONS: usize = 8;
/// Shorter than the usual time limit of a command, and too long to cost anything.
const EARLIER: Duration = Duration::from_secs(30);
/// The status with which the daemon tells its init to shut down.
pub const SHUTDOWN_STATUS: u8 = 75;

/// Identity of this guest.
#[derive(Debug)]
pub struct Identity {
    /// Boot id of the kernel, or of the sandbox.
    pub boot_id: String,
    /// Starts of the daemon within this boot, this one included.
    pub daemon_starts: u32,
    /// Start of this daemon.
    pub started: Instant,
}

/// Shared by every connection.
#[derive(Debug)]
pub struct Agent {
    pub(crate) settings: Settings,
    pub(crate) identity: Identity,
    pub(crate) persona: Persona,
    pub(crate) freezer: Freezer,
    pub(crate) contain: Contain,
    pub(crate) jobs: Jobs,
    pub(crate) tasks: Tasks,
    pub(crate) links: Links,
    pub(crate) network: crate::network::Setting,
    pub(crate) null: std::fs::File,
    stopping: CancellationToken,
}

impl Agent {
    /// Prepares the daemon: state folders, identity, containment, jobs of before.
    ///
    /// # Errors
    /// When a folder cannot be made or the containment does not work.
    pub async fn start(settings: Settings) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(&settings.run_dir)?;
        raise_open_files();
        let identity = Identity::read(&settings)?;
        let persona = Persona::read(&settings, &identity.boot_id);
        let freezer = match settings.place {
            Place::Vm => Freezer::new(),
            Place::Sandbox => Freezer::default(),
        };
        let contain = match &settings.cgroup_root {
            Some(root) => Contain::Cgroup(cgroup::Pool::open(root)?),
            None => Contain::Subreaper(Arc::new(reaper::Shim::new(&settings.exe)?)),
        };
        crate::files::temp::sweep(&settings.run_dir);
        let agent = Arc::new(Self {
            jobs: Jobs::open(&settings)?,
            tasks: Tasks::new(&settings, &identity.boot_id),
            null: std::fs::File::open("/dev/null")?,
            identity,
            persona,
            freezer,
            contain,
            network: crate::network::Setting::default(),
            links: Links::default(),
            stopping: CancellationToken::new(),
            settings,
        });
        crate::jobs::watch::all(&agent);
        tasks::run::resume(&agent);
        Ok(agent)
    }

    /// Accepts and serves connections until the host orders a shutdown.
    pub async fn serve<C: Carrier>(self: Arc<Self>, mut carrier: C) {
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
                Stream::Endless => tokio::select! {
                    () = self.stopping.cancelled() => return,
                    () = serving => {}
                },
                Stream::Connection => {
                    tokio::spawn(async move {
                        serving.await;
                        drop(slot);
                    });
                }
            }
        }
    }

    /// Makes [`Self::serve`] return; the caller has answered the host before.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Tasks that were assigned to this guest.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// A shutdown was ordered.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
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
    (tokio::sync::OwnedSemaphorePermit, <C as Carrier>::Reader, <C as Carrier>::Writer);

async fn accept<C: Carrier>(carrier: &mut C, slots: &Arc<Semaphore>) -> io::Result<Accepted<C>> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (reader, writer) = carrier.accept().await?;
    Ok((slot, reader, writer))
}

impl Identity {
    fn read(settings: &Settings) -> io::Result<Self> {
        // A sandbox shares its kernel's boot id, so it is given one of its own.
        let boot_id = std::fs::read_to_string(settings.run_dir.join("boot_id"))
            .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/random/boot_id"))?;
        let starts = settings.run_dir.join("starts");
        let before: u32 = std::fs::read_to_string(&starts)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        let daemon_starts = before.saturating_add(1);
        std::fs::write(&starts, daemon_starts.to_string())?;
        Ok(Self { boot_id: boot_id.trim().to_owned(), daemon_starts, started: Instant::now() })
    }
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

/// The connections that get events.
#[derive(Debug, Default)]
pub struct Links {
    next: AtomicU64,
    /// Held for an insertion, a removal or an offer only.
    live: Arc<Mutex<Vec<(u64, Outbox)>>>,
}

/// A connection leaves [`Links`] when this is dropped.
pub(crate) struct Listening {
    key: u64,
    live: Arc<Mutex<Vec<(u64, Outbox)>>>,
}

impl Links {
    pub(crate) fn add(&self, outbox: Outbox) -> Listening {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.live.lock().unwrap_or_else(PoisonError::into_inner).push((key, outbox));
        Listening { key, live: self.live.clone() }
    }

    /// Tells every connection. One whose queue is full misses it.
    pub(crate) fn tell(&self, event: &GuestEvent) {
        let Ok(payload) = encode(event) else { return };
        let frame = Frame { kind: Kind::Event, id: 0, payload }.to_bytes();
        for (_, outbox) in self.live.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            outbox.offer(frame.clone());
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|(key, _)| *key != self.key);
    }
}
