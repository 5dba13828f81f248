//! Messages to the manager of all workspaces, in types that know nothing of that actor.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{Address, Fault, ToolCall, WorkspaceId};
use tokio::sync::oneshot;

use crate::{messages, phase::Phase, pool, records::Planned, workspace};

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

impl workspace::WorkspaceManager for Address<Msg> {
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
