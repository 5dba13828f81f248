//! Session of a run, and the workspace of its commands.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, codes, fault_point};
use hivekeep_ports::{ALL_TOOLS, ChildSession};
use hivekeep_runtime::{OnBehalfOf, log::LogError};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CLOSING, RunFold, RunPlace, RunRecord, RunSaga, RunWorkspace, action,
    records::{RunBegun, RunText},
};

/// Longest making of a workspace, with the download of its image.
pub(crate) const MAKING: Duration = Duration::from_secs(300);
/// Time for which one that does not answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which a daemon that has just started comes to know its workspaces.
const STARTING: Duration = Duration::from_secs(20);
/// Pause between two looks at it.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

impl RunSaga {
    /// Opens the session that the run's calls are made in, below the one that asked for it. One that was opened before
    /// a crash is found by its name.
    pub(super) async fn open(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let begun = &state.begun;
        if begun.queue.is_some() {
            fault_point!("dag.queue_taken");
        }
        let child = ChildSession {
            parent: begun.session,
            name: session_name(begun, state.attempt),
            agent: None,
            context: None,
            tools: match &begun.text {
                RunText::Dag(text) => action::tools(&text.dag).collect(),
                // Agents of its states have those that they name.
                RunText::Workflow(_) => [ALL_TOOLS.to_owned()].into(),
            },
        };
        let until = Instant::now() + PATIENCE;
        loop {
            match self.shared.children.open(child.clone()).await {
                Ok(session) => {
                    fault_point!("run.opened");
                    let inherits = self.inherits(&state, session).await;
                    let opened = RunRecord::Opened { session, inherits, at: Utc::now() };
                    return self.handle.record(opened).await;
                }
                Err(error) if error.retryable && Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return self.break_off(error).await,
            }
        }
    }

    /// Gives a session the own workspace of the attempt before, if that is still there. May be done again.
    async fn inherits(&self, state: &RunFold, session: SessionId) -> bool {
        let Some(workspace) = &state.inherited else { return false };
        let (id, caller) = (state.begun.id, OnBehalfOf::own(session, CLOSING));
        let named = json!({ "workspace_id": workspace.workspace });
        let endless = json!({ "workspace_id": workspace.workspace, "lifetime_secs": null });
        let tools = &self.shared.tools;
        let taken = async {
            let _: IgnoredAny =
                tools.call_idempotent(id, &caller, "workspace_adopt", named).await?;
            tools.call_idempotent(id, &caller, "workspace_lifetime", endless).await
        };
        let taken: Result<IgnoredAny, ToolError> = taken.await;
        if let Err(error) = &taken {
            tracing::info!(run = %id, %error, "the workspace of the attempt before is not taken over");
        }
        taken.is_ok()
    }

    /// Workspace of the run's commands, which runs then.
    ///
    /// # Errors
    /// Those of making and starting one; of a log that cannot be written.
    pub(super) async fn workspace(
        &self,
        state: &RunFold,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        let made = self.workspace.get_or_try_init(async || {
            let found = self.main_workspace(state, cancel).await?;
            if state.workspace.as_deref() != Some(&found) {
                fault_point!("run.placed");
                let placed = RunRecord::Placed { workspace: found.clone(), at: Utc::now() };
                self.handle.record(placed).await?;
            }
            Ok::<_, ToolError>(found)
        });
        made.await.cloned()
    }

    /// Has the workspace of a place running, again if it was stopped meanwhile.
    pub(crate) async fn ready(
        &self,
        state: &RunFold,
        place: &str,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        let session = match place == state.begun.place.name() {
            true => Self::place_session(state)?,
            false => Self::session(state)?,
        };
        if let Some(workspace) =
            state.inherited.as_ref().filter(|it| place == it.workspace.to_string())
        {
            let (id, caller) = (state.begun.id, OnBehalfOf::own(session, CLOSING));
            let start = json!({ "workspace_id": workspace.workspace });
            let started = self.shared.tools.call(id, &caller, "workspace_start", start).await;
            started.or_else(unless_so)?;
        }
        let (began, until) = (Instant::now(), Instant::now() + PATIENCE);
        // A workspace that was there when the run took it is not known yet, or is gone; a container always was.
        let was_there = state.workspace.is_some()
            || matches!(state.begun.place, RunPlace::Workspace(_))
            || place != state.begun.place.name();
        let is_early = |error: &ToolError| {
            was_there && error.layer == Layer::Resolve && began.elapsed() < STARTING
        };
        loop {
            let span = tracing::info_span!("place", run = %state.begun.id);
            let cx = CallCx::internal(session, MAKING, cancel.child_token(), span);
            match self.shared.places.workspace(&cx, Some(place)).await {
                Ok(found) => {
                    let hivekeep_ports::PlaceWorkspace { workspace, root, user, .. } = found;
                    return Ok(RunWorkspace { workspace, root, user });
                }
                Err(error) if is_early(&error) || error.retryable && Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Session that the place of the run is of. Legal once the run's own is opened.
    pub(crate) fn place_session(state: &RunFold) -> Result<SessionId, ToolError> {
        match state.begun.place {
            RunPlace::Own | RunPlace::Folder(_) | RunPlace::Made(_) => Self::session(state),
            RunPlace::Workspace(_) => Ok(state.begun.session),
        }
    }

    /// Session of the run. Legal once it is opened.
    pub(crate) fn session(state: &RunFold) -> Result<SessionId, ToolError> {
        state.session.ok_or_else(|| ToolError::internal("a run works before its session is open"))
    }
}

/// Name of the session of an attempt; the one of an attempt before is closed.
fn session_name(begun: &RunBegun, attempt: u32) -> String {
    match attempt {
        0 => begun.id.to_string(),
        more => format!("{}-{more}", begun.id),
    }
}

/// Passes over that a workspace is in the state that is wanted, or on its way.
fn unless_so(error: ToolError) -> Result<IgnoredAny, ToolError> {
    match error.is(codes::WORKSPACE_STATE) {
        true => Ok(IgnoredAny),
        false => Err(error),
    }
}
