//! Runs as they are shown: lists, and one with its steps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, RunId, ToolError};
use hivekeep_plan::{
    plan::{NodeIndex, NodeOrder, NodeRole},
    progress::{NodeOutcome, NodePhase, ProgressRecord, RunOutcome, RunStop},
};
use hivekeep_runtime::{
    runs::{RunState as _, RunStatus},
    saga::SagaView,
};
use serde_json::{Map, Value};

use super::{
    Answer,
    compare::compare,
    types::{DagGoalShown, DagRunRow, DagRunShown, DagRunsAsked, DagRunsShown, DagStepShown},
};
use crate::{
    RunTrigger,
    run::{
        DecisionChoice, GoalStatus, NodeLeft, RunFold, RunRecord, RunSaga, RunWork, run_outputs,
    },
    service::WorkflowService,
};

type View = SagaView<RunSaga>;

pub(super) fn wait_secs(input: &Value) -> Option<u64> {
    input.get("wait_secs")?.as_u64()
}

impl WorkflowService {
    pub(super) async fn dag_runs(
        self: Arc<Self>,
        cx: CallCx,
        input: DagRunsAsked,
    ) -> Answer<DagRunsShown> {
        let caller = self.run_caller(&cx);
        if input.dags {
            return Ok(self.listed(caller, &input));
        }
        let Some(id) = &input.run_id else {
            if input.compare_with.is_some() {
                let lacks = ToolError::invalid("`compare_with` is set, and `run_id` is not");
                return Err(lacks.next("set `run_id` to the run to compare"));
            }
            let (rows, total) = self.runs.0.list(caller, input.name.as_deref(), input.limit);
            let runs = rows.iter().map(|(_, view)| row(view)).collect();
            return Ok(DagRunsShown {
                runs: Some(runs),
                total: Some(total),
                ..DagRunsShown::default()
            });
        };
        if input.wait_secs > 0 {
            self.runs.0.wait(&cx, id, Duration::from_secs(input.wait_secs)).await?;
        }
        let (view, records) = self.runs.told(caller, id).await?;
        if let Some(other) = &input.compare_with {
            let (other, its_records) = self.runs.told(caller, other).await?;
            let ours = shown(&view, &records, 0, usize::MAX);
            let theirs = shown(&other, &its_records, 0, usize::MAX);
            let compared = Box::new(compare(&ours, theirs, (input.offset, input.limit)));
            return Ok(DagRunsShown { compared: Some(compared), ..DagRunsShown::default() });
        }
        let run = Box::new(shown(&view, &records, input.offset, input.limit));
        Ok(DagRunsShown { run: Some(run), ..DagRunsShown::default() })
    }
}

/// Status of a run as a word.
pub(super) fn status(view: &View) -> &'static str {
    match view.state.outcome() {
        Some(RunOutcome::Succeeded) => "succeeded",
        Some(RunOutcome::PartlySucceeded) => "partly_succeeded",
        Some(RunOutcome::Failed) => "failed",
        Some(RunOutcome::Aborted) => "aborted",
        Some(RunOutcome::Rejected) => "rejected",
        None if is_queued(view) => "queued",
        None => view.status().word(),
    }
}

fn is_queued(view: &View) -> bool {
    view.status() == RunStatus::Pending && view.state.queue().is_some()
}

pub(super) fn row(view: &View) -> DagRunRow {
    let RunFold { begun, .. } = &view.state;
    let name = |work: &RunWork, at: NodeIndex| {
        work.progress.plan().node(at).map(|node| node.name.clone()).unwrap_or_default()
    };
    let waiting = view
        .state
        .work()
        .map(|work| work.progress.waiting().map(|key| name(work, key.node)).collect());
    DagRunRow {
        run_id: begun.id,
        name: begun.name.clone(),
        status: status(view),
        trigger: match begun.trigger {
            RunTrigger::Start => "start",
            RunTrigger::Schedule { .. } => "schedule",
            RunTrigger::Webhook { .. } => "webhook",
            RunTrigger::Enqueue { .. } => "enqueue",
            RunTrigger::Parent { .. } => "parent",
        },
        waiting: waiting.unwrap_or_default(),
        started_at: begun.at,
        ended_at: view.state.ended_at(),
    }
}

fn shown(view: &View, records: &[RunRecord], offset: usize, limit: usize) -> DagRunShown {
    let state = &view.state;
    let work = state.work();
    let nodes = work.map_or(0, |work| work.progress.plan().nodes.len());
    let times = TryTimes::of(records);
    let all = (0u16..).map(NodeIndex).take(nodes).skip(offset).take(limit);
    let steps = work
        .into_iter()
        .flat_map(|work| all.clone().filter_map(|at| step(state, work, at, times.0.get(&at))));
    let over = state.outcome().is_some();
    let outputs = work.filter(|_| over).and_then(|work| run_outputs(state, work).ok());
    let parent = match state.begun.trigger {
        RunTrigger::Parent { run, .. } | RunTrigger::Enqueue { run } => Some(run),
        _ => None,
    };
    let row = row(view);
    DagRunShown {
        retries: state.attempt,
        params: work.map(|work| work.beginning.params.to_object()).unwrap_or_default(),
        workspace_id: state.workspace.as_ref().map(|it| it.workspace),
        parent_run_id: parent,
        outputs: outputs.filter(|it| it.as_object().is_none_or(|it| !it.is_empty())),
        error: error(view),
        stopped_by: work.and_then(|work| work.progress.stopped()).map(|stop| match stop {
            RunStop::Asked => "request",
            RunStop::Timeout => "timeout",
            RunStop::Conditions => "conditions",
        }),
        steps: steps.collect(),
        total_steps: nodes,
        tasks: goals(state),
        decisions: work.map(|work| decisions(state, work, limit)).unwrap_or_default(),
        next_step: match (row.status, row.waiting.is_empty()) {
            ("failed" | "rejected", _) => {
                Some("dag_logs shows what a step wrote; dag_control retries from what failed")
            }
            ("running", false) => Some("a person decides: `hivekeep approvals`, or dag_control"),
            ("queued" | "running" | "pending", true) => {
                Some("dag_runs with `wait_secs` waits for its end")
            }
            _ => None,
        },
        row,
    }
}

fn goals(state: &RunFold) -> Vec<DagGoalShown> {
    let Some(log) = &state.decisions else { return Vec::new() };
    let shown = |name: &String| {
        let settled = log.goals.get(name);
        let status = settled.map_or(GoalStatus::Open, |settled| settled.status);
        let reason = settled.map(|settled| settled.reason.clone());
        DagGoalShown { name: name.clone(), status, reason }
    };
    state.begun.dag.tasks.iter().flatten().map(|task| shown(&task.name)).collect()
}

/// The last decisions of an agent, each as a line.
fn decisions(state: &RunFold, work: &RunWork, limit: usize) -> Vec<String> {
    let name = |at: &NodeIndex| work.progress.plan().node(*at).map_or("", |node| &*node.name);
    let line = |choice: &DecisionChoice| match choice {
        DecisionChoice::Step { node } => format!("step {}", name(node)),
        DecisionChoice::AskUser { question, .. } => format!("ask_user {question:.200}"),
        DecisionChoice::TaskStatus { task, status, reason } => {
            format!("task_status {task} {}: {reason:.200}", status.word())
        }
        DecisionChoice::Rejected { why } => format!("rejected: {why:.200}"),
        DecisionChoice::Stalled => "stalled".to_owned(),
    };
    let all = state.decisions.iter().flat_map(|log| log.all.iter());
    let mut lines: Vec<_> = all.rev().take(limit).map(|it| line(&it.choice)).collect();
    lines.reverse();
    lines
}

fn error(view: &View) -> Option<String> {
    if let Some(refused) = view.state.refused() {
        return Some(refused.to_text());
    }
    let given_up = view.given_up.as_ref().filter(|_| view.state.outcome().is_none());
    given_up.map(|why| format!("it stands still until the daemon's next start: {why}"))
}

/// Beginning and end of the last try of each node.
struct TryTimes(BTreeMap<NodeIndex, (DateTime<Utc>, Option<DateTime<Utc>>)>);

impl TryTimes {
    fn of(records: &[RunRecord]) -> Self {
        let mut times = BTreeMap::new();
        for record in records {
            let RunRecord::Moved { progress, .. } = record else { continue };
            match progress {
                ProgressRecord::Entered { key, at } => {
                    times.insert(key.node, (*at, None));
                }
                ProgressRecord::Ended { key, at, .. } => {
                    times.entry(key.node).and_modify(|(_, end)| *end = Some(*at));
                }
                _ => {}
            }
        }
        Self(times)
    }
}

fn step(
    state: &RunFold,
    work: &RunWork,
    at: NodeIndex,
    times: Option<&(DateTime<Utc>, Option<DateTime<Utc>>)>,
) -> Option<DagStepShown> {
    let (plan, progress) = (work.progress.plan(), work.progress.node(at)?);
    let node = plan.node(at)?;
    let follows = match &plan.order {
        NodeOrder::Graph { follows } => follows.get(at.at()).map(Vec::as_slice),
        NodeOrder::Machine { .. } => None,
    };
    let named = |at: &NodeIndex| plan.node(*at).map(|node| node.name.clone());
    let left = state.left.get(&at).cloned().unwrap_or_default();
    let children = state.children.get(&at).into_iter().flat_map(|them| them.iter());
    Some(DagStepShown {
        name: node.name.clone(),
        status: word(&progress.phase),
        follows: follows.unwrap_or_default().iter().filter_map(named).collect(),
        handler: handler(node.role),
        tries: progress.tries,
        started_at: times.map(|(began, _)| *began),
        ended_at: times.and_then(|(_, ended)| *ended),
        exit_code: match &progress.phase {
            NodePhase::Ended(result) => result.exit_code,
            _ => None,
        },
        outputs: outputs(&left),
        error: left.error.as_ref().map(|error| error.to_text()),
        runs: children.map(|child| child.id).collect::<Vec<RunId>>(),
    })
}

/// State of a node as a word.
pub(super) fn word(phase: &NodePhase) -> &'static str {
    match phase {
        NodePhase::Open => "open",
        NodePhase::Entered | NodePhase::Children(_) => "running",
        NodePhase::Pauses(_) => "pauses",
        NodePhase::Waits => "waiting",
        NodePhase::Ended(result) => match result.outcome {
            NodeOutcome::Succeeded => "succeeded",
            NodeOutcome::Failed => "failed",
            NodeOutcome::Skipped => "skipped",
            NodeOutcome::Aborted => "aborted",
            NodeOutcome::Rejected => "rejected",
        },
    }
}

fn handler(role: NodeRole) -> Option<&'static str> {
    match role {
        NodeRole::Step => None,
        NodeRole::Init => Some("init"),
        NodeRole::Wait => Some("wait"),
        NodeRole::Success => Some("success"),
        NodeRole::Failure => Some("failure"),
        NodeRole::Abort => Some("abort"),
        NodeRole::Exit => Some("exit"),
    }
}

fn outputs(left: &NodeLeft) -> Map<String, Value> {
    let texts = left.outputs.iter().chain(&left.variables);
    let mut all: Map<_, _> =
        texts.map(|(name, text)| (name.clone(), Value::String(text.clone()))).collect();
    all.extend(left.output.clone().map(|value| ("output".to_owned(), value)));
    if let Some(Value::Object(published)) = &left.published {
        all.extend(published.clone());
    }
    all
}

/// Step of a run by its name or id.
///
/// # Errors
/// `invalid_input`, with the names that there are.
pub(super) fn find(state: &RunFold, name: &str) -> Answer<NodeIndex> {
    let plan = state.work().map(|work| work.progress.plan().clone());
    let nodes = || plan.iter().flat_map(|plan| plan.indexed());
    let is_meant = |id: Option<&str>| id == Some(name);
    let found = nodes()
        .find(|(_, node)| node.name == name)
        .or_else(|| nodes().find(|(_, node)| is_meant(node.id.as_deref())));
    found.map(|(at, _)| at).ok_or_else(|| {
        let names: Vec<_> = nodes().take(20).map(|(_, node)| format!("`{}`", node.name)).collect();
        let next = match names.is_empty() {
            true => "the run has not begun with its steps".to_owned(),
            false => format!("its steps are {}", names.join(", ")),
        };
        ToolError::invalid(format!("the run has no step `{name:.80}`")).next(next)
    })
}
