//! The daemon: state that its connections share.

pub mod daemon;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hivekeep_protocol::{Frame, FrameKind, GuestError, GuestEvent, encode};
use tokio_util::sync::CancellationToken;

use crate::contain::Contain;
use crate::exec::kept::KeyedRuns;
use crate::files::operation::FileOperations;
use crate::freeze::Freezer;
use crate::identity::Persona;
use crate::jobs::{JobsFolder, wait::OutputNews};
use crate::listeners::PortListeners;
use crate::session::outbox::Outbox;
use crate::settings::AgentSettings;
use crate::tasks::GuestTasks;
use crate::watches::Watches;

/// The status with which the daemon tells its init to shut down.
pub const SHUTDOWN_STATUS: u8 = 75;

/// Identity of this guest.
#[derive(Debug)]
pub struct GuestIdentity {
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
    pub(crate) settings: AgentSettings,
    pub(crate) identity: GuestIdentity,
    pub(crate) persona: Persona,
    pub(crate) freezer: Freezer,
    pub(crate) contain: Contain,
    pub(crate) runs: KeyedRuns,
    pub(crate) jobs: JobsFolder,
    pub(crate) news: OutputNews,
    pub(crate) watches: Watches,
    pub(crate) listeners: PortListeners,
    pub(crate) tasks: GuestTasks,
    pub(crate) files: FileOperations,
    pub(crate) links: EventListeners,
    /// Held by the one call at a time that sets the interface, never across an await.
    pub(crate) network: Mutex<()>,
    /// Held while a volume is mounted.
    pub(crate) volumes: Mutex<()>,
    pub(crate) null: std::fs::File,
    stopping: CancellationToken,
}

impl Agent {
    /// Makes [`Self::serve`] return; the caller has answered the host before.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Tasks that were assigned to this guest.
    pub fn tasks(&self) -> &GuestTasks {
        &self.tasks
    }

    /// Makes this the daemon of a machine that was begun from memory: its own of a snapshot, whose commands may have
    /// ended since, or another machine's.
    ///
    /// # Errors
    /// When the tasks of another machine could not be put aside.
    pub fn become_of(&self, machine_id: &str) -> Result<(), GuestError> {
        self.tasks.become_of(machine_id)?;
        self.runs.abandon();
        Ok(())
    }

    /// A shutdown was ordered.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}

impl GuestIdentity {
    fn read(settings: &AgentSettings) -> io::Result<Self> {
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

/// The connections that get events.
#[derive(Debug, Default)]
pub struct EventListeners {
    next: AtomicU64,
    /// Held for an insertion, a removal or an offer only.
    live: Arc<Mutex<Vec<(u64, Outbox)>>>,
}

/// A connection leaves [`EventListeners`] when this is dropped.
pub(crate) struct EventListener {
    key: u64,
    live: Arc<Mutex<Vec<(u64, Outbox)>>>,
}

impl EventListeners {
    pub(crate) fn add(&self, outbox: Outbox) -> EventListener {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.live.lock().unwrap_or_else(PoisonError::into_inner).push((key, outbox));
        EventListener { key, live: self.live.clone() }
    }

    /// Tells every connection. One whose queue is full misses it.
    pub(crate) fn tell(&self, event: &GuestEvent) {
        let Ok(payload) = encode(event) else { return };
        let frame = Frame { kind: FrameKind::Event, id: 0, payload }.to_bytes();
        for (_, outbox) in self.live.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            outbox.offer(frame.clone());
        }
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|(key, _)| *key != self.key);
    }
}
