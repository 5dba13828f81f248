//! Call table: the open calls of a link, with an admission limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::task::AtomicWaker;
use hivekeep_kernel::lock;
use hivekeep_protocol::limits::{MAX_CALLS_IN_FLIGHT, MAX_STREAMS, MAX_WAITING_CALLS};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::inbox::{Exchange, Inbox};

/// Number of slots reserved for calls that must pass when every other slot is taken.
const RESERVED: usize = 8;

/// Time after which a given-up call that the guest has not closed counts as stuck. The guest has to
/// kill at most one process tree.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Class of slots that a call takes one from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Slots of most calls.
    Ordinary,
    /// Slots of liveness, kill and shutdown.
    Reserved,
    /// Slots of calls that wait for news in the guest.
    Waiting,
    /// Slots of streams to ports, which may stay open for days.
    Stream,
}

/// Open call. Lives until the guest's reply, also when nobody waits for it.
pub(super) struct Call {
    pub(super) id: u32,
    /// Notified at each change of the inbox and at the end of the link.
    pub(super) wake: Notify,
    /// Woken like `wake`: the halves of a stream.
    pub(super) reading: AtomicWaker,
    pub(super) writing: AtomicWaker,
    inbox: Mutex<Inbox>,
    _slot: OwnedSemaphorePermit,
}

impl Call {
    /// Locks the inbox for a moment; never held across an await.
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Wakes the waiters for a change.
    pub(super) fn notify(&self) {
        self.wake.notify_one();
        self.reading.wake();
        self.writing.wake();
    }
}

/// Table of all open calls, at most as many as the guest serves at once; further ones wait here for
/// a slot, so that no call is refused for being one too many.
pub(super) struct Calls {
    table: Mutex<Table>,
    ordinary: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u32, Arc<Call>>,
    /// Calls that nobody waits for, with the time of abandonment.
    abandoned: HashMap<u32, Instant>,
    last_id: u32,
}

impl Calls {
    /// Makes a table whose ids count on from `first_id`. A random one tells the calls of this link
    /// from those of an older one whose replies are still in the stream.
    pub(super) fn new(first_id: u32) -> Self {
        Self {
            table: Mutex::new(Table { last_id: first_id, ..Table::default() }),
            ordinary: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT - RESERVED - MAX_WAITING_CALLS)),
            reserved: Arc::new(Semaphore::new(RESERVED)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_CALLS)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }

    /// Waits for a slot; `None` when the link is down.
    pub(super) async fn slot(&self, kind: Slot) -> Option<OwnedSemaphorePermit> {
        let slots = match kind {
            Slot::Ordinary => &self.ordinary,
            Slot::Reserved => &self.reserved,
            Slot::Waiting => &self.waiting,
            Slot::Stream => &self.streams,
        };
        slots.clone().acquire_owned().await.ok()
    }

    pub(super) fn open(&self, exchange: Exchange, slot: OwnedSemaphorePermit) -> Arc<Call> {
        let mut table = lock(&self.table);
        let id = table.free_id();
        let call = Arc::new(Call {
            id,
            wake: Notify::new(),
            reading: AtomicWaker::new(),
            writing: AtomicWaker::new(),
            inbox: Mutex::new(Inbox::new(id, exchange)),
            _slot: slot,
        });
        table.open.insert(id, call.clone());
        call
    }

    pub(super) fn find(&self, id: u32) -> Option<Arc<Call>> {
        lock(&self.table).open.get(&id).cloned()
    }

    /// Removes a call that the guest has answered.
    pub(super) fn close(&self, id: u32) {
        let mut table = lock(&self.table);
        table.abandoned.remove(&id);
        table.open.remove(&id);
    }

    /// Marks a call that nobody waits for any more. False when it was closed already.
    pub(super) fn abandon(&self, call: &Call) -> bool {
        call.inbox().abandon();
        let mut table = lock(&self.table);
        let open = table.open.contains_key(&call.id);
        if open {
            table.abandoned.insert(call.id, Instant::now());
        }
        open
    }

    /// True if the guest leaves a given-up call open for too long.
    pub(super) fn stuck(&self) -> bool {
        lock(&self.table).abandoned.values().any(|since| since.elapsed() > STUCK_AFTER)
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.table).open.len()
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> Vec<usize> {
        lock(&self.table).open.values().map(|call| call.inbox().held_bytes()).collect()
    }

    /// Ends all calls because the link is down: no more slots are given, and all waiters wake.
    pub(super) fn end(&self) {
        self.ordinary.close();
        self.reserved.close();
        self.waiting.close();
        self.streams.close();
        let open = std::mem::take(&mut lock(&self.table).open);
        open.values().for_each(|call| call.notify());
    }
}

impl Table {
    /// Next free id. Ids wrap around; at most `MAX_CALLS_IN_FLIGHT` and `MAX_STREAMS` are taken. 0 is not a call.
    fn free_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.open.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }
}
