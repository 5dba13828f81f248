//! The machine: conditions by tables, texts, random machines with random outputs, and published workflows.

mod conditions;
mod corpus;
mod random;
mod texts;

use std::collections::BTreeMap;

use hivekeep_manifest::{parse_workflow, workflow::WorkflowManifest};
use serde_json::{Value, json};

use super::{
    Blackboard, CommandOutcome, MachineNext, MachineStart, MachineView, StateOutput, StateResult,
    StateStatus, next,
};

/// Workflow of states in YAML, whose first is `A`.
fn workflow(spec: &str) -> WorkflowManifest {
    let head =
        "apiVersion: 100monkeys.ai/v1\nkind: Workflow\nmetadata: { name: x, version: 1.2.3 }\n";
    let text = format!("{head}spec:\n  initial_state: A\n{spec}");
    parse_workflow(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

fn begun(manifest: &WorkflowManifest, blackboard: Value) -> Result<Blackboard, String> {
    let Value::Object(blackboard) = blackboard else { panic!("an object") };
    let input = json!({ "task": "write", "n": 3 });
    let execution_id = "run".to_owned();
    let (tenant_id, intent) = (Some("t".to_owned()), Some("do it".to_owned()));
    Blackboard::new(manifest, MachineStart { execution_id, tenant_id, input, intent, blackboard })
}

/// Next state after `A` has ended with an output.
fn after(manifest: &WorkflowManifest, blackboard: Value, output: &StateOutput) -> MachineNext {
    let mut blackboard = begun(manifest, blackboard).expect("it fits");
    blackboard.put_output("A", &manifest.spec.states["A"], output).expect("it fits");
    let visits = BTreeMap::from([("A".to_owned(), 1)]);
    let view = MachineView {
        spec: &manifest.spec,
        blackboard: &blackboard,
        state: "A",
        visits: &visits,
        transitions: 0,
        feedback: None,
    };
    next(&view, output)
}

fn command(exit_code: i64) -> StateOutput {
    let (stdout, stderr) = ("out\n".to_owned(), "err".to_owned());
    StateOutput::command(CommandOutcome { exit_code, stdout, stderr, duration_ms: 5, attempts: 1 })
}

fn human(response: &str) -> StateOutput {
    let result = StateResult::Human { response: response.to_owned(), timed_out: false };
    StateOutput { status: StateStatus::Succeeded, error: None, result }
}
