//! Watches that are polled: how far each has been read is kept here, since its clients do not know.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Json, extract::State};
use hivekeep_kernel::{PoolPlace, SharedPool, User};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Watch, WatchMessage};
use crate::doors::e2b::{
    error::{E2bError, Kind},
    rpc::{Answer, MessageOf},
    state::E2b,
    target::Target,
};

/// Watches of all clients, of which one credential has half at most.
const MOST: usize = 4_096;
/// Time after which one that nobody reads is forgotten; its guest has ended it by then.
const UNREAD: Duration = Duration::from_secs(900);

/// See the module. By sandbox and id.
#[derive(Debug)]
pub(in super::super::super) struct Watchers {
    places: SharedPool,
    all: Mutex<HashMap<(String, String), Polled>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { places: SharedPool::new("CreateWatcher", MOST), all: Mutex::default() }
    }
}

#[derive(Debug)]
struct Polled {
    watch: Watch,
    read: Instant,
    place: PoolPlace,
}

impl Watchers {
    fn all(&self) -> MutexGuard<'_, HashMap<(String, String), Polled>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, of: User) -> Result<PoolPlace, E2bError> {
        self.all().retain(|_, polled| polled.read.elapsed() < UNREAD);
        let full = |_| E2bError::new(Kind::ResourceExhausted, "too many watches are polled");
        self.places.take(of).map_err(full)
    }

    fn put(&self, sandbox: &str, watch: Watch, place: PoolPlace) {
        let key = (sandbox.to_owned(), watch.id.clone());
        self.all().insert(key, Polled { watch, read: Instant::now(), place });
    }

    fn take(&self, sandbox: &str, id: &str) -> Result<(Watch, PoolPlace), E2bError> {
        let taken = self.all().remove(&(sandbox.to_owned(), id.to_owned()));
        let none = || E2bError::new(Kind::NotFound, format!("watcher with id {id} not found"));
        taken.map(|polled| (polled.watch, polled.place)).ok_or_else(none)
    }
}

/// `CreateWatcher`: changes are kept until they are asked for.
pub(in super::super::super) async fn create_watcher(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(message): MessageOf<WatchMessage>,
) -> Answer {
    let place = e2b.watchers.place(User::Credential(target.owner.credential))?;
    let watch = e2b.begin(&target, message).await?;
    let id = watch.id.clone();
    e2b.watchers.put(&target.id, watch, place);
    Ok(Json(json!({ "watcherId": id })))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super::super) struct WatcherMessage {
    watcher_id: String,
}

/// `GetWatcherEvents`. Each change goes to one of two readers at a time.
pub(in super::super::super) async fn get_watcher_events(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(WatcherMessage { watcher_id }): MessageOf<WatcherMessage>,
) -> Answer {
    let (mut watch, place) = e2b.watchers.take(&target.id, &watcher_id)?;
    let events = e2b.changes(&target, &mut watch, 0).await;
    if !events.as_ref().is_err_and(|error| error.kind == Kind::NotFound) {
        e2b.watchers.put(&target.id, watch, place);
    }
    Ok(Json(json!({ "events": events? })))
}

/// `RemoveWatcher`.
pub(in super::super::super) async fn remove_watcher(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(WatcherMessage { watcher_id }): MessageOf<WatcherMessage>,
) -> Answer {
    let (watch, _place) = e2b.watchers.take(&target.id, &watcher_id)?;
    e2b.unwatch(&target, &watch).await?;
    Ok(Json(json!({})))
}
