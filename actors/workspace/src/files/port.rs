//! Files of the guests for other families: the port through which the file engine's operations go.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, User, WorkspaceId};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_ports::{
    FileChange, FileChangeKind, FileChanges, FoundWorkspace, GuestOperation, WatchRequest,
    WorkspaceFiles, WorkspaceReadiness,
};
use hivekeep_protocol::{
    ChangeKind, FindUser, RunFileOperation, RunFileOperationIn, WatchChange, WatchChanges,
    WatchEnd, WatchRead, WatchStart,
    limits::{MAX_CHANGES, MAX_PATH_BYTES},
};
use tokio::sync::oneshot;

use crate::{
    codes, commands::user::other_than_root, link_state::ask_after_a_wait, messages::GuestMsg,
    phase::Phase, shared::Shared,
};

/// Folder of a guest that relative paths begin at.
const HOME: &str = "/workspace";

/// Reaches the files of every workspace. Cheap to clone.
#[derive(Clone)]
pub struct WorkspaceFilesHandle(Arc<Shared>);

impl WorkspaceFilesHandle {
    /// A handle for the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }
}

impl WorkspaceFilesHandle {
    /// The link to the guest, for the session that owns the workspace.
    async fn enter(&self, cx: &CallCx, id: WorkspaceId) -> Result<Link, ToolError> {
        let address = self.0.directory.card(&id.to_string())?.address;
        let (reply, link) = oneshot::channel();
        // The actor checks the owner, and waits for a link that is being made.
        address.send(GuestMsg::Enter(Box::new(cx.clone()), reply).into())?;
        let gone = |_| ToolError::internal("the workspace's actor ended over the call");
        cx.guard(async { link.await.map_err(gone)? }).await
    }

    /// The user that is asked for, or else the user that commands run as; `None` for root.
    fn other_than_root(
        &self,
        id: WorkspaceId,
        asked: Option<String>,
    ) -> Result<Option<String>, ToolError> {
        match self.0.logs.state(id) {
            Some(ledger) => other_than_root(&ledger, asked),
            None => Ok(asked),
        }
    }
}

fn terms(cx: &CallCx) -> CallTerms {
    CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() }
}

#[async_trait]
impl WorkspaceFiles for WorkspaceFilesHandle {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let card = self.0.directory.card(id_or_name).ok()?;
        let readiness = match card.phase {
            Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Destroying => {
                WorkspaceReadiness::Changing
            }
            Phase::Stopped | Phase::Crashed => WorkspaceReadiness::Off,
            // A parked workspace wakes over the operation.
            Phase::Parked
            | Phase::Running
            | Phase::Paused
            | Phase::HostDiskFull
            | Phase::Failed => WorkspaceReadiness::Ready,
        };
        Some(FoundWorkspace {
            id: card.id,
            name: card.name.to_string(),
            owner: card.owner,
            readiness,
        })
    }

    fn of_user(&self, user: User) -> Vec<WorkspaceId> {
        // Records of earlier versions name no user.
        let last = |owner: Option<SessionId>| self.0.daemon.sessions.last_user(owner?);
        let all = self.0.directory.owners().into_iter();
        let own =
            all.filter(|(_, recorded, owner)| recorded.or_else(|| last(*owner)) == Some(user));
        own.map(|(id, ..)| id).collect()
    }

    fn has_label(&self, id: WorkspaceId, name: &str, value: &str) -> bool {
        let card = self.0.directory.any(id);
        card.is_some_and(|card| card.labels.get(name).is_some_and(|it| it == value))
    }

    async fn run(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        operation: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        let (link, terms) = (self.enter(cx, id).await?, terms(cx));
        let GuestOperation { encoded, walks, max_bytes, user, folder } = operation;
        let user = self.other_than_root(id, user)?;
        let operation = RunFileOperation { operation_bytes: encoded.len() as u64, walks };
        let outcome = match (user, folder) {
            // Request that guests of older daemons know too.
            (None, None) => link.run_file_operation(operation, encoded, max_bytes, terms).await,
            (user, folder) => {
                let folder = folder.unwrap_or_else(|| HOME.to_owned());
                let request = RunFileOperationIn { operation, user, folder };
                link.run_file_operation(request, encoded, max_bytes, terms).await
            }
        };
        outcome.map_err(link_error)
    }

    async fn home(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        user: Option<&str>,
    ) -> Result<String, ToolError> {
        let link = self.enter(cx, id).await?;
        let user = self.other_than_root(id, user.map(str::to_owned))?;
        let user = user.unwrap_or_else(|| "root".to_owned());
        let found = link.ask(FindUser { user }, terms(cx)).await.map_err(link_error)?;
        Ok(found.home)
    }

    async fn watch(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        wanted: WatchRequest,
    ) -> Result<u64, ToolError> {
        let link = self.enter(cx, id).await?;
        let WatchRequest { path, recursive, user } = wanted;
        let user = self.other_than_root(id, user)?;
        let start = WatchStart { path, recursive, user };
        let started = link.ask(start, terms(cx)).await.map_err(link_error)?;
        Ok(started.watch)
    }

    async fn changes(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        watch: u64,
        after: u64,
        wait: Duration,
    ) -> Result<FileChanges, ToolError> {
        let link = self.enter(cx, id).await?;
        let read = |wait_ms| WatchRead { watch, after, wait_ms };
        let told = ask_after_a_wait(cx, &link, wait, read, || read(0)).await.map_err(link_error)?;
        if !is_in_order(&told, after) {
            let message = "the guest's changes of a watch are in no order";
            return Err(ToolError::new(Layer::Guest, codes::GUEST_MISBEHAVES, message));
        }
        let WatchChanges { changes, next, lost } = told;
        let change = |change: WatchChange| FileChange {
            seq: change.seq,
            kind: kind(change.kind),
            path: change.path.chars().take(MAX_PATH_BYTES).collect(),
        };
        Ok(FileChanges { changes: changes.into_iter().map(change).collect(), next, lost })
    }

    async fn unwatch(&self, cx: &CallCx, id: WorkspaceId, watch: u64) -> Result<bool, ToolError> {
        let link = self.enter(cx, id).await?;
        let ended = link.ask(WatchEnd { watch }, terms(cx)).await.map_err(link_error)?;
        Ok(ended.existed)
    }
}

/// Whether a guest's changes are in order: numbers ascend after `after`, and `next` is not before the
/// last.
fn is_in_order(told: &WatchChanges, after: u64) -> bool {
    let numbers = told.changes.iter().map(|change| change.seq);
    let ascending = numbers.clone().zip(numbers.clone().skip(1)).all(|(one, next)| one < next);
    let (first, last) = (numbers.clone().next(), numbers.clone().next_back());
    told.changes.len() <= MAX_CHANGES
        && ascending
        && first.is_none_or(|first| first > after)
        && last.is_none_or(|last| last <= told.next)
}

fn kind(kind: ChangeKind) -> FileChangeKind {
    match kind {
        ChangeKind::Create => FileChangeKind::Create,
        ChangeKind::Write => FileChangeKind::Write,
        ChangeKind::Remove => FileChangeKind::Remove,
        ChangeKind::Rename => FileChangeKind::Rename,
        ChangeKind::Chmod => FileChangeKind::Chmod,
    }
}
