//! A client of the daemon's own tools: calls on a session's behalf, retried until they are admitted, and a view of
//! workspaces as their tools answer it, in the fields that orchestrators read.
//!
//! Each call has a principal, the session it is made for with its deadline and cancellation, and belongs to an
//! origin: the run of an orchestrator (a team, a swarm) that it is made for.
//! Calls are counted by origin in memory that outlives actors, so the next incarnation of a run can
//! wait for what the one before it began ([`ToolClient::quiet`]) before it looks at what is there.

use std::{hash::Hash, sync::Arc, time::Duration};

use dashmap::DashMap;
use hivekeep_kernel::{
    CallCx, ErrorCode, Progress, Resources, SessionId, ToolError, WorkspaceId, codes,
};
use hivekeep_ports::{InternalCall, Reservation, Tools};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Codes of a call that did not get to its actor, unless its details say that it did something.
const NOT_ADMITTED: [&ErrorCode; 2] = [codes::BUSY, codes::ACTOR_UNAVAILABLE];

/// The id of a run that calls belong to.
pub trait Origin: Copy + Eq + Hash + Send + Sync + 'static {}
impl<T: Copy + Eq + Hash + Send + Sync + 'static> Origin for T {}

/// Calls tools for the runs of one kind. Cheap to clone; clones count together.
pub struct ToolClient<O> {
    tools: Arc<dyn Tools>,
    /// Calls that have not ended; origins without any are not in it.
    running: Arc<DashMap<O, TaskTracker>>,
}

impl<O: Origin> Clone for ToolClient<O> {
    fn clone(&self) -> Self {
        Self { tools: self.tools.clone(), running: self.running.clone() }
    }
}

impl<O: Origin> ToolClient<O> {
    /// A client of these tools.
    pub fn new(tools: Arc<dyn Tools>) -> Self {
        Self { tools, running: Arc::default() }
    }

    /// Calls a tool, again while its target has no room for it: such a call has done nothing. Whoever
    /// stops waiting stops the call, and its work is counted until it has ended.
    ///
    /// # Errors
    /// As the tool; `internal` for an answer that does not have the expected fields.
    pub async fn call<A: Serialize, T: DeserializeOwned>(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        tool: &'static str,
        args: A,
    ) -> Result<T, ToolError> {
        self.call_while(not_admitted, origin, caller, tool, args).await
    }

    /// Like [`Self::call`], for a call that may take its effect twice: it is made again after every
    /// error that is retryable.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_idempotent<A: Serialize, T: DeserializeOwned>(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        tool: &'static str,
        args: A,
    ) -> Result<T, ToolError> {
        let passing = |error: &ToolError| error.retryable || not_admitted(error);
        self.call_while(passing, origin, caller, tool, args).await
    }

    async fn call_while<A: Serialize, T: DeserializeOwned>(
        &self,
        passing: impl Fn(&ToolError) -> bool,
        origin: O,
        caller: &OnBehalfOf,
        tool: &'static str,
        args: A,
    ) -> Result<T, ToolError> {
        let wrong = |what: &str, error| ToolError::internal(format!("{what} of `{tool}`: {error}"));
        let args = serde_json::to_value(args).map_err(|error| wrong("the input", error))?;
        loop {
            match self.once(origin, caller, tool, args.clone()).await {
                Ok(answer) => {
                    return serde_json::from_value(answer)
                        .map_err(|error| wrong("the answer", error));
                }
                Err(error) => {
                    let again = passing(&error);
                    caller.wait_or(error, again).await?;
                }
            }
        }
    }

    async fn once(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let cancel = caller.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let call = InternalCall {
            session: caller.session,
            deadline: caller.deadline,
            cancel,
            progress: Progress::default(),
            reserved: caller.reserved.clone(),
        };
        let (tools, running) = (self.tools.clone(), self.running.clone());
        // Counted before the entry is let go: nobody takes it for one without calls.
        let work = running
            .entry(origin)
            .or_default()
            .spawn(async move { tools.call(call, tool, args).await });
        let work = tokio::spawn(async move {
            let outcome = work.await;
            running.remove_if(&origin, |_, tracker| tracker.is_empty());
            outcome
        });
        let broken = |error| ToolError::internal(format!("`{tool}` for another actor: {error}"));
        work.await.flatten().unwrap_or_else(|error| Err(broken(error)))
    }

    /// Waits until no call of an origin runs, of incarnations before this one either.
    pub async fn quiet(&self, origin: O) {
        let tracker = self.running.get(&origin).map(|tracker| tracker.clone());
        if let Some(tracker) = tracker {
            tracker.close();
            tracker.wait().await;
        }
    }

    /// Number of origins with calls that run.
    pub fn origins(&self) -> usize {
        self.running.len()
    }
}

fn not_admitted(error: &ToolError) -> bool {
    error.is_any(&NOT_ADMITTED)
        && error.details.get("outcome").is_none_or(|it| it == "nothing_done")
}

/// Pause between two attempts, when the error does not say how long to wait; the longest is four times that.
const PAUSE: Duration = Duration::from_millis(250);

/// The session that something is done for, and until when.
#[derive(Debug, Clone)]
pub struct OnBehalfOf {
    /// The session, which may have ended: what it left half made can still be undone.
    pub session: SessionId,
    /// Time after which no attempt begins.
    pub deadline: Instant,
    /// Stops calls that run, and further attempts.
    pub cancel: CancellationToken,
    /// Room that was reserved for what is made.
    pub reserved: Option<Reservation>,
}

impl OnBehalfOf {
    /// For the session of a call, as part of it.
    pub fn call(cx: &CallCx) -> Self {
        Self {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            reserved: cx.reserved.clone(),
        }
    }

    /// For a session, whatever became of the call that made it necessary.
    pub fn own(session: SessionId, patience: Duration) -> Self {
        let deadline = Instant::now() + patience;
        Self { session, deadline, cancel: CancellationToken::new(), reserved: None }
    }

    /// Waits before another attempt.
    ///
    /// # Errors
    /// The error itself, when it is not a passing one, or no time is left, or it was cancelled.
    pub async fn wait_or(&self, error: ToolError, passing: bool) -> Result<(), ToolError> {
        let pause = error.retry_after_ms.map_or(PAUSE, Duration::from_millis).min(4 * PAUSE);
        if !passing || self.cancel.is_cancelled() || Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        tokio::select! {
            () = self.cancel.cancelled() => Err(error),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

/// A workspace in the list.
#[derive(Debug, Deserialize)]
pub struct ListedWorkspace {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its unique name.
    pub name: String,
    /// Whether it is the caller's.
    pub owned: bool,
}

/// The state of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedWorkspace {
    /// `running`, `stopped` and so on.
    pub state: String,
    /// Why it failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// User that its commands run as where a call names none.
    #[serde(default)]
    pub user: Option<String>,
    /// Its address in the network.
    #[serde(default)]
    pub ip: Option<String>,
    /// Machine of a workspace that runs.
    #[serde(default)]
    pub machine: Option<InspectedMachine>,
    /// Its snapshots.
    #[serde(default)]
    pub snapshots: Vec<InspectedSnapshot>,
}

/// The machine of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedMachine {
    /// `up` when its guest answers.
    pub link: String,
}

/// A snapshot of a workspace.
#[derive(Debug, Deserialize)]
pub struct InspectedSnapshot {
    /// Its name, unique in the workspace.
    pub name: String,
}

impl<O: Origin> ToolClient<O> {
    /// The workspaces that there are, as the session sees them.
    ///
    /// # Errors
    /// As `workspace_list`.
    pub async fn workspaces(
        &self,
        origin: O,
        caller: &OnBehalfOf,
    ) -> Result<Vec<ListedWorkspace>, ToolError> {
        #[derive(Deserialize)]
        struct Listed {
            workspaces: Vec<ListedWorkspace>,
        }
        let listed: Listed = self.call(origin, caller, "workspace_list", json!({})).await?;
        Ok(listed.workspaces)
    }

    /// State of a workspace now.
    ///
    /// # Errors
    /// As `workspace_info`.
    pub async fn look(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
    ) -> Result<InspectedWorkspace, ToolError> {
        let args = json!({ "workspace_id": id_or_name });
        self.call(origin, caller, "workspace_info", args).await
    }

    /// Memory and disk of a workspace, which a fork of it takes of its session's quota, too.
    ///
    /// # Errors
    /// As `workspace_info`.
    pub async fn size(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
    ) -> Result<Resources, ToolError> {
        #[derive(Deserialize)]
        struct Sized {
            resources: Size,
        }
        #[derive(Deserialize)]
        struct Size {
            memory_mb: u64,
            disk_gb: u64,
        }
        let args = json!({ "workspace_id": id_or_name });
        let Sized { resources } = self.call(origin, caller, "workspace_info", args).await?;
        Ok(Resources::workspace(resources.memory_mb, resources.disk_gb))
    }

    /// Removes a workspace; one that is not there is no error. One that is being made or removed
    /// is waited for. While the workspaces are being taken up at a start none is found: that one is
    /// not there is believed only of a list, which is answered after that.
    ///
    /// # Errors
    /// As `workspace_destroy`, after the last attempt.
    pub async fn remove(
        &self,
        origin: O,
        caller: &OnBehalfOf,
        id_or_name: &str,
    ) -> Result<(), ToolError> {
        loop {
            let args = json!({ "workspace_id": id_or_name });
            let removed: Result<IgnoredAny, _> =
                self.call_idempotent(origin, caller, "workspace_destroy", args).await;
            let (error, passing) = match removed {
                Ok(_) => return Ok(()),
                Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => {
                    let is_it = |row: &ListedWorkspace| {
                        row.name == id_or_name || row.workspace_id.to_string() == id_or_name
                    };
                    if !self.workspaces(origin, caller).await?.iter().any(is_it) {
                        return Ok(());
                    }
                    (error, true)
                }
                Err(error) => {
                    let changing = error.is_any(&[codes::WORKSPACE_BUSY, codes::WORKSPACE_STATE]);
                    (error, changing)
                }
            };
            caller.wait_or(error, passing).await?;
        }
    }
}

#[cfg(test)]
mod tests;
