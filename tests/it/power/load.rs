//! A load generator: clients that write notes, and clients that come and go.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{RwLock, RwLockWriteGuard};
use std::thread::Scope;

use hivekeep_mcp_client::{Error, blocking::Client};
use serde_json::json;

use super::acknowledged::{Log, Note};
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

/// Attaches; `None` when the daemon is gone.
pub(super) fn attach(home: &Home) -> Option<Client> {
    answered(Client::connect("power", &home.socket())).map(|client| client.expect("it is let in"))
}

/// An answer or a refusal; `None` when the daemon is gone before either.
fn answered<T>(result: Result<T, Error>) -> Option<Result<T, Error>> {
    match result {
        Err(Error::Lost(_) | Error::Unreached(_) | Error::Handshake(_)) => None,
        Err(Error::Silent) => panic!("a daemon that lives does not answer"),
        answered => Some(answered),
    }
}

fn write(home: &Home, writer: usize, log: &Log, gate: &Gate) -> Option<()> {
    let client = attach(home)?;
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
        let answer = answered(client.call("vault", &asked))?;
        // That there is no note to be removed acknowledges nothing.
        assert!(answer.is_ok() || wanted.is_none(), "{path}: {answer:?}");
        note(&|note| match &answer {
            Err(_) => assert!(note.done.is_none() || note.going.len() > 1, "{path}: {answer:?}"),
            Ok(_) => *note = Note { done: wanted.clone(), going: Vec::new() },
        });
    }
    Some(())
}

fn come_and_go(home: &Home, log: &Log, gate: &Gate) -> Option<()> {
    while gate.pass() {
        let client = attach(home)?;
        let session = client.session().expect("a socket names it").to_owned();
        log.lock().expect("no panic").sessions.insert(session);
        answered(client.call("workspace_list", json!({})))?.expect("listed");
    }
    Some(())
}
