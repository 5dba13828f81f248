//! Serialized access to the durable queue, one piece of work at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hivekeep_protocol::{GuestCode, GuestError};
use tokio::sync::Semaphore;

use super::durable::DurableQueue;
use super::folder::TaskFolders;
use crate::contain::Contain;
use crate::files::off_thread;
use crate::identity::MACHINE_ID;
use crate::jobs::{dir::JobDir, end};
use crate::settings::AgentSettings;

/// The tasks of this guest.
#[derive(Debug)]
pub struct GuestTasks {
    contain: Contain,
    folder: TaskFolders,
    /// Locked by threads that may block, one at a time by `turn`.
    queue: Arc<Mutex<DurableQueue>>,
    /// First come, first served; and no more than one thread for disks is taken.
    turn: Arc<Semaphore>,
    /// Number that changes with each machine that this one becomes.
    generation: Arc<AtomicU64>,
}

impl GuestTasks {
    /// Does not look at the tasks there are; see [`super::run::resume`].
    pub fn new(settings: &AgentSettings, boot_id: &str, contain: Contain) -> Self {
        let machine_id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        let folder = TaskFolders::new(&settings.state_dir, &settings.run_dir);
        let queue =
            DurableQueue::new(folder.clone(), machine_id.trim().to_owned(), boot_id.to_owned());
        Self {
            contain,
            folder,
            queue: Arc::new(Mutex::new(queue)),
            turn: Arc::new(Semaphore::new(1)),
            generation: Arc::default(),
        }
    }

    /// True if an earlier daemon had tasks.
    pub(super) fn any_left(&self) -> bool {
        !matches!(self.folder.exists(), Ok(false))
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Has something done with the queue, on a thread that may block.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        generation: u64,
        work: impl FnOnce(&mut DurableQueue) -> Result<T, GuestError> + Send + 'static,
    ) -> Result<T, GuestError> {
        let closed = |_| GuestError::new(GuestCode::Internal, "the tasks are closed");
        let turn = self.turn.clone().acquire_owned().await.map_err(closed)?;
        let (queue, current) = (self.queue.clone(), self.generation.clone());
        off_thread(move || {
            let _turn = turn;
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            if current.load(Ordering::SeqCst) != generation {
                let text = "this has become another machine";
                return Err(GuestError::new(GuestCode::Cancelled, text));
            }
            work(&mut queue)
        })
        .await
    }

    /// This is another machine from now on. Tasks of the one before are killed and put aside.
    /// Blocks for as long as what is being written down takes, and only if there were any.
    ///
    /// # Errors
    /// When they could not be put aside; then they are this machine's still.
    pub fn become_of(&self, machine_id: &str) -> Result<(), GuestError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(runs) = queue.runs_of_another(machine_id) else { return Ok(()) };
        self.generation.fetch_add(1, Ordering::SeqCst);
        for job in runs.iter().filter(|job| job.path().exists()) {
            self.kill(job);
        }
        queue.become_of(machine_id)
    }

    /// Kills what runs of a task. Blocking, for at most half a second.
    pub(super) fn kill(&self, job: &JobDir) {
        if let Err(error) = end::signal(&self.contain, job, libc::SIGKILL) {
            crate::say!("task {}: cannot kill it: {error}", job.id());
        }
    }
}
