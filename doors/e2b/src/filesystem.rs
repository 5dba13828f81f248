//! Files of a sandbox: `filesystem.Filesystem` of the published data plane, by the tools of files. Paths are absolute,
//! or below the home of the user.

pub(super) mod entry;
mod watch;

use std::sync::Arc;

use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use moka::sync::Cache;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use watch::{Watchers, create_watcher, get_watcher_events, remove_watcher, watch_dir};

use super::{
    error::{E2bError, Kind},
    rpc::{Answer, MessageOf},
    state::E2b,
    target::Target,
};
use entry::Entry;

/// A message that names a path.
#[derive(Debug, Deserialize)]
pub(super) struct PathMessage {
    #[serde(default)]
    path: String,
}

/// `Stat`: the entry of a path, with the kind of what a link leads to.
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

/// Homes that are remembered.
const MOST_HOMES: u64 = 4_096;
/// Bytes of `/etc/passwd` that are looked at.
const PASSWD_BYTES: u64 = 256 * 1024;

/// Homes by sandbox and user.
pub(super) struct Homes(Cache<(String, String), String>);

impl Default for Homes {
    fn default() -> Self {
        Self(Cache::new(MOST_HOMES))
    }
}

impl Homes {
    fn known(&self, target: &Target) -> Option<String> {
        self.0.get(&(target.id.clone(), target.user.clone()))
    }

    fn remember(&self, target: &Target, home: String) {
        self.0.insert((target.id.clone(), target.user.clone()), home);
    }
}

/// The home of a user by a `passwd` file.
fn home(passwd: &str, user: &str) -> Option<String> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut rows = fields.filter(|fields| fields.len() == 7 && fields[0] == user);
    rows.next().map(|fields| fields[5].to_owned()).filter(|home| home.starts_with('/'))
}

/// A path without `.`, `..` and empty parts. It begins with a slash.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A link's target from where the link is.
fn beside(path: &str, target: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match target.starts_with('/') {
        true => plain(target),
        false => plain(&format!("{folder}/{target}")),
    }
}

#[derive(Debug, Deserialize)]
struct Read {
    content_base64: String,
}

impl E2b {
    /// The absolute path that a client means.
    ///
    /// # Errors
    /// For a user without a home, and those of reading who has which.
    pub(super) async fn absolute(&self, target: &Target, path: &str) -> Result<String, E2bError> {
        let below = match path.strip_prefix("~/") {
            _ if path.starts_with('/') => return Ok(plain(path)),
            Some(below) => below,
            None if path == "~" => "",
            None => path,
        };
        let home = match self.homes.known(target) {
            Some(home) => home,
            None => self.home(target).await?,
        };
        Ok(plain(&format!("{home}/{below}")))
    }

    async fn home(&self, target: &Target) -> Result<String, E2bError> {
        let asked = json!({
            "place": target.clone().with_user("root".to_owned()).place("/"),
            "path": "/etc/passwd", "max_bytes": PASSWD_BYTES,
        });
        let Read { content_base64 } = self.ask(&target.owner, "fs.get", asked).await?;
        let bytes = STANDARD.decode(content_base64).unwrap_or_default();
        let none = || {
            let why = format!("the sandbox has no user `{}` with a home", target.user);
            E2bError::new(Kind::Unauthenticated, why)
        };
        let home = home(&String::from_utf8_lossy(&bytes), &target.user).ok_or_else(none)?;
        self.homes.remember(target, home.clone());
        Ok(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (path, made) in [
            ("/", "/"),
            ("/a//b/./c", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("/a/b/", "/a/b"),
            ("", "/"),
        ] {
            assert_eq!(plain(path), made, "{path}");
        }
        assert_eq!(beside("/a/link", "file"), "/a/file");
        assert_eq!(beside("/a/link", "../x"), "/x");
        assert_eq!(beside("/a/link", "/x"), "/x");
        assert_eq!(beside("/link", "x"), "/x");
    }

    #[test]
    fn a_home_is_the_users_own() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1:1::/h/ann:/bin/sh\nbob:x:2:2::x:\n";
        assert_eq!(home(passwd, "ann").as_deref(), Some("/h/ann"));
        assert_eq!(home(passwd, "root").as_deref(), Some("/root"));
        assert_eq!(home(passwd, "bob"), None);
        assert_eq!(home(passwd, "nobody"), None);
    }
}
