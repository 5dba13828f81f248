//! Watches of folders of workspaces: the guest follows its folders, and a read waits there.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, ToolError, WorkspaceId, tools};
use hivekeep_ports::{FileChange, FileChanges, WatchRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files};
use crate::place::{CommandHost, FilePlace, no_workspace, refused};

/// Longest wait for changes, in seconds.
const MAX_WAIT_SECS: u64 = 30;
/// Time of a call without a wait, in seconds.
const CALL_SECS: u64 = 60;

/// Watch a folder of a workspace: fs.changes tells what changes in it from now on. A watch that nobody
/// reads for ten minutes ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsWatch {
    /// Path of a folder from the place's root.
    path: String,
    /// True watches the folders below too, those made later among them.
    #[serde(default)]
    recursive: bool,
    /// Workspace, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    place: Option<String>,
}

/// A watch that stands.
#[derive(Debug, Serialize, JsonSchema)]
struct FsWatching {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Id of the watch.
    watch: String,
}

/// Read the changes of a watch; wait for some if there are none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsChanges {
    /// Id from fs.watch.
    #[schemars(length(min = 1, max = 20))]
    watch: String,
    /// Number behind which to read: the last `next`.
    #[serde(default)]
    after: u64,
    /// Seconds to wait for a change; default 0.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT_SECS))]
    wait_secs: u64,
    /// Place, as in fs.watch.
    place: Option<String>,
}

/// Changes of a watched folder.
#[derive(Debug, Serialize, JsonSchema)]
struct FsChanged {
    /// In their order, at most 1000.
    changes: Vec<FileChange>,
    /// Pass as `after` to go on.
    next: u64,
    /// True if some before `next` were dropped, because there were too many: look at the folder.
    lost: bool,
}

/// End a watch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsUnwatch {
    /// Id from fs.watch.
    #[schemars(length(min = 1, max = 20))]
    watch: String,
    /// Place, as in fs.watch.
    place: Option<String>,
}

/// A watch that is no more.
#[derive(Debug, Serialize, JsonSchema)]
struct FsUnwatched {
    /// False if there was none.
    ended: bool,
}

tools! { pub(crate) FAMILY: "fs" for service Files, singleton files;
    fs_watch: FsWatch => FsWatching = Files::watch {
        name: "fs.watch", title: "Watch a folder of a workspace", rate: RateClass::File,
        timeout_secs: 120,
    };
    fs_changes: FsChanges => FsChanged = Files::changes {
        name: "fs.changes", title: "Read the changes of a watch", effect: Read,
        rate: RateClass::File,
        limit_secs: |input| Some(CALL_SECS + input.get("wait_secs")
            .and_then(serde_json::Value::as_u64).unwrap_or(0)),
    };
    fs_unwatch: FsUnwatch => FsUnwatched = Files::unwatch {
        name: "fs.unwatch", title: "End a watch", effect: Idempotent, rate: RateClass::File,
    };
}

impl Files {
    async fn watch(self: Arc<Self>, cx: CallCx, input: FsWatch) -> Answer<FsWatching> {
        let FsWatch { path, recursive, place } = input;
        let place = self.places.find(&cx, place.as_deref()).await?;
        let (id, user) = workspace(&*place)?;
        let path = place.shown(&path).map_err(refused)?;
        let request = WatchRequest { path: path.clone(), recursive, user };
        let watch = self.places.guests().watch(&cx, id, request).await?;
        Ok(FsWatching { place: place.name().to_owned(), path, watch: watch.to_string() })
    }

    async fn changes(self: Arc<Self>, cx: CallCx, input: FsChanges) -> Answer<FsChanged> {
        let FsChanges { watch, after, wait_secs, place } = input;
        let watch = id_of(&watch)?;
        let place = self.places.find(&cx, place.as_deref()).await?;
        let (id, _) = workspace(&*place)?;
        if wait_secs > 0 {
            // A call that only waits gives its slot back to other calls.
            cx.slot.give_back();
        }
        let wait = Duration::from_secs(wait_secs);
        let FileChanges { changes, next, lost } =
            self.places.guests().changes(&cx, id, watch, after, wait).await?;
        Ok(FsChanged { changes, next, lost })
    }

    async fn unwatch(self: Arc<Self>, cx: CallCx, input: FsUnwatch) -> Answer<FsUnwatched> {
        let watch = id_of(&input.watch)?;
        let place = self.places.find(&cx, input.place.as_deref()).await?;
        let (id, _) = workspace(&*place)?;
        Ok(FsUnwatched { ended: self.places.guests().unwatch(&cx, id, watch).await? })
    }
}

/// Workspace of a place, and its user.
///
/// # Errors
/// `place_no_workspace`.
fn workspace(place: &dyn FilePlace) -> Answer<(WorkspaceId, Option<String>)> {
    match place.command_host() {
        CommandHost::Workspace { id, user, .. } => Ok((id, user)),
        CommandHost::Beside { .. } => Err(no_workspace(place.name(), "only those are watched")),
    }
}

fn id_of(watch: &str) -> Answer<u64> {
    watch.parse().map_err(|_| ToolError::invalid("`watch` is not the id of a watch"))
}
