//! A client of one machine, which is asked again while it is down.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hivekeep_kernel::{Layer, SessionId, ToolError, WorkspaceId};
use hivekeep_runtime::OnBehalfOf;
use serde::de::IgnoredAny;
use serde_json::json;

use super::SwarmSaga;
use crate::codes;

/// Time limit of looking at a machine, or starting it again.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two looks at something that changes by itself.
const PAUSE: Duration = Duration::from_millis(250);

/// A workspace of the swarm's session, as one task or the merge works with it.
pub(super) struct Fork<'r> {
    run: &'r SwarmSaga,
    owner: SessionId,
    pub(super) worker: WorkspaceId,
    /// True after the fork was started again. A fork that goes down a second time stays down.
    revived: AtomicBool,
}

impl<'r> Fork<'r> {
    pub(super) fn of(run: &'r SwarmSaga, owner: SessionId, worker: WorkspaceId) -> Self {
        Self { run, owner, worker, revived: AtomicBool::new(false) }
    }

    /// Asks until it answers. A machine that went down is started again, once: only its guest knows
    /// what became of its task. One question at a time.
    ///
    /// # Errors
    /// What was answered last, when asking again makes no sense.
    pub(super) async fn reach<T, F: Future<Output = Result<T, ToolError>>>(
        &self,
        caller: &OnBehalfOf,
        ask: impl Fn() -> F,
    ) -> Result<T, ToolError> {
        loop {
            let error = match ask().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let passing = if error.is(codes::WORKSPACE_STATE) {
                self.revive().await?
            } else if error.is(codes::WORKSPACE_NOT_FOUND) {
                // Only the list of workspaces proves that a workspace is not there.
                let rows = self.run.shared.tools.workspaces(self.run.id, caller).await?;
                rows.iter().any(|row| row.workspace_id == self.worker)
            } else {
                let soon = [codes::GUEST_UNREACHABLE, codes::ACTOR_UNAVAILABLE, codes::BUSY];
                error.retryable || error.is_any(&soon)
            };
            caller.wait_or(error, passing).await?;
        }
    }

    /// Starts the fork's machine if it does not run.
    ///
    /// # Errors
    /// As [`Fork::reach`]; `workspace_state` when it does not run and cannot be started.
    pub(super) async fn raise(&self, caller: &OnBehalfOf) -> Result<(), ToolError> {
        let look = || async {
            match self.state().await?.as_str() {
                // A parked machine wakes when it is asked something.
                "running" | "parked" => Ok(()),
                state => {
                    let message = format!("the workspace is {state}");
                    Err(ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, message))
                }
            }
        };
        self.reach(caller, look).await
    }

    /// True when no machine runs, so that nothing runs in the fork.
    pub(super) async fn is_down(&self) -> bool {
        self.state().await.is_ok_and(|state| matches!(state.as_str(), "stopped" | "crashed"))
    }

    async fn state(&self) -> Result<String, ToolError> {
        let (caller, key) = (OnBehalfOf::own(self.owner, PATIENCE), self.worker.to_string());
        Ok(self.run.shared.tools.look(self.run.id, &caller, &key).await?.state)
    }

    /// Starts a machine that is down, once; true if it may answer soon.
    async fn revive(&self) -> Result<bool, ToolError> {
        let state = match self.state().await {
            Ok(state) => state,
            Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => return Ok(true),
            Err(error) => return Err(error),
        };
        let down = matches!(state.as_str(), "stopped" | "crashed");
        if !down || self.revived.load(Ordering::Relaxed) {
            tokio::time::sleep(PAUSE).await;
            return Ok(matches!(
                state.as_str(),
                "running" | "parked" | "creating" | "starting" | "stopping"
            ));
        }
        let worker = self.worker;
        tracing::info!(%worker, %state, "the machine of a swarm is started again");
        let caller = OnBehalfOf::own(self.owner, PATIENCE);
        let args = json!({ "workspace_id": worker });
        let asked = self.run.shared.tools.call(self.run.id, &caller, "workspace_start", args);
        match asked.await.map(|_: IgnoredAny| true) {
            // Somebody else starts or stops it just now.
            Err(error) if error.retryable || error.is(codes::WORKSPACE_STATE) => {
                tokio::time::sleep(PAUSE).await;
                Ok(true)
            }
            outcome => {
                self.revived.store(true, Ordering::Relaxed);
                outcome
            }
        }
    }
}
