//! A run of a DAG: a plan that is gone through, one durable record at a time.
//!
//! ```text
//! open a session ─▶ [conditions] ─▶ nodes, as their order says ─▶ handlers ─▶ over ─▶ close the session
//! ```
//! [`RunFold`] is moved by records alone, and says what is due. A try of a node is recorded before anything is done for
//! it, and its command is a task of the guest under a name of its own: after a crash the task is found by that name,
//! running or over, and is not run again.

mod action;
mod agent_tools;
mod agents;
mod answers;
mod begin;
mod chat;
mod checkout;
mod children;
mod clear;
mod command;
mod conditions;
mod contained;
mod container;
mod decide;
mod decisions;
mod delivery;
mod delivery_record;
mod desk;
mod desk_actor;
mod events;
mod expand;
mod failure;
mod files;
mod fork;
mod harness;
mod helper;
mod instant;
mod kept_state;
mod node_try;
mod obeyed;
mod outputs;
mod people;
mod place;
mod question;
mod records;
mod requests;
mod scope;
mod script;
mod secret_values;
mod state;
mod waits;
mod work;
mod worktree;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{Layer, RunId, ToolError, WorkspaceId, fault_point};
use hivekeep_plan::{
    plan::NodeRole,
    progress::{DueStep, NodeKey, ProgressRecord},
};
use hivekeep_ports::{ChildSessions, Places, StandingQuestions, TaskOutputs, Tasks};
use hivekeep_runtime::{
    Daemon, ToolClient,
    log::{Decision, LogError},
    runs::WeakRuns,
    saga::{Saga, SagaHandle},
};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{Options, jq::JqProcesses, secrets::SecretStore};
pub use begin::RunRequest;
pub(crate) use children::DAEMON;
pub(crate) use children::MAX_DEPTH;
pub(crate) use command::{CommandRequest, LONGEST_SECS, RanTask};
pub(crate) use contained::ContainerPlace;
pub(crate) use container::life_secs;
pub(crate) use decisions::{DecisionChoice, GoalStatus};
use desk::QuestionDesk;
pub(crate) use desk_actor::DeskActor;
pub(crate) use expand::run_outputs;
pub(crate) use failure::failed;
pub(crate) use fork::look_into;
use kept_state::KeptStates;
pub(crate) use node_try::try_name;
pub(crate) use obeyed::steps;
pub use people::{AnswerEffect, StepAnswer};
pub(crate) use people::{answered, node_named};
pub(crate) use place::{MAKING, PATIENCE, PAUSE};
pub(crate) use records::{
    NodeLeft, RunBegun, RunChild, RunRecord, RunResolved, RunText, RunWorkspace,
};
pub use records::{RunPlace, RunTrigger};
#[cfg(test)]
pub(crate) use script::GUEST;
pub(crate) use script::{NOT_STARTED, as_user, is_shell, quoted};
pub use state::HELD;
pub(crate) use state::{RunFold, RunStage, RunStep, RunWork};

/// Nodes of one run that work at a time.
const NODES_AT_ONCE: usize = 100;
/// Time limit of the end of a session.
const CLOSING: Duration = Duration::from_secs(60);

/// Ports that all runs share.
pub(crate) struct RunShared {
    pub(crate) daemon: Daemon,
    pub(crate) children: Arc<dyn ChildSessions>,
    pub(crate) places: Arc<dyn Places>,
    pub(crate) tasks: Arc<dyn Tasks>,
    pub(crate) outputs: Arc<dyn TaskOutputs>,
    pub(crate) tools: ToolClient<RunId>,
    pub(crate) desk: QuestionDesk,
    pub(crate) states: KeptStates,
    pub(crate) filters: JqProcesses,
    /// Seconds that the own workspace of a run that did not succeed is kept.
    pub(crate) keep_workspace_secs: u64,
    /// Seconds that machines of failed steps are kept behind the end of their runs.
    pub(crate) kept_secs: u64,
    pub(crate) secrets: SecretStore,
    /// All runs, once they are read.
    pub(crate) runs: OnceLock<WeakRuns<RunSaga>>,
}

impl RunShared {
    /// Ports of a daemon.
    ///
    /// # Errors
    /// `internal` where a family that is needed is not there.
    pub(crate) fn of(daemon: &Daemon, options: &Options) -> Result<Self, ToolError> {
        Ok(Self {
            children: daemon.ports.need::<dyn ChildSessions>()?,
            places: daemon.ports.need::<dyn Places>()?,
            tasks: daemon.ports.need::<dyn Tasks>()?,
            outputs: daemon.ports.need::<dyn TaskOutputs>()?,
            tools: ToolClient::new(daemon.tools.clone()),
            desk: QuestionDesk::new(daemon.ports.find::<dyn StandingQuestions>()),
            states: KeptStates::new(daemon.journal.clone()),
            filters: JqProcesses::default(),
            keep_workspace_secs: options.keep_workspace_secs,
            kept_secs: u64::from(options.kept_days.clamp(1, 366)) * 24 * 60 * 60,
            secrets: SecretStore::new(options.secrets.clone()),
            runs: OnceLock::new(),
            daemon: daemon.clone(),
        })
    }
}

/// Incarnation of a run.
pub(crate) struct RunSaga {
    pub(crate) shared: Arc<RunShared>,
    pub(crate) handle: SagaHandle<Self>,
    /// Workspace of the commands, once one is needed.
    workspace: OnceCell<RunWorkspace>,
    /// Volume that the run works in, once it is made: steps beside each other wait for that.
    volume: OnceCell<()>,
    /// Commands whose results are used and not durable here yet, by the names of their tasks.
    used: Mutex<BTreeMap<String, WorkspaceId>>,
    /// Token of what a stop of the run does not cut short.
    never: CancellationToken,
}

impl Saga for RunSaga {
    type State = RunFold;
    type Step = RunStep;
    type Live = ();
    type Args = Arc<RunShared>;

    fn resume(shared: Arc<RunShared>, handle: SagaHandle<Self>) -> Self {
        let (workspace, volume, used) = (OnceCell::new(), OnceCell::new(), Mutex::default());
        Self { shared, handle, workspace, volume, used, never: CancellationToken::new() }
    }

    fn due(state: &RunFold, _: &[RunStep]) -> Vec<RunStep> {
        state.due()
    }

    fn parallel(_: &RunFold) -> usize {
        NODES_AT_ONCE
    }

    /// Commands go on in their guest, and are found there.
    fn interruptible(step: RunStep) -> bool {
        matches!(
            step,
            RunStep::Resolve | RunStep::Deliver(_) | RunStep::Due(DueStep::Work(_) | DueStep::Gate)
        )
    }

    async fn step(&self, step: RunStep) -> Result<(), LogError> {
        match step {
            RunStep::Open => self.open().await,
            RunStep::Resolve => self.resolve().await,
            RunStep::Deliver(place) => self.deliver(place).await,
            RunStep::Close => self.close().await,
            RunStep::Due(DueStep::Gate) => self.gate().await,
            RunStep::Due(DueStep::Work(key)) => self.work(key).await,
            RunStep::Due(DueStep::Finish) => {
                let left = self.handle.view(|view| view.state.finished()).map(Box::new);
                fault_point!("run.before_over");
                self.moved(ProgressRecord::Over { at: Utc::now() }, left).await
            }
            RunStep::Due(DueStep::Leave(key)) => self.leave(key).await,
            RunStep::Due(DueStep::Child(key, child)) => self.child(key, child).await,
            RunStep::Due(DueStep::Move(node)) => self.leave_state(node).await,
        }
    }
}

impl RunSaga {
    /// Records progress, unless something came between that it does not fit behind any more.
    pub(crate) async fn moved(
        &self,
        progress: ProgressRecord,
        left: Option<Box<NodeLeft>>,
    ) -> Result<(), LogError> {
        self.all_moved(vec![(progress, left)]).await
    }

    /// Records several steps of progress at once, as [`Self::moved`] does.
    pub(crate) async fn all_moved(
        &self,
        moves: Vec<(ProgressRecord, Option<Box<NodeLeft>>)>,
    ) -> Result<(), LogError> {
        let records = moves.into_iter().map(|(progress, left)| RunRecord::Moved { progress, left });
        self.follow(|_| records.collect()).await
    }

    /// Records the progress that is chosen by the state behind everything recorded before, as [`Self::moved`] does.
    pub(crate) async fn follows(
        &self,
        choose: impl FnOnce(&RunFold) -> RunRecord,
    ) -> Result<(), LogError> {
        self.follow(|state| vec![choose(state)]).await
    }

    async fn follow(
        &self,
        choose: impl FnOnce(&RunFold) -> Vec<RunRecord>,
    ) -> Result<(), LogError> {
        let decide = |state: &RunFold| {
            let records = choose(state);
            let mut progress = state.work().map(|work| work.progress.clone());
            let fits = records.iter().all(|record| match (record, &mut progress) {
                (RunRecord::Moved { progress, .. }, Some(before)) => before.apply(progress).is_ok(),
                _ => false,
            });
            let records = if fits { records } else { Vec::new() };
            Ok(records.into_iter().fold(Decision::nothing(), Decision::and))
        };
        self.handle.decide::<LogError>(decide).await
    }

    async fn close(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        self.inform(&state).await;
        let mut error = None;
        if let Some(session) = state.session {
            let ending = async {
                let cleared = self.clear(&state, session).await;
                self.shared.children.end(session).await.and(cleared)
            };
            error = match tokio::time::timeout(CLOSING, ending).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Box::new(error)),
                Err(_) => Some(Box::new(ToolError::deadline(Layer::Session, CLOSING.as_secs()))),
            };
        }
        if error.is_some() && self.shared.daemon.closing.is_cancelled() {
            // The next daemon removes what is left.
            return std::future::pending().await;
        }
        fault_point!("run.before_close");
        self.handle.record(RunRecord::Closed { at: Utc::now(), error }).await
    }

    /// Token that fires when what a node does is to be cut short. Handlers work although the run is stopped.
    pub(crate) fn cancel_of(&self, state: &RunFold, key: NodeKey) -> &CancellationToken {
        let plan = state.work().map(|work| work.progress.plan());
        let role = plan.and_then(|plan| plan.node(key.node)).map(|node| node.role);
        match role {
            Some(NodeRole::Step | NodeRole::Init) => self.handle.cancelled(),
            _ => &self.never,
        }
    }
}
