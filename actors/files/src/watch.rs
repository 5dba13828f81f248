//! Handlers of watches: a workspace's guest follows its folders, and a read waits there.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallCx, ToolError, WorkspaceId,
    ports::{FileChanges, WatchWish},
};

use crate::{
    file_place::{CommandHost, FilePlace},
    files::{Answer, Files},
    refuse::{no_workspace, refused},
    tools::{FsChanged, FsChanges, FsUnwatch, FsUnwatched, FsWatch, FsWatching},
};

impl Files {
    pub(crate) async fn watch(self: Arc<Self>, cx: CallCx, input: FsWatch) -> Answer<FsWatching> {
        let FsWatch { path, recursive, place } = input;
        let place = self.places.find(&cx, place.as_deref()).await?;
        let (id, user) = workspace(&*place)?;
        let path = place.shown(&path).map_err(refused)?;
        let wish = WatchWish { path: path.clone(), recursive, user };
        let watch = self.places.guests().watch(&cx, id, wish).await?;
        Ok(FsWatching { place: place.name().to_owned(), path, watch: watch.to_string() })
    }

    pub(crate) async fn changes(
        self: Arc<Self>,
        cx: CallCx,
        input: FsChanges,
    ) -> Answer<FsChanged> {
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

    pub(crate) async fn unwatch(
        self: Arc<Self>,
        cx: CallCx,
        input: FsUnwatch,
    ) -> Answer<FsUnwatched> {
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
