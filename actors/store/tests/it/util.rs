//! Small helpers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use hivekeep_store::{Error, Journal, NewEvent, Options, Recovered, Seq, StreamId};

pub fn stream(name: &str) -> StreamId {
    StreamId::parse(name).unwrap()
}

pub fn event(kind: &str, number: u64) -> NewEvent {
    NewEvent { kind: kind.into(), subject: "test".into(), data: number.into() }
}

/// Opens the journal off the async threads, as callers must.
pub async fn open(options: &Options) -> Result<(Journal, Recovered), Error> {
    let options = options.clone();
    tokio::task::spawn_blocking(move || Journal::open(options)).await.unwrap()
}

pub async fn opened(options: &Options) -> Journal {
    open(options).await.unwrap().0
}

/// Contents of every stream.
pub fn contents(journal: &Journal) -> BTreeMap<String, hivekeep_store::Replay> {
    let streams = journal.streams("").unwrap();
    streams
        .into_iter()
        .map(|stream| (stream.to_string(), journal.replay(&stream).unwrap()))
        .collect()
}

/// Every file below a directory with its bytes, except the lock and the reserve.
pub fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if !path.ends_with("LOCK") && !path.ends_with("RESERVE") {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Makes a directory contain exactly these files.
pub fn restore(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    let _ = fs::remove_dir_all(dir);
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(dir.join("journal/blobs")).unwrap();
}

/// Commit that is blocked at a fail point.
pub struct Held {
    append: tokio::task::JoinHandle<Result<Seq, Error>>,
    release: Sender<()>,
}

impl Held {
    /// Unblocks it; returns the answer to its one append.
    pub async fn release(self) -> Result<Seq, Error> {
        self.release.send(()).unwrap();
        self.append.await.unwrap()
    }
}

/// Blocks the writer inside a commit; requests queued from now on wait.
pub async fn hold(journal: &Journal) -> Held {
    let (entered, reached) = channel();
    let (release, released) = channel();
    // Only the first commit signals and waits.
    let once = Mutex::new(Some((entered, released)));
    fail::cfg_callback("store::commit::apply", move || {
        let first = once.lock().unwrap().take();
        if let Some((entered, released)) = first {
            entered.send(()).unwrap();
            released.recv().unwrap();
        }
    })
    .unwrap();
    let holder = journal.clone();
    let append = tokio::spawn(async move { holder.append(&stream("q/held"), vec![vec![]]).await });
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();
    Held { append, release }
}

/// Thread that is blocked at a fail point.
pub struct HeldAt {
    point: String,
    gate: Arc<(Mutex<(bool, bool)>, Condvar)>,
}

/// Blocks the first thread that reaches a fail point.
pub fn hold_at(point: &str) -> HeldAt {
    let gate = Arc::new((Mutex::new((false, false)), Condvar::new()));
    let inside = gate.clone();
    fail::cfg_callback(point, move || {
        let (state, changed) = &*inside;
        let mut state = state.lock().unwrap();
        state.0 = true;
        while !state.1 {
            state = changed.wait(state).unwrap();
        }
    })
    .unwrap();
    HeldAt { point: point.into(), gate }
}

impl HeldAt {
    /// True once a thread is blocked there.
    pub fn reached(&self) -> bool {
        self.gate.0.lock().unwrap().0
    }

    /// Unblocks that thread, and every one after it.
    pub fn release(self) {
        self.gate.0.lock().unwrap().1 = true;
        self.gate.1.notify_all();
        fail::remove(self.point);
    }
}
