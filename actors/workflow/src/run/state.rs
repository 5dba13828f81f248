//! State of a run, as its records add up to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ErrorCode, Layer, RunId, SessionId, ToolError, User, WorkspaceId};
use hivekeep_manifest::dag::DagType;
use hivekeep_plan::{
    lower::StepWork,
    plan::{NodeIndex, NodeOrder, NodeRole},
    progress::{DueStep, NodePhase, ProgressRecord, RetryFrom, RunOutcome, RunProgress, RunStop},
    resolve::RunBeginning,
};
use hivekeep_ports::OwnedSnapshot;
use hivekeep_runtime::{
    log::{Decision, Sourced},
    runs::{RunEvent, RunQueue, RunRetention, RunState, RunStatus},
    saga::SagaState,
};

use serde_json::Value;

use super::{
    answers::{GivenAnswer, PersonAnswer, PushBack},
    decisions::DecisionLog,
    delivery_record::DeliveryRecord,
    events,
    records::{
        NodeLeft, RunBegun, RunChild, RunPlace, RunRecord, RunResolved, RunText, RunTrigger,
        RunWorkspace,
    },
};
use crate::{codes, machine::MachineState};

/// Runs of a user at a time, as tiers bound them.
pub const HELD: &str = "runs";

/// Step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStep {
    /// Opens the run's session.
    Open,
    /// Resolves its parameters and its environment.
    Resolve,
    /// Goes on with the plan.
    Due(DueStep),
    /// Tells a receiver of the run's end, by its place.
    Deliver(usize),
    /// Ends the run's session.
    Close,
}

/// A run. Cheap to clone: clones share what grows with its nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunFold {
    pub(crate) begun: Arc<RunBegun>,
    pub(crate) session: Option<SessionId>,
    pub(crate) workspace: Option<Arc<RunWorkspace>>,
    /// Own workspace of an attempt before, in which a retry goes on.
    pub(crate) inherited: Option<Arc<RunWorkspace>>,
    pub(crate) stage: RunStage,
    /// Values and errors of nodes that have ended, by their place.
    pub(crate) left: Arc<BTreeMap<NodeIndex, Arc<NodeLeft>>>,
    /// Children of nodes, of the last try that has some.
    pub(crate) children: BTreeMap<NodeIndex, Arc<Vec<RunChild>>>,
    /// Values and errors of children, by their node and place.
    pub(crate) results: Arc<BTreeMap<(NodeIndex, u32), Arc<NodeLeft>>>,
    /// Children of nodes that failed: these are retried when the node is tried again.
    pub(crate) retries: BTreeMap<NodeIndex, Arc<Vec<RunChild>>>,
    /// State machine, of a run of a workflow.
    pub(crate) machine: Option<Arc<MachineState>>,
    /// Decisions of its agent, of a run of a DAG that has one.
    pub(crate) decisions: Option<Arc<DecisionLog>>,
    /// Workspaces of containers that were used in the attempt, by the names of their steps; of a machine's, of those of
    /// its state.
    pub(crate) contained: BTreeMap<String, WorkspaceId>,
    /// Machines of forked steps that failed.
    pub(crate) kept: BTreeMap<NodeIndex, OwnedSnapshot>,
    /// Those that nobody needs any more, until the run is closed.
    pub(crate) stale: Vec<OwnedSnapshot>,
    /// Push-backs of the attempt in their order.
    pub(crate) push_backs: Arc<Vec<PushBack>>,
    /// Nodes that were done again, with the number of push-backs until then.
    pub(crate) pushed_back: BTreeMap<NodeIndex, usize>,
    /// Last record of each receiver of this end of the run, by its place.
    pub(super) delivered: BTreeMap<usize, DeliveryRecord>,
    pub(crate) last_at: DateTime<Utc>,
    /// Times that it was retried.
    pub(crate) attempt: u32,
    closed: bool,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunStage {
    /// Its parameters and its environment are to be resolved; true if it is stopped before that.
    Unresolved(bool),
    /// The run cannot begin.
    Refused(Arc<ToolError>),
    /// The plan is gone through.
    Works(Arc<RunWork>),
}

/// Plan of a run, and how far that is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunWork {
    pub(crate) beginning: Arc<RunBeginning>,
    pub(crate) progress: RunProgress<StepWork>,
}

impl RunFold {
    /// Steps that are due.
    pub(crate) fn due(&self) -> Vec<RunStep> {
        match &self.stage {
            _ if self.closed => Vec::new(),
            RunStage::Unresolved(true) | RunStage::Refused(_) => vec![self.last_step()],
            _ if self.session.is_none() => vec![RunStep::Open],
            RunStage::Unresolved(false) => vec![RunStep::Resolve],
            RunStage::Works(work) if work.progress.is_over() => vec![self.last_step()],
            RunStage::Works(work) => work.progress.due().into_iter().map(RunStep::Due).collect(),
        }
    }

    fn last_step(&self) -> RunStep {
        self.delivery_due().map_or(RunStep::Close, RunStep::Deliver)
    }

    /// Plan of a run, once it goes through that.
    pub(crate) fn work(&self) -> Option<&RunWork> {
        match &self.stage {
            RunStage::Works(work) => Some(work),
            _ => None,
        }
    }

    /// Reason why the run could not begin.
    pub(crate) fn refused(&self) -> Option<&ToolError> {
        match &self.stage {
            RunStage::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// Outcome of the run; none while it goes on.
    pub(crate) fn outcome(&self) -> Option<RunOutcome> {
        match &self.stage {
            RunStage::Unresolved(stopped) => stopped.then_some(RunOutcome::Aborted),
            RunStage::Refused(_) => Some(RunOutcome::Failed),
            RunStage::Works(work) => work.progress.outcome().filter(|_| work.progress.is_over()),
        }
    }

    /// Record of another attempt.
    ///
    /// # Errors
    /// `dag_invalid` where nothing is to be done again.
    pub(crate) fn retried(&self, from: RetryFrom) -> Result<Decision<RunRecord>, ToolError> {
        let retried = ProgressRecord::Retried { from, at: Utc::now() };
        let fits = |work: &RunWork| work.progress.clone().apply(&retried).is_ok();
        match self.work().is_some_and(fits) {
            true => Ok(Decision::record(RunRecord::moved(retried))),
            false => {
                let message = "nothing of the run is to be done again from there";
                Err(ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                    .next("name a step of the run, or begin another run"))
            }
        }
    }

    fn moved(&mut self, progress: ProgressRecord, left: Option<Box<NodeLeft>>) -> Option<()> {
        let work = match &mut self.stage {
            RunStage::Works(work) => Arc::make_mut(work),
            RunStage::Unresolved(stopped) => {
                let stops = matches!(progress, ProgressRecord::Stopped { .. });
                return stops.then(|| *stopped = true);
            }
            RunStage::Refused(_) => return None,
        };
        let before = matches!(progress, ProgressRecord::PushedBack { .. }).then(|| ended(work));
        work.progress.apply(&progress).ok()?;
        if let (RunText::Workflow(text), Some(machine)) = (&self.begun.text, &mut self.machine) {
            let record = left.as_deref().and_then(|left| left.machine.as_deref());
            Arc::make_mut(machine).moved(text, &progress, record);
        }
        if let ProgressRecord::Ended { key, .. } = &progress {
            let kept = left.as_deref().and_then(|left| left.kept.as_deref().cloned());
            self.stale.extend(self.kept.remove(&key.node));
            self.kept.extend(kept.map(|kept| (key.node, kept)));
        }
        match &progress {
            ProgressRecord::PushedBack { key, .. } => {
                let (before, now) = (before.unwrap_or_default(), ended(work));
                let again = before.difference(&now).copied().chain([key.node]).collect();
                self.push_back(again, left, progress.at());
            }
            ProgressRecord::Ended { key, .. }
            | ProgressRecord::Waits { key, .. }
            | ProgressRecord::Delayed { key, .. } => {
                if let Some(mut left) = left.filter(|left| left.machine.is_none()) {
                    match &mut self.decisions {
                        None => left.logs = None,
                        // The agent is told the beginnings of the streams.
                        Some(all) => {
                            let decision = left.decision.take();
                            decision.into_iter().for_each(|it| Arc::make_mut(all).take(*it));
                        }
                    }
                    Arc::make_mut(&mut self.left).insert(key.node, Arc::from(left));
                }
            }
            ProgressRecord::Entered { key, .. } => {
                if self.machine.is_some() {
                    self.contained.clear();
                }
                self.children.remove(&key.node);
                if !self.retries.contains_key(&key.node) {
                    Arc::make_mut(&mut self.results).retain(|(node, _), _| *node != key.node);
                }
            }
            ProgressRecord::Expanded { key, .. } => {
                let children = left.map(|left| left.children).unwrap_or_default();
                self.retries.remove(&key.node);
                self.children.insert(key.node, Arc::new(children));
            }
            ProgressRecord::ChildEnded { key, child, .. } => {
                let left = Arc::from(left.unwrap_or_default());
                Arc::make_mut(&mut self.results).insert((key.node, *child), left);
            }
            ProgressRecord::Retried { from, .. } => {
                if *from == RetryFrom::Beginning {
                    self.stale.extend(std::mem::take(&mut self.kept).into_values());
                }
                self.reopen(*from);
            }
            _ => {}
        }
        Some(())
    }

    /// Notes for nodes why they are done again.
    fn push_back(&mut self, nodes: Vec<NodeIndex>, left: Option<Box<NodeLeft>>, at: DateTime<Utc>) {
        let Some(PersonAnswer { by, given: GivenAnswer::PushedBack { values, reason } }) =
            left.and_then(|left| left.answer).map(|answer| *answer)
        else {
            return;
        };
        let iteration = self.push_backs.len() + 1;
        let push_back = PushBack { iteration, by, at, reason, inputs: values };
        Arc::make_mut(&mut self.push_backs).push(push_back);
        self.pushed_back.extend(nodes.into_iter().map(|node| (node, iteration)));
    }

    /// Begins another attempt: a session of its own, as the one before is closed.
    fn reopen(&mut self, from: RetryFrom) {
        let workspace = self.workspace.take().filter(|_| self.begun.place == RunPlace::Own);
        self.inherited = workspace.or(self.inherited.take());
        (self.session, self.closed) = (None, false);
        self.attempt += 1;
        (self.push_backs, self.pushed_back) = Default::default();
        self.delivered.clear();
        self.contained.clear();
        self.decisions.iter_mut().for_each(|all| Arc::make_mut(all).retried(from));
        let RunStage::Works(work) = &self.stage else { return };
        let stands = |at: &NodeIndex| {
            let phase = work.progress.node(*at).map(|node| &node.phase);
            matches!(phase, Some(NodePhase::Ended(_)))
        };
        Arc::make_mut(&mut self.left).retain(|at, _| stands(at));
        let role = |at: &NodeIndex| work.progress.plan().node(*at).map(|node| node.role);
        let is_step = |at: &NodeIndex| matches!(role(at), Some(NodeRole::Step | NodeRole::Init));
        // Behind a node that is done again the children may be others.
        let same =
            |at: &NodeIndex| is_step(at) && !stands(at) && before(work, *at).iter().all(stands);
        let reaches = from == RetryFrom::Failed && matches!(self.begun.text, RunText::Dag(_));
        let waited = |children: &[RunChild]| children.iter().all(|child| child.queue.is_none());
        let all = self.children.iter();
        let all = all.filter(|(at, children)| reaches && same(at) && waited(children));
        self.retries = all.map(|(at, children)| (*at, children.clone())).collect();
        let retries = &self.retries;
        let results = Arc::make_mut(&mut self.results);
        results.retain(|(at, _), left| left.succeeded || !retries.contains_key(at));
    }
}

/// Nodes that have ended.
fn ended(work: &RunWork) -> BTreeSet<NodeIndex> {
    let is_ended = |at: &NodeIndex| {
        let phase = work.progress.node(*at).map(|node| &node.phase);
        matches!(phase, Some(NodePhase::Ended(_)))
    };
    work.progress.plan().indexed().map(|(at, _)| at).filter(is_ended).collect()
}

impl Sourced for RunFold {
    const KIND: &'static str = "run";
    const FOLD_EVERY: usize = usize::MAX;
    const PIECE_BYTES: Option<usize> = Some(256 * 1024);
    const SHARED: bool = true;
    type Record = RunRecord;

    fn begin(record: RunRecord) -> Result<Self, RunRecord> {
        let RunRecord::Begun(begun) = record else { return Err(record) };
        let machine = match &begun.text {
            RunText::Dag(_) => None,
            RunText::Workflow(text) => match MachineState::begin(text, &begun) {
                Ok(machine) => Some(Arc::new(machine)),
                Err(_) => return Err(RunRecord::Begun(begun)),
            },
        };
        let is_agent = begun.dag.order() == DagType::Agent;
        Ok(Self {
            machine,
            decisions: is_agent.then(Arc::default),
            last_at: begun.at,
            begun: Arc::from(begun),
            session: None,
            workspace: None,
            inherited: None,
            stage: RunStage::Unresolved(false),
            left: Arc::default(),
            children: BTreeMap::new(),
            results: Arc::default(),
            retries: BTreeMap::new(),
            contained: BTreeMap::new(),
            kept: BTreeMap::new(),
            stale: Vec::new(),
            push_backs: Arc::default(),
            pushed_back: BTreeMap::new(),
            attempt: 0,
            delivered: BTreeMap::new(),
            closed: false,
        })
    }

    fn apply(&mut self, record: RunRecord) -> Result<(), RunRecord> {
        let at = record.at();
        match record {
            RunRecord::Opened { session, inherits, .. } if self.session.is_none() => {
                self.session = Some(session);
                self.inherited = self.inherited.take().filter(|_| inherits);
            }
            RunRecord::Resolved { resolved, at } if self.stage == RunStage::Unresolved(false) => {
                let RunResolved { beginning, plan } = *resolved;
                let Ok(progress) = RunProgress::begin(plan.clone(), at) else {
                    let resolved = Box::new(RunResolved { beginning, plan });
                    return Err(RunRecord::Resolved { resolved, at });
                };
                let work = RunWork { beginning: Arc::new(beginning), progress };
                self.stage = RunStage::Works(Arc::new(work));
            }
            RunRecord::Refused { error, .. } if self.stage == RunStage::Unresolved(false) => {
                self.stage = RunStage::Refused(Arc::from(error));
            }
            RunRecord::Placed { workspace, .. } => self.workspace = Some(Arc::new(workspace)),
            RunRecord::Contained { step, workspace, .. } => {
                self.contained.insert(step, workspace);
            }
            note @ RunRecord::Signalled { .. } => {
                let Some(machine) = &mut self.machine else { return Err(note) };
                Arc::make_mut(machine).noted(note);
            }
            RunRecord::Moved { progress, left } => {
                let refused = RunRecord::Moved { progress: progress.clone(), left: left.clone() };
                self.moved(progress, left).ok_or(refused)?;
            }
            RunRecord::Delivered { about, .. } if self.outcome().is_some() => {
                self.delivered.insert(about.place, *about);
                return Ok(());
            }
            RunRecord::Closed { .. } if !self.closed => {
                self.closed = true;
                self.stale.clear();
            }
            other => return Err(other),
        }
        self.last_at = at;
        Ok(())
    }
}

impl SagaState for RunFold {
    fn holds(&self) -> Option<SessionId> {
        (!self.closed).then_some(self.begun.session)
    }

    fn is_cancelled(&self) -> bool {
        match &self.stage {
            RunStage::Unresolved(stopped) => *stopped,
            RunStage::Refused(_) => false,
            RunStage::Works(work) => work.progress.stopped().is_some(),
        }
    }

    fn cancellation(&self) -> Option<RunRecord> {
        let works = match &self.stage {
            RunStage::Works(work) => work.progress.outcome().is_none(),
            RunStage::Unresolved(_) => true,
            RunStage::Refused(_) => false,
        };
        let works = works && !self.is_cancelled();
        let stopped = ProgressRecord::Stopped { reason: RunStop::Asked, at: Utc::now() };
        works.then(|| RunRecord::moved(stopped))
    }
}

impl RunState for RunFold {
    type Id = RunId;

    const LABEL: &'static str = "run";
    const NOT_FOUND: &'static ErrorCode = codes::RUN_NOT_FOUND;
    const LISTED_BY: &'static str = "dag_runs";
    const ALLOWANCE: Option<&'static str> = Some(HELD);

    fn status(&self) -> RunStatus {
        match self.outcome() {
            None if self.session.is_none() => RunStatus::Pending,
            None => RunStatus::Running,
            Some(RunOutcome::Succeeded | RunOutcome::PartlySucceeded) => RunStatus::Completed,
            Some(RunOutcome::Failed | RunOutcome::Rejected) => RunStatus::Failed,
            Some(RunOutcome::Aborted) => RunStatus::Cancelled,
        }
    }

    fn user(&self) -> User {
        self.begun.user
    }

    fn group(&self) -> String {
        match &self.begun.text {
            RunText::Dag(_) => self.begun.name.clone(),
            RunText::Workflow(text) => text.workflow_id.to_string(),
        }
    }

    fn began_at(&self) -> DateTime<Utc> {
        self.begun.at
    }

    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.outcome().map(|_| self.last_at)
    }

    fn wakes_at(&self) -> Option<DateTime<Utc>> {
        let plan = self.work().and_then(|work| work.progress.wakes_at());
        plan.into_iter().chain(self.machine_wakes_at()).min()
    }

    fn woken(&self, now: DateTime<Utc>) -> Option<RunRecord> {
        self.wakes_at().filter(|at| *at <= now)?;
        if self.machine_wakes_at().is_some_and(|at| at <= now) {
            return self.machine_woken();
        }
        Some(RunRecord::moved(ProgressRecord::Woken { at: now }))
    }

    /// A child takes none: its parent waits for it, and all places could be taken by parents.
    fn takes_place(&self) -> bool {
        !matches!(self.begun.trigger, RunTrigger::Parent { .. })
    }

    fn queue(&self) -> Option<&RunQueue> {
        self.begun.queue.as_ref()
    }

    fn retention(&self) -> RunRetention {
        let dag = &self.begun.dag;
        match (dag.hist_retention_runs, dag.hist_retention_days.unwrap_or_default()) {
            (Some(runs), _) if self.takes_place() => {
                RunRetention::Newest(usize::try_from(runs).unwrap_or(usize::MAX).max(1))
            }
            (_, 0) => RunRetention::Usual,
            (_, days) => u32::try_from(days).map_or(RunRetention::Always, RunRetention::Days),
        }
    }

    fn event(record: &RunRecord) -> RunEvent {
        events::of(record)
    }

    fn recorded_at(record: &RunRecord) -> Option<DateTime<Utc>> {
        Some(record.at())
    }

    /// Keeps what people answered, so that the same answer given again is known as such.
    fn rest(&mut self) {
        let answers = self.left.iter().filter_map(|(node, left)| {
            let answer = Some(left.answer.clone()?);
            Some((*node, Arc::new(NodeLeft { answer, ..NodeLeft::default() })))
        });
        self.left = Arc::new(answers.collect());
        (self.push_backs, self.pushed_back) = Default::default();
        self.contained.clear();
        self.children.clear();
        self.results = Arc::default();
        self.retries.clear();
        if let RunTrigger::Webhook { .. } = self.begun.trigger {
            // A stranger's payload is read again where it is needed.
            if let RunText::Dag(text) = &mut Arc::make_mut(&mut self.begun).text {
                text.given = Value::Null;
            }
            if let RunStage::Works(work) = &mut self.stage {
                Arc::make_mut(work).beginning = Arc::default();
            }
        }
        if let Some(machine) = &mut self.machine {
            Arc::make_mut(machine).rest();
        }
        self.decisions.iter_mut().for_each(|all| Arc::make_mut(all).rest());
    }
}

/// Nodes that a node follows, directly or not; of a machine all that have ended.
pub(super) fn before(work: &RunWork, node: NodeIndex) -> Vec<NodeIndex> {
    let NodeOrder::Graph { follows } = &work.progress.plan().order else {
        return ended(work).into_iter().collect();
    };
    let mut seen = vec![false; follows.len()];
    let mut open: Vec<NodeIndex> = follows.get(node.at()).cloned().unwrap_or_default();
    while let Some(at) = open.pop() {
        if let Some(seen) = seen.get_mut(at.at())
            && !std::mem::replace(seen, true)
        {
            open.extend(follows.get(at.at()).into_iter().flatten());
        }
    }
    let found = (0u16..).zip(seen).filter(|(_, seen)| *seen);
    found.map(|(at, _)| NodeIndex(at)).collect()
}
