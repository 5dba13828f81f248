//! Files of a sandbox: `filesystem.Filesystem` of the published data plane, by the tools of files.

pub(super) mod entry;
mod home;
mod watch;

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::{E2bError, Kind},
    rpc::{Answer, MessageOf},
    state::E2b,
    target::Target,
};
use entry::Entry;

pub(super) use home::Homes;
pub(super) use watch::{Watchers, create_watcher, get_watcher_events, remove_watcher, watch_dir};

/// A message that names a path.
#[derive(Debug, Deserialize)]
pub(super) struct PathMessage {
    #[serde(default)]
    path: String,
}

/// `Stat`.
pub(super) async fn stat(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(PathMessage { path }): MessageOf<PathMessage>,
) -> Answer {
    let path = e2b.absolute(&target, &path).await?;
    Ok(Json(json!({ "entry": e2b.entry(&target, &path).await?.told() })))
}

#[derive(Debug, Deserialize)]
pub(super) struct ListMessage {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

/// `ListDir`, in the order of the paths.
pub(super) async fn list_dir(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(ListMessage { path, depth }): MessageOf<ListMessage>,
) -> Answer {
    let path = e2b.absolute(&target, &path).await?;
    let folder = e2b.entry(&target, &path).await?;
    if !folder.is_folder() {
        return Err(E2bError::invalid(format!("path is not a directory: {path}")).into());
    }
    let entries = e2b.entries(&target, &path, depth.max(1)).await?;
    let told: Vec<Value> = entries.iter().map(Entry::told).collect();
    Ok(Json(json!({ "entries": told })))
}

/// `MakeDir`, with the folders that it is in.
pub(super) async fn make_dir(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(PathMessage { path }): MessageOf<PathMessage>,
) -> Answer {
    let path = e2b.absolute(&target, &path).await?;
    match e2b.entry(&target, &path).await {
        Ok(there) if there.is_folder() => {
            let why = format!("directory already exists: {path}");
            return Err(E2bError::new(Kind::AlreadyExists, why).into());
        }
        Ok(_) => {
            let why = format!("path already exists but it is not a directory: {path}");
            return Err(E2bError::invalid(why).into());
        }
        Err(error) if error.kind == Kind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let asked = json!({ "place": target.place("/"), "path": path });
    e2b.call(&target.owner, "fs.create_dir", asked).await?;
    Ok(Json(json!({ "entry": e2b.entry(&target, &path).await?.told() })))
}

#[derive(Debug, Deserialize)]
pub(super) struct MoveMessage {
    source: String,
    destination: String,
}

/// `Move`, over a file that is there.
pub(super) async fn move_entry(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(MoveMessage { source, destination }): MessageOf<MoveMessage>,
) -> Answer {
    let from = e2b.absolute(&target, &source).await?;
    let to = e2b.absolute(&target, &destination).await?;
    let asked = json!({
        "place": target.place("/"), "oldPath": from, "newPath": to, "overwrite": true,
    });
    e2b.call(&target.owner, "file_rename", asked).await?;
    Ok(Json(json!({ "entry": e2b.entry(&target, &to).await?.told() })))
}

/// `Remove`, with everything in it. What is not there is no error.
pub(super) async fn remove(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(PathMessage { path }): MessageOf<PathMessage>,
) -> Answer {
    let path = e2b.absolute(&target, &path).await?;
    let asked = json!({ "place": target.place("/"), "path": path, "recursive": true });
    match e2b.call(&target.owner, "fs.delete", asked).await.map_err(E2bError::from) {
        Err(error) if error.kind != Kind::NotFound => Err(error.into()),
        _ => Ok(Json(json!({}))),
    }
}
