//! Events of a run: its records as they are shown.

use hivekeep_plan::progress::ProgressRecord;
use hivekeep_runtime::runs::RunEvent;
use serde_json::{Value, json};

use super::records::{NodeLeft, RunRecord, RunText};

pub(super) fn of(record: &RunRecord) -> RunEvent {
    let (event_type, payload) = match record {
        RunRecord::Begun(begun) if matches!(begun.text, RunText::Workflow(_)) => {
            ("workflow_execution_started", json!({ "name": begun.name, "trigger": begun.trigger }))
        }
        RunRecord::Begun(begun) => (
            "run_begun",
            json!({
                "name": begun.name, "trigger": begun.trigger, "params": begun.given,
                "queue": begun.queue,
            }),
        ),
        RunRecord::Opened { session, .. } => ("session_opened", json!({ "session_id": session })),
        RunRecord::Resolved { resolved, .. } => {
            let names: Vec<_> = resolved.plan.nodes.iter().map(|node| &node.name).collect();
            ("run_planned", json!({ "params": resolved.beginning.params, "steps": names }))
        }
        RunRecord::Refused { error, .. } => ("run_refused", json!({ "error": error })),
        RunRecord::Placed { workspace, .. } => {
            ("workspace_used", json!({ "workspace_id": workspace.workspace }))
        }
        RunRecord::Moved { progress, left } => moved(progress, left.as_deref()),
        RunRecord::Signalled { response, .. } => {
            ("signal_received", json!({ "response": response }))
        }
        RunRecord::Contained { state, step, workspace, .. } => (
            "container_run_started",
            json!({ "state_name": state, "step": step, "workspace_id": workspace }),
        ),
        RunRecord::Delivered { about, .. } => about.event(),
        RunRecord::Closed { error, .. } => ("session_closed", json!({ "error": error })),
    };
    RunEvent { event_type, payload }
}

fn moved(progress: &ProgressRecord, left: Option<&NodeLeft>) -> (&'static str, Value) {
    if let Some(machine) = left.and_then(|left| left.machine.as_deref()) {
        return machine.event();
    }
    match progress {
        ProgressRecord::Gated { conditions, .. } => {
            let error = left.and_then(|left| left.error.as_deref());
            ("conditions_judged", json!({ "conditions": conditions, "error": error }))
        }
        ProgressRecord::Entered { key, .. } => ("step_started", json!(key)),
        ProgressRecord::Ended { key, end, .. } => {
            ("step_ended", json!({ "step": key, "end": end, "left": left }))
        }
        ProgressRecord::Waits { key, .. } => {
            let waits = left.and_then(|left| left.waits.as_deref());
            ("step_waits", json!({ "step": key, "question": waits }))
        }
        ProgressRecord::Delayed { key, until, .. } => {
            ("step_delayed", json!({ "step": key, "until": until }))
        }
        ProgressRecord::PushedBack { key, .. } => {
            let answer = left.and_then(|left| left.answer.as_deref());
            ("step_pushed_back", json!({ "step": key, "answer": answer }))
        }
        ProgressRecord::Expanded { key, children, .. } => {
            ("step_expanded", json!({ "step": key, "children": children }))
        }
        ProgressRecord::ChildBegun { key, child, .. } => {
            ("child_begun", json!({ "step": key, "child": child }))
        }
        ProgressRecord::ChildEnded { key, child, succeeded, .. } => {
            ("child_ended", json!({ "step": key, "child": child, "succeeded": succeeded }))
        }
        ProgressRecord::Moved { left, way, .. } => {
            ("state_left", json!({ "node": left, "way": way }))
        }
        ProgressRecord::Stopped { reason, .. } => ("run_stopped", json!({ "reason": reason })),
        ProgressRecord::Woken { .. } => ("time_came", json!({})),
        ProgressRecord::Retried { from, .. } => ("run_retried", json!(from)),
        ProgressRecord::Over { .. } => ("run_ended", json!({})),
    }
}
