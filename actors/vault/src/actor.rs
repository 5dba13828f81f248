//! Vault actor: serialises changes per note and runs the work on threads beside its mailbox.
//!
//! ```text
//!  call ─► VaultActor ─┬─ reads, searches ─► readers ──────────────┐
//!                      └─ changes ─► queue ─► writers, one a note ─┴─► blocking threads ─► VaultFolder
//! ```

mod act;
mod documents;
mod handle;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_kernel::serve::{self, ToolCall};
use hivekeep_kernel::{CallCx, Context, Entity, Fault, Layer, Reply, ToolError};
use tokio::sync::{Semaphore, oneshot};

pub use handle::VaultHandle;
pub use shared::{Args, open};

use crate::ops::VaultView;
use crate::path::{NotePath, Scope};
use crate::{Error, codes, tools};
use shared::{Stopped, VaultShared};

/// Maximum number of changes that wait for their turn; one more is refused as `busy`.
const MOST_WAITING: usize = 1_024;
/// Maximum time that a new incarnation waits for writes of the previous one.
const WRITERS_PATIENCE: Duration = Duration::from_secs(30);

/// Message of the vault actor.
pub struct Msg(Inner);

enum Inner {
    Tool(Box<ToolCall>),
    Change(Change),
    Done(Vec<NotePath>),
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self(Inner::Tool(Box::new(call)))
    }
}

/// Change that waits for its turn. It receives the vault or the reason why there is none, and
/// answers its caller itself.
struct Change {
    notes: Vec<NotePath>,
    scope: Scope,
    /// True if it may take long; slow changes have a limit of their own.
    slow: bool,
    work: Box<dyn FnOnce(Result<VaultView, Error>) + Send + Sync>,
}

/// Caller, and the part of the vault that it may use.
#[derive(Clone)]
struct Caller {
    cx: CallCx,
    scope: Scope,
}

/// Actor of the vault.
pub struct VaultActor {
    me: Context<Msg>,
    shared: Arc<VaultShared>,
    queue: KeyedQueue<NotePath, Change>,
}

impl Entity for VaultActor {
    type Msg = Msg;
    type Args = Args;

    async fn start(Args(shared): Args, me: Context<Msg>) -> Result<Self, Fault> {
        // Writers of the previous incarnation may still be running.
        let all = shared.writers.acquire_many(shared::WRITERS);
        match tokio::time::timeout(WRITERS_PATIENCE, all).await {
            Ok(permits) => drop(permits),
            Err(_) => return Err(Fault::new("what was being written before has not ended")),
        }
        // Opened beside the mailbox: a disk that hangs must not block the daemon's start.
        let opening = shared.clone();
        let _detached = me.workers.spawn(async move {
            let opened = tokio::task::spawn_blocking(move || opening.folder().map(drop)).await;
            if let Ok(Err(error @ Error::Unavailable { .. })) = opened {
                tracing::warn!(%error, "there is no vault");
            }
        });
        Ok(Self { me, shared, queue: KeyedQueue::default() })
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, tools::FAMILIES, &workers, *call);
            }
            Inner::Change(change) => self.submit(change),
            Inner::Done(notes) => {
                for (notes, change) in self.queue.done(&notes) {
                    self.begin(notes, change);
                }
            }
        }
        Ok(())
    }
}

impl VaultActor {
    /// Runs work that changes nothing, beside everything else.
    fn look<T: Send + 'static>(
        &self,
        by: &Caller,
        crowd: &Arc<Semaphore>,
        work: impl FnOnce(&VaultView, Stopped<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Reply<T> {
        let (shared, crowd) = (self.shared.clone(), crowd.clone());
        let Caller { cx, scope } = by.clone();
        Reply::later(async move { cx.guard(shared.look(crowd, scope, work)).await })
    }

    /// Runs work that changes notes, in its turn. Once begun it is not cancelled: its caller gets
    /// the outcome.
    fn change<T: Send + 'static>(
        &mut self,
        by: &Caller,
        notes: Vec<NotePath>,
        work: impl FnOnce(&VaultView) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Reply<T> {
        self.change_until(by, notes, false, |vault, _| work(vault))
    }

    /// Runs work that may take long before it changes anything; until then it ends when nobody
    /// waits for it.
    fn change_until<T: Send + 'static>(
        &mut self,
        by: &Caller,
        notes: Vec<NotePath>,
        slow: bool,
        work: impl FnOnce(&VaultView, Stopped<'_>) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Reply<T> {
        let (reply, answer) = oneshot::channel();
        let Caller { cx, scope } = by.clone();
        let cancel = cx.cancel;
        let work = move |vault: Result<VaultView, Error>| {
            let done = match cancel.is_cancelled() {
                true => Err(Error::Cancelled),
                false => vault.and_then(|vault| work(&vault, &|| cancel.is_cancelled())),
            };
            let _gone = reply.send(done);
        };
        self.submit(Change { notes, scope, slow, work: Box::new(work) });
        Reply::later(answered(answer))
    }

    fn submit(&mut self, change: Change) {
        if self.queue.waiting() >= MOST_WAITING {
            return (change.work)(Err(Error::Busy));
        }
        for (notes, change) in self.queue.ask(change.notes.clone(), change) {
            self.begin(notes, change);
        }
    }

    fn begin(&self, notes: Vec<NotePath>, change: Change) {
        let (shared, address) = (self.shared.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let slow = match change.slow {
                true => Some(shared.slow_writers.clone().acquire_owned().await),
                false => None,
            };
            let permits = (slow, shared.writers.clone().acquire_owned().await);
            let written = tokio::task::spawn_blocking(move || {
                let _until_it_is_over = permits;
                (change.work)(shared.vault(change.scope));
            });
            if let Err(error) = written.await {
                tracing::error!(%error, "a change of a note panicked");
            }
            // An actor that is gone has no queue to advance.
            let _gone = address.send(Msg(Inner::Done(notes)));
        });
    }
}

async fn answered<T>(answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, ToolError> {
    match answer.await {
        Ok(done) => Ok(done?),
        // The change was lost with an incarnation of the actor, or the work panicked.
        Err(_) => Err(ToolError::new(
            Layer::Actor,
            codes::OUTCOME_UNKNOWN,
            "the vault was started anew before it was known whether the note was changed",
        )
        .next("read the note to see whether it was changed, before trying again")),
    }
}

/// Keyed FIFO queue: jobs with a common key run one after the other, in order of arrival; others
/// run side by side. Pure.
///
/// A move needs two notes. It begins when both are free and no earlier job waits for either; so no
/// job waits for a later one, and no two wait for each other.
struct KeyedQueue<K, J> {
    busy: HashSet<K>,
    waiting: VecDeque<(Vec<K>, J)>,
}

impl<K, J> Default for KeyedQueue<K, J> {
    fn default() -> Self {
        Self { busy: HashSet::new(), waiting: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, J> KeyedQueue<K, J> {
    /// Number of jobs that wait.
    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a job. Returns the jobs that begin now.
    fn ask(&mut self, keys: Vec<K>, job: J) -> Vec<(Vec<K>, J)> {
        self.waiting.push_back((keys, job));
        self.begin()
    }

    /// Ends a job. Returns the jobs that begin now.
    fn done(&mut self, keys: &[K]) -> Vec<(Vec<K>, J)> {
        for key in keys {
            self.busy.remove(key);
        }
        self.begin()
    }

    fn begin(&mut self) -> Vec<(Vec<K>, J)> {
        let (mut begun, mut left, mut wanted) = (Vec::new(), VecDeque::new(), HashSet::new());
        for (keys, job) in self.waiting.drain(..) {
            let free = |key: &K| !self.busy.contains(key) && !wanted.contains(key);
            if keys.iter().all(free) {
                self.busy.extend(keys.iter().cloned());
                begun.push((keys, job));
            } else {
                wanted.extend(keys.iter().cloned());
                left.push_back((keys, job));
            }
        }
        self.waiting = left;
        begun
    }
}
