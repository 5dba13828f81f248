//! State of the manager of all workspaces, and its messages.

use std::{sync::Arc, time::Duration};

use dashmap::DashSet;
use futures::future::{BoxFuture, FutureExt};
use hivekeep_git::merge::Merges;
use hivekeep_kernel::{
    Address, CallCx, Children, Context, Fault, Layer, ToolCall, ToolError, WorkspaceId,
};
use hivekeep_runtime::collection::{Collection, CollectionMember};
use tokio::sync::oneshot;

use crate::{
    codes,
    directory::DirectoryEntry,
    messages,
    name::WorkspaceName,
    phase::Phase,
    pool,
    records::Planned,
    shared::Shared,
    state::{Workspace, WorkspaceManager},
};

/// Arguments of one incarnation of the manager.
pub type Args = Arc<Shared>;

/// Manager of all workspaces.
pub struct Workspaces {
    pub(crate) me: Context<Msg>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workspaces: Collection<WorkspaceMember>,
    /// Child actors: the pool.
    pub(crate) children: Children,
    pub(crate) preparing: Preparing,
    pub(crate) merges: Merges,
    pub(crate) pool: Address<pool::Msg>,
}

impl Workspaces {
    /// A workspace of the caller's, by id or name.
    ///
    /// # Errors
    /// `workspace_not_found`, `not_owner`.
    pub(crate) fn of_caller(&self, cx: &CallCx, named: &str) -> Result<DirectoryEntry, ToolError> {
        let card = self.shared.directory.card(named)?;
        if card.owner == Some(cx.session) {
            return Ok(card);
        }
        Err(ToolError::not_owner())
    }
}

/// A workspace that has its actor. Its name and slot are in the shared directory: calls claim them
/// there before the plan is written, without asking the manager.
pub(crate) struct WorkspaceMember;

impl CollectionMember for WorkspaceMember {
    type Id = WorkspaceId;
    type Actor = Workspace;
    const KIND: &'static str = "workspace";
}

/// Messages to the manager.
pub enum Msg {
    /// A routed call.
    Tool(Box<ToolCall>),
    /// A planned workspace is durable: give it an actor.
    Spawn(Box<Planned>, oneshot::Sender<Result<Address<messages::Msg>, Fault>>),
    /// A workspace has removed itself.
    Gone {
        /// The workspace.
        id: WorkspaceId,
        /// Answered when the workspace's name is free again.
        done: oneshot::Sender<()>,
    },
    /// A message for the pool.
    Pool(pool::Msg),
    /// Stop every machine, then answer.
    StopAll(oneshot::Sender<()>),
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self::Tool(Box::new(call))
    }
}

/// Time for the manager to take note of a workspace's end.
const NOTED: Duration = Duration::from_secs(5);

impl WorkspaceManager for Address<Msg> {
    fn gone(&self, id: WorkspaceId) -> BoxFuture<'static, ()> {
        let manager = self.clone();
        async move {
            // A manager that is gone finds nothing of the workspace when it comes back.
            let _noted = manager.ask(NOTED, |done| Msg::Gone { id, done }).await;
        }
        .boxed()
    }

    fn phase(&self, id: WorkspaceId, phase: Phase) {
        // A manager that is gone starts the pool anew, which then reads the phases itself.
        let _gone = self.send(Msg::Pool(pool::Msg::Phase { id, phase }));
    }
}

/// Names that are being prepared now.
#[derive(Clone, Default)]
pub(crate) struct Preparing(Arc<DashSet<WorkspaceName>>);

impl Preparing {
    /// Takes a name until what this returns is dropped.
    ///
    /// # Errors
    /// `prepare_in_progress`.
    pub(crate) fn enter(&self, name: &WorkspaceName) -> Result<Entered, ToolError> {
        if self.0.insert(name.clone()) {
            return Ok(Entered { all: self.clone(), name: name.clone() });
        }
        let message = format!("`{name}` is being prepared by another call");
        Err(ToolError::new(Layer::Actor, codes::PREPARE_IN_PROGRESS, message)
            .next("repeat the call when that one has ended: the same recipe is answered at once")
            .retry_after(Duration::from_secs(5)))
    }
}

/// Leaves when dropped.
pub(crate) struct Entered {
    all: Preparing,
    name: WorkspaceName,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.0.remove(&self.name);
    }
}
