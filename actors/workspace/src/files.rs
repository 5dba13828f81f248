//! Listing of the guest's folders, and access to its link.

pub(crate) mod port;
pub(crate) mod transfer;

use hivekeep_kernel::{CallCx, Owned as _, Reply, ToolError, tools};
use hivekeep_link::{Link, link_error};
use hivekeep_protocol::EntryKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{link_state, state::Workspace};

tools! { pub FAMILY: "file operations" for Workspace, addressed workspace by workspace_id;
    file_list: FileList => FileListed = file_list {
        title: "List a directory", effect: Read, rate: RateClass::File,
    };
    file_transfer: FileTransfer => FileTransferred = transfer::file_transfer {
        title: "Transfer a file", risk: Risk::Medium, open_world: true, timeout_secs: 3600,
    };
}

/// List a directory of a running workspace, sorted by name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Absolute path of a directory in the workspace.
    pub path: String,
    /// Continue after this name: the `next` of the page before.
    pub after: Option<String>,
    /// Most entries, 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    #[serde(default = "default_entries")]
    pub limit: u32,
}

fn default_entries() -> u32 {
    1000
}

/// A page of a directory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileListed {
    /// Entries, sorted by name.
    pub entries: Vec<FileRow>,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Entry of a directory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileRow {
    /// Name.
    pub name: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub kind: String,
    /// Size in bytes.
    pub size: u64,
    /// Permissions of owner, group and others, as `rwxr-xr-x`.
    pub permissions: String,
    /// Time of the last change in Unix seconds.
    pub modified: i64,
}

/// Move a file of any size between the host's transfer directory and a running
/// workspace. The target appears whole or not at all.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileTransfer {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// `upload` goes into the workspace, `download` comes out of it.
    pub direction: Direction,
    /// Path in the host's transfer directory, relative to it or absolute.
    pub host_path: String,
    /// Absolute path in the workspace.
    pub guest_path: String,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Host to workspace.
    Upload,
    /// Workspace to host.
    Download,
}

/// A moved file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileTransferred {
    /// Which way.
    pub direction: Direction,
    /// On the host.
    pub host_path: String,
    /// In the workspace.
    pub guest_path: String,
    /// Bytes moved.
    pub bytes: u64,
}

/// [`Workspace::guest`] for callers outside of this actor.
pub(super) fn enter(
    state: &Workspace,
    cx: &CallCx,
    reply: oneshot::Sender<Result<Link, ToolError>>,
) {
    match state.authorize(cx).and_then(|()| state.guest(cx)) {
        Ok(link) => {
            let _detached = state.ops.spawn(async move { drop(reply.send(link.await)) });
        }
        Err(error) => drop(reply.send(Err(error))),
    }
}

/// `file_list`.
///
/// # Errors
/// When the workspace does not run or the page is too long.
pub(crate) fn file_list(
    state: &mut Workspace,
    cx: &CallCx,
    input: FileList,
) -> Result<Reply<FileListed>, ToolError> {
    let (link, cx) = (state.guest(cx)?, cx.clone());
    Ok(Reply::later(async move {
        let request = hivekeep_protocol::ListFolder {
            path: input.path,
            after: input.after,
            limit: input.limit,
        };
        let listed = link.await?.ask(request, link_state::wait(&cx)).await.map_err(link_error)?;
        let entries: Vec<_> = listed
            .entries
            .into_iter()
            .take(input.limit as usize)
            .map(|entry| FileRow {
                name: entry.name,
                kind: kind(entry.kind).to_owned(),
                size: entry.size_bytes,
                permissions: permissions(entry.mode),
                modified: entry.modified_unix_secs,
            })
            .collect();
        let next = entries.last().filter(|_| listed.more).map(|row| row.name.clone());
        Ok(FileListed { entries, next })
    }))
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::Symlink => "symlink",
        EntryKind::Other => "other",
    }
}

fn permissions(mode: u32) -> String {
    (0..9)
        .rev()
        .map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_bits_read_as_usual() {
        assert_eq!(permissions(0o100_755), "rwxr-xr-x");
        assert_eq!(permissions(0o640), "rw-r-----");
    }
}
