//! Plan of a DAG of type `agent`: a machine that goes from a decision to the step that was chosen, and back.

use hivekeep_manifest::dag::{DagManifest, DagStep};
use serde_json::json;

use super::StepWork;
use crate::plan::{FailurePolicy, NodeIndex, NodeOrder, NodeRole, PlanNode};

/// Step that decides.
pub const AGENT_STEP: &str = "__agent__";
/// Step that puts the agent's own questions to a person.
pub const ASK_STEP: &str = "ask_user";
/// Action of the step that decides.
pub const DECIDE: &str = "agent.decide";
/// Decisions where the DAG names no bound, and the most that it may name.
const DECISIONS: u32 = 50;
const MOST_DECISIONS: u32 = 1_000;
/// Times that a step may be chosen.
const TIMES: u32 = 5;
/// Decisions behind the last one, which only say what the run has come to.
const CLOSING: u32 = 2;

/// Most decisions of a run.
pub fn most_decisions(dag: &DagManifest) -> u32 {
    let named = dag.llm.as_ref().and_then(|llm| llm.max_tool_iterations);
    let named = named.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    named.unwrap_or(DECISIONS).clamp(1, MOST_DECISIONS)
}

/// Has failures of the steps end nothing, and adds the steps that decide and that ask.
pub(super) fn complete(nodes: &mut Vec<PlanNode<StepWork>>) {
    for node in nodes.iter_mut() {
        node.failure = FailurePolicy { failed: true, skipped: true, ..FailurePolicy::default() };
    }
    let question = json!({
        "prompt": format!("${{steps.{AGENT_STEP}.outputs.question}}"),
        "form": {
            "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"],
        },
    });
    nodes.push(own(AGENT_STEP, DECIDE, json!({})));
    nodes.push(own(ASK_STEP, "human.task", question));
}

fn own(name: &str, action: &str, with: serde_json::Value) -> PlanNode<StepWork> {
    let work = StepWork {
        action: action.to_owned(),
        with: with.as_object().cloned().unwrap_or_default(),
        lines: None,
        routers: Vec::new(),
        step: Box::new(DagStep::default()),
    };
    PlanNode {
        name: name.to_owned(),
        id: Some(name.to_owned()),
        role: NodeRole::Step,
        action: work,
        failure: FailurePolicy::default(),
        attempts: None,
        repeats: None,
        children_at_once: 1,
        back_to: None,
    }
}

/// Order of the completed nodes, handlers among them.
pub(super) fn order(dag: &DagManifest, nodes: &[PlanNode<StepWork>]) -> NodeOrder {
    let most = most_decisions(dag) + CLOSING;
    let visits = nodes.iter().map(|node| match node.role {
        NodeRole::Step if node.name == AGENT_STEP => most,
        NodeRole::Step => TIMES,
        _ => 0,
    });
    let initial = nodes.iter().zip(0u16..).find(|(node, _)| node.name == AGENT_STEP);
    NodeOrder::Machine {
        initial: NodeIndex(initial.map_or(0, |(_, at)| at)),
        visits: visits.collect(),
        transitions: 2 * most,
    }
}
