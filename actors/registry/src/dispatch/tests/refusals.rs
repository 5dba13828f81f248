//! What each layer refuses, and how it says so.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::Layer;
use serde_json::{Value, json};

use crate::{Options, ToolView, test_util::Stage};

#[tokio::test]
async fn an_unknown_tool_is_told_the_nearest() {
    let stage = Stage::new(Stage::loose()).await;
    let error = stage.refusal("toy_ecko", json!({})).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Resolve, "unknown_tool"));
    assert_eq!(error.details["nearest"][0], "toy_echo");
    assert!(error.next_step.expect("a step").contains("toy_echo"));
    let long = stage.refusal(&"x".repeat(100_000), json!({})).await;
    assert!(long.message.len() < 200);
}

#[tokio::test]
async fn both_forms_of_a_name_call_the_same_tool() {
    let stage = Stage::new(Stage::loose()).await;
    for name in ["toy.admin", "toy_admin"] {
        let said = stage.call(name, json!({})).await.result.expect("an operator may");
        assert_eq!(said["text"], "toy.admin");
    }
}

#[tokio::test]
async fn what_is_not_in_the_view_cannot_be_called() {
    let stage = Stage::new(Stage::loose()).await;
    let call = async |view: ToolView| {
        let mut request = stage.request("toy.admin", json!({}));
        request.view = Arc::new(view);
        stage.dispatcher.call(request).await.result.expect_err("refused")
    };
    let tier = call(ToolView::default()).await;
    assert_eq!((tier.layer, &tier.details["policy"]), (Layer::Policy, &json!("visibility")));
    let toolsets = Some(vec!["toy boxes".to_owned()]);
    let toolset = call(ToolView { toolsets, ..ToolView::operator() }).await;
    assert_eq!((toolset.layer, &toolset.details["policy"]), (Layer::Policy, &json!("toolset")));
    assert!(toolset.message.contains("toys"), "{}", toolset.message);
}

#[tokio::test]
async fn every_violation_is_told_with_its_pointer() {
    let stage = Stage::new(Stage::loose()).await;
    let bad = json!({ "times": "three", "tokens": -1, "colour": "green", "txt": "x", "a/b": 1 });
    let error = stage.refusal("toy_echo", bad).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Schema, "invalid_input"));
    let violations = error.details["violations"].as_array().expect("a list");
    let expected_at = |pointer: &str| {
        let found = violations.iter().find(|one| one["pointer"] == pointer);
        found.unwrap_or_else(|| panic!("{pointer} in {violations:?}"))["expected"].to_string()
    };
    assert!(expected_at("/text").contains("to be there"));
    assert!(expected_at("/times").contains("integer"));
    assert!(expected_at("/tokens").contains("at least 0"));
    let colours = expected_at("/colour");
    assert!(["red", "blue", "null"].iter().all(|one| colours.contains(one)), "{colours}");
    assert!(expected_at("/txt").contains("no such property"));
    assert!(expected_at("/a~1b").contains("no such property"));
    assert_eq!(violations.len(), 6);
    assert!(error.next_step.expect("a step").contains("text (required)"));
}

#[tokio::test]
async fn values_are_not_repeated_in_a_refusal() {
    let stage = Stage::new(Stage::loose()).await;
    let secret = "correct horse battery staple";
    let bad = json!({ "text": [secret], "times": secret, "colour": secret });
    let text = serde_json::to_string(&stage.refusal("toy_echo", bad).await).expect("serialises");
    assert!(!text.contains(secret), "{text}");
}

#[tokio::test]
async fn buckets_are_per_session_and_say_when_to_come_back() {
    let mut options = Options::default();
    options.rate.default_burst = 2.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let echo = |tokens: u64| json!({ "text": "x", "tokens": tokens });
    let never = stage.refusal("toy_echo", echo(3)).await;
    assert_eq!((never.layer, never.code.as_ref()), (Layer::Rate, "rate_impossible"));
    assert_eq!((never.retryable, &never.details["burst"]), (false, &json!(2)));
    stage.call("toy_echo", echo(2)).await.result.expect("the refused call took none");
    let slow = stage.refusal("toy_echo", echo(1)).await;
    assert_eq!((slow.layer, slow.code.as_ref()), (Layer::Rate, "rate_limited"));
    let wait_ms = slow.retry_after_ms.expect("a hint");
    assert!(slow.retryable && (1..=500).contains(&wait_ms), "{wait_ms}");
    stage.call("toy_echo", echo(0)).await.result.expect("no tokens are always there");
    stage.call("toy_wait", json!({ "ms": 0 })).await.result.expect("another bucket");

    let other = crate::OpenSession {
        door: hivekeep_kernel::Door::Cli,
        client: "other".to_owned(),
        user: crate::User::Uid(2),
        resume: None,
        profile: Default::default(),
    };
    let other = stage.sessions.open(other).await.expect("opens");
    let mut request = stage.request("toy_echo", echo(2));
    request.session = other.session;
    stage.dispatcher.call(request).await.result.expect("another session");

    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    stage.call("toy_echo", echo(1)).await.result.expect("after the hint");
}

#[tokio::test]
async fn an_ended_session_calls_nothing() {
    let stage = Stage::new(Stage::loose()).await;
    stage.sessions.end(stage.attachment.session).await.expect("ends");
    let error = stage.refusal("toy_echo", json!({ "text": "x" })).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Session, "session_ended"));
}

#[tokio::test]
async fn a_result_over_its_budget_is_refused_with_the_budget() {
    let stage = Stage::new(Stage::loose()).await;
    let echo = |times: usize| json!({ "text": "é", "times": times });
    let fits = stage.call("toy_echo", echo(30_000)).await.result.expect("60,000 bytes fit");
    assert_eq!(fits["text"].as_str().map(str::len), Some(60_000));
    let error = stage.refusal("toy_echo", echo(40_000)).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Result, "result_too_large"));
    assert_eq!(error.details["budget_bytes"], 64 * 1024);
}

#[tokio::test]
async fn credentials_are_hidden_in_errors_and_left_in_results() {
    let stage = Stage::new(Stage::loose()).await;
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let error = stage.refusal("toy_fail", json!({ "message": secret })).await;
    assert_eq!(error.message, "[redacted]");
    let said = stage.call("toy_echo", json!({ "text": secret })).await.result.expect("said");
    assert_eq!(said["text"], Value::String(secret));
}

#[tokio::test]
async fn a_field_addresses_an_actor_or_is_told_there_is_none() {
    let stage = Stage::new(Stage::loose()).await;
    let seen = stage.call("toy_look", json!({ "toy_id": "red" })).await.result.expect("there");
    assert_eq!(seen["text"], "red");
    let error = stage.refusal("toy_look", json!({ "toy_id": "green" })).await;
    assert_eq!(error.code, "toy_not_found");
}

#[tokio::test]
async fn refused_calls_are_told_one_by_one_while_they_are_few() {
    let stage = Stage::new(Stage::loose()).await;
    for _ in 0..1_000 {
        let refused = stage.refusal("toy_echo", json!({})).await;
        assert_eq!(refused.code, "invalid_input", "the caller is told each time");
    }
    let unknown = stage.request("toy_echo", json!({}));
    let unknown = crate::CallRequest { session: hivekeep_kernel::SessionId::new(), ..unknown };
    stage.dispatcher.call(unknown).await.result.expect_err("refused");
    stage.call("toy_echo", json!({ "text": "x" })).await.result.expect("what passes is told");
    // The supervisor tells what it counted when it stops, too.
    stage
        .supervisor
        .send(crate::test_util::stage::Order::Stop("sessions"))
        .expect("the supervisor lives");
    let summary = stage.events("calls.refused", 1).await.remove(0);
    let told = stage.events("call.finished", 22).await;
    let outcome = |nth: usize| told[nth].data["outcome"].clone();
    assert_eq!((outcome(19), outcome(20)), (json!("invalid_input"), json!("session_unknown")));
    assert_eq!(outcome(21), "ok", "20 of the thousand, the stranger's, and the last");
    let session = stage.attachment.session.to_string();
    assert_eq!(summary.data["total"], 980, "nothing is lost: {}", summary.data);
    assert_eq!(summary.data["counts"], json!({ "invalid_input": 980 }));
    assert_eq!(summary.data["sessions"], json!({ session: 980 }));
    assert_eq!((&summary.subject, &summary.data["user"]), (&"uid:1".to_owned(), &json!("uid:1")));
    let last = stage.journal.events().last().get();
    assert!(last < 40, "{last} events of a thousand refusals");
}

#[tokio::test]
async fn an_input_that_is_dear_to_look_at_is_refused_first() {
    let stage = Stage::new(Stage::loose()).await;
    let wide: serde_json::Map<_, _> = (0..30_000).map(|n| (format!("p{n}"), json!(1))).collect();
    let error = stage.refusal("toy_ecko", Value::Object(wide)).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Schema, "invalid_input"));
    let told = &stage.events("call.finished", 1).await[0].data;
    assert!(told["args_digest"].is_null(), "nothing was sorted: {told}");
}
