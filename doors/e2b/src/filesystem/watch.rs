//! Watches of folders: sent as a stream, or polled; how far a polled one has been read is kept here, since its clients
//! do not know.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{Json, extract::State, http::HeaderMap, response::Response};
use hivekeep_door_server::tool_calls::part_of;
use hivekeep_kernel::{PoolPlace, SharedPool, User, lock};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    error::{E2bError, Kind},
    rpc::{self, Answer, CallTimes, EnvelopeOf, MessageOf, StreamWriter},
    state::E2b,
    target::Target,
};

/// Longest wait for a change.
const WAIT_SECS: u64 = 25;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct WatchMessage {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    include_entry: bool,
}

#[derive(Debug, Deserialize)]
struct Begun {
    watch: String,
}

#[derive(Debug, Deserialize)]
struct Changes {
    changes: Vec<Change>,
    next: u64,
    lost: bool,
}

#[derive(Debug, Deserialize)]
struct Change {
    kind: String,
    path: String,
}

/// A watch, and how far it has been read.
#[derive(Debug, Clone)]
struct Watch {
    id: String,
    path: String,
    include_entry: bool,
    after: u64,
}

impl E2b {
    async fn begin(&self, target: &Target, message: WatchMessage) -> Result<Watch, E2bError> {
        let path = self.absolute(target, &message.path).await?;
        if !self.entry(target, &path).await?.is_folder() {
            return Err(E2bError::invalid(format!("path is not a directory: {path}")));
        }
        let asked = json!({
            "place": target.place("/"), "path": path, "recursive": message.recursive,
        });
        let Begun { watch } = self.ask(&target.owner, "fs.watch", asked).await?;
        Ok(Watch { id: watch, path, include_entry: message.include_entry, after: 0 })
    }

    /// Changes since the last read, after at most `wait_secs`.
    async fn changes(
        &self,
        target: &Target,
        watch: &mut Watch,
        wait_secs: u64,
    ) -> Result<Vec<Value>, E2bError> {
        let asked = json!({
            "place": target.place("/"), "watch": watch.id, "after": watch.after,
            "wait_secs": wait_secs,
        });
        let told = self.call_in_turn(&target.owner, "fs.changes", asked).await?;
        let Changes { changes, next, lost } = part_of("fs.changes", told)?;
        if lost {
            let why = "changes came faster than they were read, and some are lost";
            return Err(E2bError::new(Kind::ResourceExhausted, why));
        }
        watch.after = next;
        let mut told = Vec::with_capacity(changes.len());
        for Change { kind, path } in changes {
            let kind = match &*kind {
                "create" => "EVENT_TYPE_CREATE",
                "write" => "EVENT_TYPE_WRITE",
                "remove" => "EVENT_TYPE_REMOVE",
                "rename" => "EVENT_TYPE_RENAME",
                _ => "EVENT_TYPE_CHMOD",
            };
            let mut event = json!({ "name": path, "type": kind });
            if watch.include_entry {
                // The entry may be gone by now.
                if let Ok(entry) = self.entry(target, &format!("{}/{path}", watch.path)).await {
                    event["entry"] = entry.told();
                }
            }
            told.push(event);
        }
        Ok(told)
    }

    async fn unwatch(&self, target: &Target, watch: &Watch) -> Result<(), E2bError> {
        let asked = json!({ "place": target.place("/"), "watch": watch.id });
        self.call(&target.owner, "fs.unwatch", asked).await?;
        Ok(())
    }

    async fn tell(
        &self,
        target: &Target,
        watch: &mut Watch,
        writer: &StreamWriter,
        times: CallTimes,
    ) -> Result<(), E2bError> {
        let wait_secs = times.keepalive.as_secs().clamp(1, WAIT_SECS);
        loop {
            let events = self.changes(target, watch, wait_secs).await?;
            if events.is_empty() && writer.message(&json!({ "keepalive": {} })).await.is_err() {
                return Ok(());
            }
            for event in events {
                if writer.message(&json!({ "filesystem": event })).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// `WatchDir`: changes as they come.
pub(in super::super) async fn watch_dir(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    headers: HeaderMap,
    EnvelopeOf(message): EnvelopeOf<WatchMessage>,
) -> Response {
    let mut watch = match e2b.begin(&target, message).await {
        Ok(watch) => watch,
        Err(error) => return rpc::failed(error),
    };
    let times = CallTimes::of(&headers);
    rpc::stream(&json!({ "start": {} }), move |writer| async move {
        let telling = e2b.tell(&target, &mut watch, &writer, times);
        let outcome = match times.limit {
            None => telling.await,
            Some(limit) => timeout(limit, telling).await.unwrap_or_else(|_| {
                let why = "the call has reached its time limit";
                Err(E2bError::new(Kind::DeadlineExceeded, why))
            }),
        };
        // A watch that is left open ends by itself after some minutes.
        let _left = e2b.unwatch(&target, &watch).await;
        (writer, outcome)
    })
}

/// Watches of all clients, of which one credential has half at most.
const MOST_WATCHERS: usize = 4_096;
/// Time after which one that nobody reads is forgotten; its guest has ended it by then.
const WATCHER_UNREAD: Duration = Duration::from_secs(900);

/// See the module. By sandbox and id.
#[derive(Debug)]
pub(in super::super) struct Watchers {
    places: SharedPool,
    all: Mutex<HashMap<(String, String), Polled>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { places: SharedPool::new("CreateWatcher", MOST_WATCHERS), all: Mutex::default() }
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
        lock(&self.all)
    }

    fn place(&self, of: User) -> Result<PoolPlace, E2bError> {
        self.all().retain(|_, polled| polled.read.elapsed() < WATCHER_UNREAD);
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
pub(in super::super) async fn create_watcher(
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
pub(in super::super) struct WatcherMessage {
    watcher_id: String,
}

/// `GetWatcherEvents`. Each change goes to one of two readers at a time.
pub(in super::super) async fn get_watcher_events(
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

/// `RemoveWatcher`: its changes that were not fetched are gone.
pub(in super::super) async fn remove_watcher(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(WatcherMessage { watcher_id }): MessageOf<WatcherMessage>,
) -> Answer {
    let (watch, _place) = e2b.watchers.take(&target.id, &watcher_id)?;
    e2b.unwatch(&target, &watch).await?;
    Ok(Json(json!({})))
}
