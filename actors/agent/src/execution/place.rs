//! Machine of an execution: the own workspace of its session, made as the manifest asks, and what becomes of it
//! behind the end.
//!
//! It is made by the file tools, as for every session; [`OwnWorkspaces`] tells them how. At the end the workspace
//! has a lifetime, whose end destroys it: no timer of ours, and none that a crash loses. While the execution waits its
//! machine [stands still](super::standstill).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, ExecutionId, SessionId, ToolError, WorkspaceId, codes, lock};
use hivekeep_ports::{
    OwnWorkspace, OwnWorkspaces, Places, SESSION_PLACE, WorkspaceFiles, WorkspaceForks,
    WorkspaceStandstill, own_workspace_name,
};
use hivekeep_runtime::{Daemon, OnBehalfOf, ToolClient, log::LogError, saga::SagaView};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::{
    CLOSING, ExecutionSaga,
    plan::ExecutionPlan,
    records::{KeptWorkspace, KeptWorkspaces},
    repeated_while,
    standstill::{StandstillChange, StandstillState},
    state::{ExecutionState, Record},
    step::ExecutionStep,
};

/// Longest making of a machine, with the download of its image.
pub(super) const MAKING: Duration = Duration::from_secs(300);

/// Machines of all executions.
pub(crate) struct ExecutionMachines {
    pub(crate) tools: ToolClient<ExecutionId>,
    pub(crate) files: Arc<dyn WorkspaceFiles>,
    places: Arc<dyn Places>,
    /// Seconds that a workspace is kept behind its execution's end.
    keep_secs: u64,
    decided: Mutex<BTreeMap<SessionId, OwnWorkspace>>,
}

impl OwnWorkspaces for ExecutionMachines {
    fn of(&self, session: SessionId) -> Option<OwnWorkspace> {
        lock(&self.decided).get(&session).cloned()
    }
}

impl ExecutionMachines {
    pub(crate) fn new(daemon: &Daemon, keep_secs: u64) -> Result<Self, ToolError> {
        Ok(Self {
            tools: ToolClient::new(daemon.tools.clone()),
            files: daemon.ports.need::<dyn WorkspaceFiles>()?,
            places: daemon.ports.need::<dyn Places>()?,
            keep_secs,
            decided: Mutex::default(),
        })
    }

    /// Decides on the own workspace of an execution's session, before anything is called in that.
    pub(super) fn decide(&self, session: SessionId, plan: &ExecutionPlan) {
        if let Some(machine) = &plan.machine {
            lock(&self.decided).insert(session, machine.own_workspace());
        }
    }

    /// Has the machine of an execution running, with its variables and its network. May be done again.
    async fn ready(
        &self,
        id: ExecutionId,
        session: SessionId,
        plan: &ExecutionPlan,
    ) -> Result<WorkspaceId, ToolError> {
        let never = CancellationToken::new();
        let cx =
            CallCx::internal(session, MAKING, never, tracing::info_span!("place", execution = %id));
        let workspace = self.places.workspace(&cx, Some(SESSION_PLACE)).await?.workspace;
        let Some(machine) = &plan.machine else { return Ok(workspace) };
        let caller = OnBehalfOf::call(&cx);
        if !machine.env.is_empty() {
            let vars = json!({ "workspace_id": workspace, "vars": machine.env });
            let _: IgnoredAny = self.tools.call(id, &caller, "set_env", vars).await?;
        }
        if !machine.egress.is_empty() {
            let policy = json!({ "workspace_id": workspace, "egress_allow": machine.egress });
            let _: IgnoredAny = self.tools.call(id, &caller, "network_policy", policy).await?;
        }
        Ok(workspace)
    }

    /// Gives an execution's workspaces their end, and stops them.
    async fn retire(
        &self,
        id: ExecutionId,
        session: SessionId,
        keep_secs: u64,
        kept: &mut Vec<KeptWorkspace>,
    ) -> Result<(), ToolError> {
        #[derive(Deserialize)]
        struct Ends {
            ends_at: Option<DateTime<Utc>>,
        }
        let (caller, own) = (OnBehalfOf::own(session, CLOSING), own_workspace_name(session));
        for row in self.tools.workspaces(id, &caller).await? {
            if !row.owned || !row.name.starts_with(&own) {
                continue;
            }
            let workspace = row.workspace_id;
            let end = json!({
                "workspace_id": workspace, "lifetime_secs": keep_secs, "at_end": "destroy",
            });
            let set = match keep_secs {
                0 => None,
                _ => Some(self.tools.call_idempotent(id, &caller, "workspace_lifetime", end).await),
            };
            match set {
                // A workspace that could not be made has no lifetime.
                Some(Err(error)) if !error.is(codes::WORKSPACE_STATE) => return Err(error),
                None | Some(Err(_)) => {
                    self.tools.remove(id, &caller, &workspace.to_string()).await?;
                }
                Some(Ok(Ends { ends_at })) => {
                    let stop = json!({ "workspace_id": workspace });
                    // A lifetime ends a workspace that cannot be stopped now, too.
                    let stopped: Result<IgnoredAny, _> =
                        self.tools.call(id, &caller, "workspace_stop", stop).await;
                    let stopped = stopped.err().filter(|error| !error.is(codes::WORKSPACE_STATE));
                    let not_stopped = stopped.map(Box::new);
                    kept.push(KeptWorkspace { workspace_id: workspace, ends_at, not_stopped });
                }
            }
        }
        Ok(())
    }
}

impl ExecutionSaga {
    /// Makes the execution's machine. One that was made before a crash is found by its name.
    pub(super) async fn place(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let (session, begun) = (Self::child(&state), &state.begun);
        let made = async {
            let machines = &self.shared.machines;
            if let Some(source) = state.inherited_machine() {
                let forks = self.shared.daemon.ports.need::<dyn WorkspaceForks>()?;
                machines.fork(&forks, &state, source).await?;
            }
            machines.ready(begun.id, session, &begun.plan).await
        };
        match made.await {
            Ok(workspace) => self.handle.record(Record::Placed { workspace, at: Utc::now() }).await,
            Err(mut error) => {
                error.message =
                    format!("the machine of the manifest was not made: {}", error.message);
                let asked = begun.plan.machine.as_ref().map(|machine| &machine.request);
                self.fail(error.detail("asked", json!(asked))).await
            }
        }
    }

    /// Has an execution's workspaces end by themselves.
    pub(super) async fn retire(
        &self,
        state: &ExecutionState,
        session: SessionId,
    ) -> KeptWorkspaces {
        let (machines, plan) = (&self.shared.machines, &state.begun.plan);
        let most = plan.machine.as_ref().and_then(|machine| machine.kept_secs);
        let keep_secs = most.unwrap_or(u64::MAX).min(machines.keep_secs);
        let mut kept = Vec::new();
        let retired = machines.retire(state.begun.id, session, keep_secs, &mut kept).await;
        if retired.is_err() || kept.iter().any(|it| it.not_stopped.is_some()) {
            self.unless_closing().await;
        }
        lock(&machines.decided).remove(&session);
        KeptWorkspaces { kept, error: retired.err().map(Box::new) }
    }
}

impl ExecutionSaga {
    /// Has the machine stand still, and records whether it does.
    pub(super) async fn halt(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let StandstillState::Wanted { saved } = state.still else { return Ok(()) };
        let own = self.shared.machines.own(&state).map(|found| found.id);
        let error = self.of_machine(own, Some(saved)).await;
        let halted = StandstillChange::Halted { workspace: own, error };
        self.handle.record(Record::Standstill { change: halted, at: Utc::now() }).await
    }

    /// Lets the machine go on, and records that.
    pub(super) async fn go_on(&self) -> Result<(), LogError> {
        let own = self.shared.machines.own(&self.handle.state()).map(|found| found.id);
        let error = self.of_machine(own, None).await;
        let change = StandstillChange::WentOn { error };
        self.handle.record(Record::Standstill { change, at: Utc::now() }).await
    }

    /// Asks for a standstill, saved or not, or for its end, again while the workspace is about something else.
    async fn of_machine(
        &self,
        own: Option<WorkspaceId>,
        saved: Option<bool>,
    ) -> Option<Box<ToolError>> {
        let (id, owner) = (own?, Self::child(&self.handle.state()));
        let ask = async || {
            let port = self.shared.daemon.ports.need::<dyn WorkspaceStandstill>()?;
            match saved {
                Some(saved) => port.halt(owner, id, saved).await,
                None => port.go_on(owner, id).await,
            }
        };
        let passes = |error: &ToolError| error.retryable;
        let error = repeated_while(passes, self.handle.cancelled(), ask).await.err()?;
        self.unless_closing().await;
        Some(Box::new(error))
    }

    /// Does the work of a program while its machine runs; at a bound no call of the program is in `calls`.
    pub(super) async fn while_it_runs<T>(
        &self,
        calls: &AsyncMutex<()>,
        work: impl Future<Output = T>,
    ) -> Result<T, LogError> {
        let (mut work, mut news) = (std::pin::pin!(work), self.handle.watch());
        loop {
            let due = |view: &SagaView<Self>| {
                view.state.end.is_none() && view.state.standstill_due().is_some()
            };
            let stands = self.handle.view(|view| view.state.stands_still());
            tokio::select! {
                biased;
                // The handle keeps it open.
                _ = news.wait_for(due) => {}
                done = work.as_mut(), if !stands => return Ok(done),
            }
            let _no_call = calls.lock().await;
            match self.handle.view(|view| view.state.standstill_due()) {
                Some(ExecutionStep::Halt) => self.halt().await?,
                Some(_) => self.go_on().await?,
                None => {}
            }
        }
    }
}
