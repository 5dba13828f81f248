//! Listing of the guest's folders, and access to its link.

use hivekeep_kernel::{CallCx, Owned as _, Reply, ToolError};
use hivekeep_link::{Link, link_error};
use hivekeep_protocol::EntryKind;
use tokio::sync::oneshot;

use super::Workspace;
use crate::{
    api::files::{FileList, FileListed, FileRow},
    link_state,
};

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
