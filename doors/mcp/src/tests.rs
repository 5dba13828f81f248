use std::time::Duration;

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{CallId, Layer, ToolError, tool::plain_result};
use hivekeep_ports::{OldestWaiting, WaitingSummary};
use hivekeep_registry::CallOutcome;
use rmcp::model::ProtocolVersion;
use serde_json::json;

use super::answer;

fn outcome(result: Result<serde_json::Value, ToolError>) -> CallOutcome {
    let (duration, notices) = (Duration::ZERO, Vec::new());
    let (call, from_source) = (CallId::new(), false);
    CallOutcome { call, result, from_source, duration, notices, waiting: None, receipt: None }
}

#[test]
fn a_success_is_structured_and_text() {
    let answer =
        answer::of(outcome(Ok(json!({"exit_code": 1}))), None, plain_result).expect("a result");
    let answer = serde_json::to_value(answer).expect("serialises");
    assert_eq!(answer["isError"], false);
    assert_eq!(answer["structuredContent"], json!({"exit_code": 1}));
    assert_eq!(answer["content"][0]["text"], r#"{"exit_code":1}"#);
}

#[test]
fn blocks_of_another_server_or_a_tool_are_a_complete_result() {
    let foreign = json!({ "content": [{ "type": "text", "text": "hello" }] });
    let foreign = CallOutcome { from_source: true, ..outcome(Ok(foreign)) };
    let image = |value: &serde_json::Value| {
        let block = json!({ "type": "image", "data": value["data"], "mimeType": "image/png" });
        Some(vec![block])
    };
    let own = outcome(Ok(json!({ "data": "AAAA" })));
    for (outcome, kind, structured) in
        [(foreign, "text", None), (own, "image", Some(json!({ "data": "AAAA" })))]
    {
        let answer = answer::of(outcome, None, image).expect("a result");
        let answer = serde_json::to_value(answer).expect("serialises");
        assert_eq!(answer["resultType"], "complete", "{answer}");
        assert_eq!(answer["content"][0]["type"], kind, "{answer}");
        assert_eq!(answer.get("structuredContent"), structured.as_ref(), "{answer}");
    }
}

#[test]
fn a_refusal_is_for_the_model_to_read() {
    let error = ToolError::foreign(Layer::Rate, "rate_limited", "too fast")
        .next("wait")
        .retry_after(Duration::from_secs(2));
    let mut outcome = outcome(Err(error));
    outcome.notices.push("a notice".to_owned());
    let answer = serde_json::to_value(answer::of(outcome, None, plain_result).expect("a result"))
        .expect("serialises");
    assert_eq!(answer["isError"], true);
    // Official clients hold structured content against the output schema.
    assert!(answer.get("structuredContent").is_none(), "{answer}");
    let whole = answer["content"][1]["text"].as_str().expect("text");
    let whole: serde_json::Value = serde_json::from_str(whole).expect("JSON");
    assert_eq!(whole["error"]["retry_after_ms"], 2000);
    assert_eq!(
        answer["content"][0]["text"],
        "rate_limited: too fast. Next: wait (retry_after_ms: 2000)"
    );
    assert_eq!(answer["content"][2]["text"], "a notice");
}

#[test]
fn a_result_that_is_kept_elsewhere_is_linked_for_clients_that_know_links() {
    let kept =
        json!({ "uri": "hivekeep://artifacts/art_1", "bytes": 9, "mime_type": "application/json" });
    let error = ToolError::foreign(Layer::Result, "result_too_large", "too large");
    let error = error.detail("artifact", kept);
    let linked = |revision| {
        let answer = answer::of(outcome(Err(error.clone())), Some(revision), plain_result)
            .expect("a result");
        serde_json::to_value(answer).expect("serialises")["content"].clone()
    };
    let link = &linked(ProtocolVersion::V_2025_06_18)[2];
    assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(9)), "{link}");
    assert_eq!(link["uri"], "hivekeep://artifacts/art_1");
    assert!(linked(ProtocolVersion::V_2025_03_26).get(2).is_none());
}

#[test]
fn what_waits_is_told_behind_a_result_and_changes_nothing_of_it() {
    let oldest = OldestWaiting {
        team: "crew".to_owned(),
        member: "lead".to_owned(),
        from: "hand".to_owned(),
        since: Utc::now() - TimeDelta::seconds(75),
    };
    let waits = WaitingSummary { messages: 2, results: 1, oldest };
    let fails = || ToolError::foreign(Layer::Rate, "rate_limited", "too fast");
    for result in [Ok(json!({"exit_code": 1})), Err(fails())] {
        let plain = answer::of(outcome(result.clone()), None, plain_result).expect("a result");
        let told = CallOutcome { waiting: Some(waits.clone()), ..outcome(result) };
        let told = answer::of(told, None, plain_result).expect("a result");
        let (line, rest) = told.content.split_last().expect("the line");
        assert_eq!(rest, plain.content);
        assert_eq!(told.structured_content, plain.structured_content);
        let line = line.as_text().expect("text").text.clone();
        assert!(
            line.contains("2 messages and 1 result wait, the oldest from `hand` for 75 s"),
            "{line}"
        );
        assert!(
            line.ends_with(r#"team {"action":"receive","name":"crew","agent":"lead"}"#),
            "{line}"
        );
        let field = &told.meta.expect("a field")["hivekeep/waiting"];
        let oldest = json!({ "team": "crew", "agent": "lead", "from": "hand", "age_secs": 75 });
        assert_eq!(*field, json!({ "messages": 2, "results": 1, "oldest": oldest }));
    }
}

#[test]
fn a_tool_that_is_not_there_is_a_protocol_error() {
    let error = ToolError::foreign(Layer::Resolve, "unknown_tool", "no tool `exce`").next("exec?");
    let error = answer::of(outcome(Err(error)), None, plain_result).expect_err("a protocol error");
    assert_eq!(error.code, rmcp::model::ErrorCode::INVALID_PARAMS);
    // The same layer names workspaces; those the model should read about.
    let error = ToolError::foreign(Layer::Resolve, "workspace_not_found", "no workspace `x`");
    assert!(answer::of(outcome(Err(error)), None, plain_result).is_ok());
}
