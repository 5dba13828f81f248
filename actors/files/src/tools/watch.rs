//! Watches of folders of workspaces.

use hivekeep_kernel::{ports::FileChange, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Longest wait for changes, in seconds.
const MAX_WAIT_SECS: u64 = 30;
/// Time of a call without a wait, in seconds.
const CALL_SECS: u64 = 60;

/// Watch a folder of a workspace: fs.changes tells what changes in it from now on. A watch that nobody
/// reads for ten minutes ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsWatch {
    /// Path of a folder from the place's root.
    pub(crate) path: String,
    /// True watches the folders below too, those made later among them.
    #[serde(default)]
    pub(crate) recursive: bool,
    /// Workspace, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A watch that stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsWatching {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Id of the watch.
    pub(crate) watch: String,
}

/// Read the changes of a watch; wait for some if there are none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsChanges {
    /// Id from fs.watch.
    #[schemars(length(min = 1, max = 20))]
    pub(crate) watch: String,
    /// Number behind which to read: the last `next`.
    #[serde(default)]
    pub(crate) after: u64,
    /// Seconds to wait for a change; default 0.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT_SECS))]
    pub(crate) wait_secs: u64,
    /// Place, as in fs.watch.
    pub(crate) place: Option<String>,
}

/// Changes of a watched folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsChanged {
    /// In their order, at most 1000.
    pub(crate) changes: Vec<FileChange>,
    /// Pass as `after` to go on.
    pub(crate) next: u64,
    /// True if some before `next` were dropped, because there were too many: look at the folder.
    pub(crate) lost: bool,
}

/// End a watch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsUnwatch {
    /// Id from fs.watch.
    #[schemars(length(min = 1, max = 20))]
    pub(crate) watch: String,
    /// Place, as in fs.watch.
    pub(crate) place: Option<String>,
}

/// A watch that is no more.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsUnwatched {
    /// False if there was none.
    pub(crate) ended: bool,
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
