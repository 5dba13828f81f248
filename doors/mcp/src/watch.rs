//! Documents that a client wants to hear of.
//!
//! A client with a handshake names them by `resources/subscribe` and hears of the lists without
//! asking; one of 2026-07-28 names all in `subscriptions/listen`. What counts is the state of the
//! documents: it is looked at whenever the daemon changed one, and every [`LOOK_EVERY`] for the sake
//! of other programs. That other programs make and remove documents is not seen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{FutureExt, future::select_all};
use hivekeep_kernel::lock;
use hivekeep_runtime::documents::{Changed, DocumentListing, Documents, Stamp, StampResult};
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

use super::{
    McpHandler,
    documents::{owner, refused},
};

/// Interval at which changes by other programs are noticed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause between two messages to a client; changes meanwhile go together.
const PAUSE: Duration = Duration::from_millis(100);
/// Documents that one client may want to hear of.
const MOST: usize = 64;

/// Listed documents that a client is offered.
type Offered = Vec<Arc<dyn Documents>>;

impl McpHandler {
    /// Documents that the client may hear of.
    pub(super) fn watchable(&self) -> Offered {
        let mut offered = self.offered();
        offered.retain(|documents| documents.listing().is_some());
        offered
    }
}

/// The states that a client was last notified of, by the URIs that it uses.
#[derive(Default)]
struct Watching {
    stamps: Mutex<HashMap<String, Option<Stamp>>>,
    /// Notified when a document is added.
    some: Notify,
}

impl Watching {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Stamp>>> {
        lock(&self.stamps)
    }

    /// Documents whose state is not the one that was last notified.
    async fn changed(&self, offered: &Offered) -> Vec<String> {
        let mut changed = Vec::new();
        let uris: Vec<_> = self.lock().keys().cloned().collect();
        for (documents, uris) in by_owner(offered, uris) {
            // A family that cannot be looked at reports no changes.
            let Some(listing) = documents.listing() else { continue };
            let Ok(stamps) = listing.stamps(uris.clone()).await else { continue };
            let mut known = self.lock();
            let mut other = |uri: &String, stamp| {
                let Some(last) = known.get_mut(uri) else { return false };
                std::mem::replace(last, stamp) != stamp
            };
            let seen = uris.into_iter().zip(stamps.into_iter().map(seen));
            changed.extend(seen.filter(|(uri, stamp)| other(uri, *stamp)).map(|(uri, _)| uri));
        }
        changed
    }
}

/// URIs beside the family that they belong to. Those of none are left out.
fn by_owner(offered: &Offered, uris: Vec<String>) -> Vec<(&Arc<dyn Documents>, Vec<String>)> {
    let mut groups: Vec<_> = offered.iter().map(|documents| (documents, Vec::new())).collect();
    for uri in uris {
        let Ok(of) = owner(offered, &uri) else { continue };
        let mut all = groups.iter_mut();
        if let Some((_, group)) = all.find(|(documents, _)| Arc::ptr_eq(documents, of)) {
            group.push(uri);
        }
    }
    groups.retain(|(_, group)| !group.is_empty());
    groups
}

/// State of a document for a client. A document that cannot be looked at counts as absent: its
/// earlier state is over, and reading it says why.
fn seen(stamp: StampResult) -> Option<Stamp> {
    stamp.unwrap_or_default()
}

/// Notifications that a client gets together.
struct DocumentChanges {
    /// True when a list of documents has changed.
    listed: bool,
    /// URIs of documents that have changed.
    updated: Vec<String>,
}

struct Watcher {
    offered: Offered,
    changes: Vec<Receiver<Changed>>,
    watching: Arc<Watching>,
}

impl Watcher {
    fn new(offered: Offered, watching: Arc<Watching>) -> Self {
        let listings = offered.iter().filter_map(|documents| documents.listing());
        let changes = listings.map(DocumentListing::changes).collect();
        Self { offered, changes, watching }
    }

    /// Waits until there is something to notify the client of.
    async fn next(&mut self) -> DocumentChanges {
        loop {
            let some = !self.watching.lock().is_empty();
            let mut listed = false;
            let change = select_all(self.changes.iter_mut().map(|changes| changes.recv().boxed()));
            tokio::select! {
                (change, ..) = change => listed = lists(change),
                () = tokio::time::sleep(LOOK_EVERY), if some => {}
                () = self.watching.some.notified(), if !some => continue,
            }
            for changes in &mut self.changes {
                listed |= drain(changes);
            }
            let updated = self.watching.changed(&self.offered).await;
            if listed || !updated.is_empty() {
                return DocumentChanges { listed, updated };
            }
        }
    }
}

fn lists(change: Result<Changed, RecvError>) -> bool {
    match change {
        Ok(change) => change.listed,
        // Missed changes may have been of a list. The sender lives as long as the family.
        Err(RecvError::Lagged(_) | RecvError::Closed) => true,
    }
}

/// Takes the changes that wait; true when a list is among them.
fn drain(changes: &mut Receiver<Changed>) -> bool {
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
pub(super) struct DocumentSubscriber {
    offered: Offered,
    watching: Arc<Watching>,
    _end: DropGuard,
}

impl McpHandler {
    /// The client's subscriptions; the first call starts its notifications. `None` when it is
    /// offered no documents.
    pub(super) fn subscriber(&self, peer: &Peer<RoleServer>) -> Option<&DocumentSubscriber> {
        let offered = self.watchable();
        if offered.is_empty() {
            return None;
        }
        Some(self.0.hearing.get_or_init(|| {
            let (watching, end) = (Arc::<Watching>::default(), CancellationToken::new());
            let watcher = Watcher::new(offered.clone(), watching.clone());
            tokio::spawn(tell(watcher, peer.clone(), end.clone()));
            DocumentSubscriber { offered, watching, _end: end.drop_guard() }
        }))
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

impl DocumentSubscriber {
    /// Adds a document, which need not be there yet.
    ///
    /// # Errors
    /// For what is not the URI of a document, and for one too many.
    pub(super) async fn add(&self, uri: String) -> Result<(), ErrorData> {
        let documents = owner(&self.offered, &uri)?;
        let Some(listing) = documents.listing() else { return Ok(()) };
        let stamps = listing.stamps(vec![uri.clone()]).await;
        let stamp = stamps.and_then(|stamps| stamps.into_iter().next().transpose());
        let stamp = stamp.map_err(|error| refused(documents, &uri, error))?.flatten();
        let mut watched = self.watching.lock();
        if watched.len() >= MOST && !watched.contains_key(&uri) {
            let text = format!("{MOST} documents are subscribed to already");
            return Err(ErrorData::invalid_params(text, None));
        }
        watched.insert(uri, stamp);
        drop(watched);
        self.watching.some.notify_one();
        Ok(())
    }

    /// Removes a document; one that is not there is no error.
    pub(super) fn remove(&self, uri: &str) {
        self.watching.lock().remove(uri);
    }
}

/// The accepted ones of the URIs that a client of 2026-07-28 names.
pub(super) fn acceptable(offered: &Offered, requested: &SubscriptionFilter) -> Option<Vec<String>> {
    let uris = requested.resource_subscriptions.as_ref()?.iter();
    let names_one =
        |uri: &&String| owner(offered, uri).is_ok_and(|documents| documents.read_args(uri).is_ok());
    Some(uris.filter(names_one).take(MOST).cloned().collect())
}

/// Tells a client of 2026-07-28 what it listens for, until it does not any more.
pub(super) async fn listen(offered: Offered, context: &SubscriptionContext) {
    let accepted = context.accepted();
    let lists = accepted.resources_list_changed == Some(true);
    let uris = accepted.resource_subscriptions.clone().unwrap_or_default();
    if offered.is_empty() || (!lists && uris.is_empty()) {
        return context.cancelled().await;
    }
    let watching = Arc::new(Watching::default());
    let mut watcher = Watcher::new(offered.clone(), watching.clone());
    watching.lock().extend(uris.iter().map(|uri| (uri.clone(), None)));
    for (documents, uris) in by_owner(&offered, uris) {
        let Some(listing) = documents.listing() else { continue };
        let stamps = listing.stamps(uris.clone()).await.unwrap_or_default();
        watching.lock().extend(uris.into_iter().zip(stamps.into_iter().map(seen)));
    }
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
                let change = Changed { uri: "vault:///a.md".to_owned(), listed: *listed };
                sender.send(change).expect("somebody listens");
            }
            drain(&mut changes)
        };
        assert!(!changed(&[false, false]) && changed(&[true, false]) && !changed(&[]));
        assert!(changed(&[true, false, false]), "the first was missed");
        assert!(!changed(&[false]));
    }
}
