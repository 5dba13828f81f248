//! Events of an execution: its records as clients are shown them, one for each.

use hivekeep_runtime::runs::RunEvent;
use serde_json::{Value, json};

use super::{
    state::{CallEnd, ExecutionBegun, ExecutionEnd, Record, TurnAnswer},
    verdicts::{JudgeOpinion, JudgedSubject, JudgingRecord},
};

/// Event that a record is shown as.
pub(super) fn event(record: &Record) -> RunEvent {
    let (event_type, payload) = match record {
        Record::Begun(begun) => ("execution_started", started(begun)),
        Record::Opened { session, .. } => ("session_opened", json!({ "session_id": session })),
        Record::Placed { workspace, .. } => ("machine_ready", json!({ "workspace_id": workspace })),
        Record::ContextRead { item, read, .. } => (
            "context_read",
            json!({ "item": item + 1, "bytes": read.text.len(), "size_bytes": read.size_bytes,
                "cut": read.cut }),
        ),
        Record::Prompted { iteration, text, .. } => {
            ("iteration_started", json!({ "iteration": iteration + 1, "prompt": text }))
        }
        Record::Answered { iteration, turn, answer, .. } => {
            ("llm_interaction", interaction(*iteration, *turn, answer))
        }
        Record::Compacted { before: (iteration, turn), from, answer, .. } => {
            let mut payload = interaction(*iteration, *turn, answer);
            payload["kept_from"] = json!({ "iteration": from.0 + 1, "turn": from.1 + 1 });
            ("conversation_compacted", payload)
        }
        Record::Called { key: (iteration, turn, call), name, result, .. } => {
            let at = json!({
                "iteration": iteration + 1, "turn": turn + 1, "call": call + 1, "name": name,
            });
            called(at, result)
        }
        Record::ModelAsked { request, model, bytes, words, wanted, .. } => (
            "llm_request_sent",
            json!({ "request": request, "model": model, "bytes": bytes, "words": words,
                "wanted": wanted }),
        ),
        Record::ModelAnswered { turn, answer, .. } => {
            let mut payload = json!(turn);
            payload["bytes"] = json!(answer.body.len());
            ("llm_interaction", payload)
        }
        Record::ModelFailed { request, status, error, .. } => {
            ("llm_request_failed", json!({ "request": request, "status": status, "error": error }))
        }
        Record::ModelReplayed { request, .. } => {
            ("llm_answer_repeated", json!({ "request": request }))
        }
        Record::ProgramCalls { iteration, turn, call, .. } => (
            "program_called",
            json!({ "iteration": iteration + 1, "turn": turn + 1, "call": 1, "name": call.name,
                "arguments": call.arguments }),
        ),
        Record::Acp { change, .. } => change.event(),
        Record::ProgramEnded { iteration, end, .. } => {
            let mut payload = json!(end);
            payload["iteration"] = json!(iteration + 1);
            ("program_ended", payload)
        }
        Record::IterationFailed { iteration, error, .. } => {
            ("iteration_failed", json!({ "iteration": iteration + 1, "error": error }))
        }
        Record::Stopped { by, .. } => ("chat_stopped", json!({ "by": by })),
        Record::Judging { about, .. } => judging(about),
        Record::Fork { about, .. } => about.event(),
        Record::Standstill { change, .. } => change.event(),
        Record::After { about, .. } => about.event(),
        Record::Ended { end: ExecutionEnd::Completed { output }, .. } => {
            ("execution_completed", json!({ "output": output }))
        }
        Record::Ended { end: ExecutionEnd::Failed { error }, .. } => {
            ("execution_failed", json!({ "error": error }))
        }
        Record::Ended { end: ExecutionEnd::Cancelled, .. } | Record::Cancelled { .. } => {
            ("execution_cancelled", json!({}))
        }
        Record::Account { change, .. } => change.event(),
        Record::Closed { error: None, workspaces, .. } => ("session_closed", json!(workspaces)),
        Record::Closed { error: Some(error), .. } => {
            ("session_left_open", json!({ "error": error }))
        }
    };
    RunEvent { event_type, payload }
}

fn started(begun: &ExecutionBegun) -> Value {
    let plan = &begun.plan;
    let mut payload = json!({
        "agent_id": plan.agent_id, "agent": plan.agent, "version": plan.version,
        "intent": plan.intent, "input": plan.input, "model": plan.model, "tools": plan.tools,
        "program": plan.program.as_ref().map(|program| &program.name),
    });
    if let Some(time) = plan.scheduled_for {
        payload["scheduled_for"] = json!(time);
    }
    if let Some(parent) = begun.parent {
        payload["parent"] = json!(parent);
    }
    payload
}

fn judging(record: &JudgingRecord) -> (&'static str, Value) {
    let (event_type, key, mut payload) = match record {
        JudgingRecord::Asked { key, agent, execution, .. } => {
            ("judge_started", key, json!({ "judge": agent, "execution_id": execution }))
        }
        JudgingRecord::Ended { key, execution, opinion, .. } => {
            let failed = matches!(opinion, JudgeOpinion::Failed { .. });
            let mut payload = json!(opinion);
            payload["execution_id"] = json!(execution);
            (if failed { "judge_failed" } else { "judge_completed" }, key, payload)
        }
        JudgingRecord::Validated { key, kind, verdict } => {
            let mut payload = json!(verdict);
            payload["type"] = json!(kind);
            ("validation_completed", key, payload)
        }
    };
    payload["validator"] = json!(key.validator + 1);
    let iteration = match key.subject {
        JudgedSubject::Output { iteration, .. } => iteration,
        JudgedSubject::Call { key: (iteration, turn, call) } => {
            (payload["turn"], payload["call"]) = (json!(turn + 1), json!(call + 1));
            iteration
        }
    };
    payload["iteration"] = json!(iteration + 1);
    (event_type, payload)
}

fn interaction(iteration: usize, turn: usize, answer: &TurnAnswer) -> Value {
    let calls =
        answer.calls.iter().map(|call| json!({ "name": call.name, "arguments": call.arguments }));
    json!({
        "iteration": iteration + 1, "turn": turn + 1, "text": answer.text,
        "calls": calls.collect::<Value>(), "calls_dropped": answer.calls_dropped,
        "stop": answer.stop, "model": answer.model, "provider_kind": answer.provider_kind,
        "input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens,
        "cost_micro_usd": answer.cost_micro_usd,
    })
}

fn called(mut at: Value, result: &CallEnd) -> (&'static str, Value) {
    let (event_type, key, value) = match result {
        CallEnd::Returned { text, bytes, .. } => {
            at["bytes"] = json!(bytes);
            ("tool_invocation_completed", "result", json!(text))
        }
        CallEnd::Failed { error } => ("tool_invocation_failed", "error", json!(error)),
        CallEnd::Interrupted => ("tool_invocation_interrupted", "result", Value::Null),
    };
    at[key] = value;
    (event_type, at)
}
