//! Notes that a client wants to hear of.
//!
//! A client with a handshake names them by `resources/subscribe` and hears of the list without
//! asking; one of 2026-07-28 names all in `subscriptions/listen`. What counts is the state of the
//! files: it is looked at whenever the daemon changed a note, and every [`LOOK_EVERY`] for the sake
//! of other programs. That other programs make and remove notes is not seen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hivekeep_kernel::ToolError;
use hivekeep_vault::{NoteChange, NoteStamp, VaultHandle};
use rmcp::{
    ErrorData, RoleServer,
    model::{ResourceUpdatedNotificationParam, SubscriptionFilter},
    service::{Peer, SubscriptionContext},
};
use tokio::sync::{
    Notify,
    broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Handler, notes};

/// How soon a change by another program is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two messages to a client; what changes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(100);
/// Notes that one client may want to hear of.
const MOST: usize = 64;

/// A note and the state that its client was told of last.
struct Watched {
    path: String,
    stamp: Option<NoteStamp>,
}

/// Notes by the URIs that their client uses.
#[derive(Default)]
struct Watching {
    notes: Mutex<HashMap<String, Watched>>,
    /// There are some now.
    some: Notify,
}

impl Watching {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose state is another one than was told last.
    async fn changed(&self, vault: &VaultHandle) -> Vec<String> {
        let (uris, paths): (Vec<_>, Vec<_>) =
            self.lock().iter().map(|(uri, note)| (uri.clone(), note.path.clone())).unzip();
        if uris.is_empty() {
            return uris;
        }
        // A vault that cannot be looked at tells nothing new.
        let Ok(stamps) = vault.stamps(paths).await else { return Vec::new() };
        let stamps = stamps.into_iter().map(seen);
        let mut notes = self.lock();
        let mut other = |uri: &String, stamp| {
            let Some(note) = notes.get_mut(uri) else { return false };
            std::mem::replace(&mut note.stamp, stamp) != stamp
        };
        let changed = uris.into_iter().zip(stamps);
        changed.filter(|(uri, stamp)| other(uri, *stamp)).map(|(uri, _)| uri).collect()
    }
}

/// The state that a client is told of. A note that cannot be looked at is none that is there: what
/// it was told before is over, and reading it says why.
fn seen(stamp: Result<Option<NoteStamp>, ToolError>) -> Option<NoteStamp> {
    stamp.unwrap_or_default()
}

/// What a client is told together.
struct Told {
    /// The list of notes is another one.
    listed: bool,
    /// Notes that are.
    updated: Vec<String>,
}

struct Watcher {
    vault: VaultHandle,
    changes: Receiver<NoteChange>,
    watching: Arc<Watching>,
}

impl Watcher {
    fn new(vault: VaultHandle, watching: Arc<Watching>) -> Self {
        Self { changes: vault.changes(), vault, watching }
    }

    /// Waits until there is something to be told.
    async fn next(&mut self) -> Told {
        loop {
            let some = !self.watching.lock().is_empty();
            let mut listed = false;
            tokio::select! {
                change = self.changes.recv() => listed = lists(change),
                () = tokio::time::sleep(LOOK_EVERY), if some => {}
                () = self.watching.some.notified(), if !some => continue,
            }
            listed |= drain(&mut self.changes);
            let updated = self.watching.changed(&self.vault).await;
            if listed || !updated.is_empty() {
                return Told { listed, updated };
            }
        }
    }
}

fn lists(change: Result<NoteChange, RecvError>) -> bool {
    match change {
        Ok(change) => change.listed,
        // What was missed may have been anything. The sender lives as long as the handle.
        Err(RecvError::Lagged(_) | RecvError::Closed) => true,
    }
}

/// Takes what else there is. Whether the list of notes is another one by it.
fn drain(changes: &mut Receiver<NoteChange>) -> bool {
    let mut listed = false;
    loop {
        match changes.try_recv() {
            Ok(change) => listed |= change.listed,
            Err(TryRecvError::Lagged(_)) => listed = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return listed,
        }
    }
}

/// A client with a handshake, as long as its handler lives.
pub(super) struct Hearing {
    watching: Arc<Watching>,
    _end: DropGuard,
}

impl Handler {
    /// What the client hears of; from the first time on, it is told.
    pub(super) fn hearing(&self, peer: &Peer<RoleServer>) -> &Hearing {
        self.0.hearing.get_or_init(|| {
            let (watching, end) = (Arc::<Watching>::default(), CancellationToken::new());
            let watcher = Watcher::new(self.0.core.notes.clone(), watching.clone());
            tokio::spawn(tell(watcher, peer.clone(), end.clone()));
            Hearing { watching, _end: end.drop_guard() }
        })
    }
}

async fn tell(mut watcher: Watcher, peer: Peer<RoleServer>, end: CancellationToken) {
    loop {
        let told = tokio::select! {
            () = end.cancelled() => return,
            told = watcher.next() => told,
        };
        if told.listed && peer.notify_resource_list_changed().await.is_err() {
            return;
        }
        for uri in told.updated {
            let param = ResourceUpdatedNotificationParam::new(uri);
            if peer.notify_resource_updated(param).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Hearing {
    /// Adds a note, which need not be there yet.
    ///
    /// # Errors
    /// For what is no note's URI, and for one too many.
    pub(super) async fn add(&self, vault: &VaultHandle, uri: String) -> Result<(), ErrorData> {
        let path = notes::path(&uri)?;
        let stamps = vault.stamps(vec![path.clone()]).await;
        let stamp = stamps.and_then(|stamps| stamps.into_iter().next().transpose());
        let stamp = stamp.map_err(|error| notes::refused(&uri, error))?.flatten();
        let mut notes = self.watching.lock();
        if notes.len() >= MOST && !notes.contains_key(&uri) {
            let text = format!("{MOST} notes are subscribed to already");
            return Err(ErrorData::invalid_params(text, None));
        }
        notes.insert(uri, Watched { path, stamp });
        drop(notes);
        self.watching.some.notify_one();
        Ok(())
    }

    /// Removes a note; one that is not there is no error.
    pub(super) fn remove(&self, uri: &str) {
        self.watching.lock().remove(uri);
    }
}

/// Which of the URIs that a client of 2026-07-28 names are taken.
pub(super) fn acceptable(
    vault: &VaultHandle,
    requested: &SubscriptionFilter,
) -> Option<Vec<String>> {
    let uris = requested.resource_subscriptions.as_ref()?.iter();
    let note = |uri: &&String| notes::path(uri).is_ok_and(|path| vault.names_note(&path).is_ok());
    Some(uris.filter(note).take(MOST).cloned().collect())
}

/// Tells a client of 2026-07-28 what it listens for, until it does not any more.
pub(super) async fn listen(vault: VaultHandle, context: &SubscriptionContext) {
    let accepted = context.accepted();
    let watching = Arc::new(Watching::default());
    let mut watcher = Watcher::new(vault.clone(), watching.clone());
    let lists = accepted.resources_list_changed == Some(true);
    let uris = accepted.resource_subscriptions.as_deref().unwrap_or_default();
    if !lists && uris.is_empty() {
        return context.cancelled().await;
    }
    let paths: Vec<_> = uris.iter().filter_map(|uri| notes::path(uri).ok()).collect();
    let stamps = vault.stamps(paths.clone()).await.unwrap_or_default();
    let stamps = stamps.into_iter().map(seen).chain(std::iter::repeat(None));
    let watched = paths.into_iter().zip(stamps).map(|(path, stamp)| Watched { path, stamp });
    watching.lock().extend(uris.iter().cloned().zip(watched));
    loop {
        let told = tokio::select! {
            () = context.cancelled() => return,
            told = watcher.next() => told,
        };
        let sink = context.sink();
        if told.listed && lists && sink.notify_resource_list_changed().await.is_err() {
            return;
        }
        for uri in told.updated {
            if sink.notify_resource_updated(uri).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_were_missed_may_have_been_of_the_list() {
        let (sender, mut changes) = tokio::sync::broadcast::channel(2);
        let mut changed = |listed: &[bool]| {
            for listed in listed {
                let change = NoteChange { path: "a.md".to_owned(), listed: *listed };
                sender.send(change).expect("somebody listens");
            }
            drain(&mut changes)
        };
        assert!(!changed(&[false, false]) && changed(&[true, false]) && !changed(&[]));
        assert!(changed(&[true, false, false]), "the first was missed");
        assert!(!changed(&[false]));
    }
}
