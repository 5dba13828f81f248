//! A load generator: clients that write notes, and clients that come and go.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{RwLock, RwLockWriteGuard};
use std::thread::Scope;

use serde_json::json;

use super::acknowledged::{Log, Note};
use super::client::Client;
use crate::home::Home;

const WRITERS: usize = 2;
const VISITORS: usize = 3;
/// Notes of a writer, in turn.
const NOTES: usize = 12;

/// What every client passes before each step.
#[derive(Default)]
pub(crate) struct Gate {
    held: RwLock<()>,
    ended: AtomicBool,
}

/// Ends the load when it is dropped, after a panic too.
pub(crate) struct Ends<'g>(&'g Gate);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
    }
}

impl Gate {
    pub(crate) fn ends(&self) -> Ends<'_> {
        Ends(self)
    }

    /// Has the clients begin nothing new for a while.
    pub(crate) fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.held.write().expect("no panic")
    }

    /// Waits while the load is held; false when it is to end.
    fn pass(&self) -> bool {
        drop(self.held.read());
        !self.ended.load(Relaxed)
    }
}

/// Starts the clients. They end with the gate, or with their daemon.
pub(crate) fn start<'s>(scope: &'s Scope<'s, '_>, home: &'s Home, log: &'s Log, gate: &'s Gate) {
    for writer in 0..WRITERS {
        scope.spawn(move || write(home, writer, log, gate));
    }
    for _ in 0..VISITORS {
        scope.spawn(move || come_and_go(home, log, gate));
    }
}

fn write(home: &Home, writer: usize, log: &Log, gate: &Gate) -> Option<()> {
    let mut client = Client::connect(home)?;
    for number in 0.. {
        if !gate.pass() {
            break;
        }
        let path = format!("folder{}/{writer}-{}.md", number % 5, number % NOTES);
        // Every so often a note is removed, and made again on another round.
        let wanted = (number % 7 != 6).then(|| {
            let text = format!("{} of {writer}\n", fastrand::u64(..));
            text.repeat(1 + number * 37 % 300)
        });
        let note = |change: &dyn Fn(&mut Note)| {
            change(log.lock().expect("no panic").notes.entry(path.clone()).or_default());
        };
        note(&|note| note.going.push(wanted.clone()));
        let asked = match &wanted {
            Some(text) => json!({"action": "write", "path": path, "content": text}),
            None => json!({"action": "delete", "path": path, "confirm": true}),
        };
        let answer = client.call("vault", &asked)?;
        // That there is no note to be removed acknowledges nothing.
        let refused = answer["isError"] == true;
        assert!(!refused || wanted.is_none(), "{path}: {answer}");
        note(&|note| match refused {
            true => assert!(note.done.is_none() || note.going.len() > 1, "{path}: {answer}"),
            false => *note = Note { done: wanted.clone(), going: Vec::new() },
        });
    }
    Some(())
}

fn come_and_go(home: &Home, log: &Log, gate: &Gate) -> Option<()> {
    while gate.pass() {
        let mut client = Client::connect(home)?;
        log.lock().expect("no panic").sessions.insert(client.session.clone());
        client.call("workspace_list", &json!({}))?;
    }
    Some(())
}
