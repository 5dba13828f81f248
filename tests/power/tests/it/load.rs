//! A load generator: appends, snapshots, streams written anew and events, side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;

use hivekeep_store::{Journal, NewEvent, Seq};

use crate::acknowledged::{
    Acknowledged, CHURNED, KEPT, RECORDS, Turn, churned, kept, large, options, small, turn_of,
};

pub type Log = Arc<Mutex<Acknowledged>>;

/// What everybody passes before each step.
#[derive(Default)]
struct Gate {
    held: RwLock<()>,
    stop: AtomicBool,
}

impl Gate {
    /// Waits while the load is held; false when it is to end.
    fn pass(&self) -> bool {
        drop(self.held.read().unwrap());
        !self.stop.load(Relaxed)
    }
}

/// A journal in use. Dropped, it is closed.
pub struct Load {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    /// Opens the journal on a disk and uses it; what it acknowledges is written down.
    pub fn start(disk: &Path, log: Log) -> Self {
        let gate = Arc::new(Gate::default());
        let (disk, passed) = (disk.to_owned(), gate.clone());
        let thread = std::thread::spawn(move || run(disk, &log, &passed));
        Self { gate, thread: Some(thread) }
    }

    /// Has it begin nothing new for a while: what it writes meanwhile makes no cut harder.
    pub fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.held.write().unwrap()
    }

    /// Ends it; gives how often it was compacted.
    pub fn stop(mut self) -> u64 {
        self.end().expect("it ran").unwrap()
    }

    fn end(&mut self) -> Option<std::thread::Result<u64>> {
        self.gate.stop.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // What it says of a failure is on its standard error.
        let _ = self.end();
    }
}

fn run(disk: PathBuf, log: &Log, gate: &Gate) -> u64 {
    let (journal, recovered) = Journal::open(options(&disk)).unwrap();
    rebase(&journal, log);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        for number in 0..KEPT {
            let journal = &journal;
            scope.spawn(move || runtime().block_on(grow(journal, number, log, gate)));
        }
        for number in 0..CHURNED {
            let journal = &journal;
            scope.spawn(move || runtime().block_on(churn(journal, number, log, gate)));
        }
    });
    let compactions = journal.stats().compactions + u64::from(recovered.compacted.is_some());
    runtime().block_on(journal.close());
    compactions
}

/// What is found counts as acknowledged: it is on the disk now.
fn rebase(journal: &Journal, log: &Log) {
    let mut log = log.lock().unwrap();
    for number in 0..KEPT {
        log.kept[number] = journal.replay(&kept(number)).unwrap().last().get();
    }
    for number in 0..CHURNED {
        let before = log.churned[number].number();
        log.churned[number] = match turn_of(&journal.replay(&churned(number)).unwrap()).unwrap() {
            0 => Turn::Going(before),
            found => Turn::Done(found),
        };
    }
    log.events = journal.events().last().get();
}

async fn grow(journal: &Journal, number: usize, log: &Log, gate: &Gate) {
    let mut last = log.lock().unwrap().kept[number];
    while gate.pass() {
        let upto = last + 1 + last % 3;
        let records: Vec<_> = (last + 1..=upto).map(|seq| small(number, seq)).collect();
        let events = if number == 0 { records.iter().map(|_| event()).collect() } else { vec![] };
        let done = journal.append_and_publish(&kept(number), records, events).await.unwrap();
        assert_eq!(done.get(), upto);
        last = upto;
        {
            let mut log = log.lock().unwrap();
            log.kept[number] = last;
            if number == 0 {
                log.events = log.events.max(last);
            }
        }
        if number == 1 && last % 7 < 3 {
            journal.snapshot(&kept(1), Seq::new(last), vec![1; 500]).await.unwrap();
        }
    }
}

fn event() -> NewEvent {
    NewEvent { kind: "grown".into(), subject: "kept/0".into(), data: 0.into() }
}

async fn churn(journal: &Journal, number: usize, log: &Log, gate: &Gate) {
    let name = churned(number);
    let mut turn = log.lock().unwrap().churned[number].number();
    while gate.pass() {
        turn += 1;
        log.lock().unwrap().churned[number] = Turn::Going(turn);
        journal.forget(&name).await.unwrap();
        let records = (0..RECORDS).map(|number| large(turn, number)).collect();
        journal.append(&name, records).await.unwrap();
        log.lock().unwrap().churned[number] = Turn::Done(turn);
    }
}
