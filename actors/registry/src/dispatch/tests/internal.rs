//! The daemon's own calls for a session.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::{Progress, Resources, SessionId, view::ToolView};
use hivekeep_policy::{RuleEffect, RuleOptions, ToolPattern};
use hivekeep_ports::{InternalCall, LateTools, Reservation, Tools};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    test_util::{Stage, stage::eventually},
};

fn errand(session: SessionId, secs: u64) -> InternalCall {
    InternalCall {
        session,
        deadline: Instant::now() + Duration::from_secs(secs),
        cancel: CancellationToken::new(),
        progress: Progress::default(),
        reserved: None,
    }
}

fn tools(stage: &Stage) -> &dyn Tools {
    &stage.dispatcher
}

#[tokio::test]
async fn it_passes_schema_and_admission_takes_no_tokens_and_is_told() {
    let mut options = Options::default();
    options.rate.default_burst = 1.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let session = stage.attachment.session;
    for _ in 0..3 {
        let said = tools(&stage).call(errand(session, 9), "toy_echo", json!({ "text": "x" })).await;
        assert_eq!(said.expect("no tokens are taken")["text"], "x");
    }
    let wrong = tools(&stage).call(errand(session, 9), "toy_echo", json!({ "txt": "x" })).await;
    assert_eq!(wrong.expect_err("refused").code, "invalid_input");
    let none = tools(&stage).call(errand(session, 9), "toy_none", json!({})).await;
    assert_eq!(none.expect_err("refused").code, "unknown_tool");
    let told = stage.events("call.finished", 5).await;
    assert!(told.iter().all(|event| event.data["door"] == "internal"));
    let outcomes: Vec<_> = told.iter().filter_map(|event| event.data["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "invalid_input", "unknown_tool"]);
}

#[tokio::test]
async fn a_call_is_allowed_by_its_own_input_and_without_a_person() {
    let rule = |effect, text: &str| RuleOptions {
        name: text.to_owned(),
        effect,
        tools: vec![ToolPattern::try_from("toy_echo".to_owned()).expect("a pattern")],
        when: Some(format!("args.text == \"{text}\"")),
        why: String::new(),
    };
    let rules = vec![rule(RuleEffect::Ask, "ask"), rule(RuleEffect::Deny, "deny")];
    let options = hivekeep_policy::Options { rules, ..hivekeep_policy::Options::default() };
    let stage = Stage::ruled(options).await;
    let allows = |session, tool, text: &str| {
        tools(&stage).allows(session, &ToolView::default(), tool, &json!({ "text": text }))
    };
    let session = stage.attachment.session;
    for (text, allowed) in [("x", true), ("ask", false), ("deny", false)] {
        assert_eq!(allows(session, "toy_echo", text), allowed, "{text}");
    }
    assert!(!allows(session, "toy_none", "x") && !allows(SessionId::new(), "toy_echo", "x"));
}

#[tokio::test]
async fn a_session_that_is_over_or_unknown_is_still_acted_for() {
    let stage = Stage::new(Stage::loose()).await;
    let over = stage.attachment.session;
    stage.sessions.end(over).await.expect("ends");
    assert_eq!(stage.refusal("toy_echo", json!({ "text": "x" })).await.code, "session_ended");
    for session in [over, SessionId::new()] {
        let said = tools(&stage).call(errand(session, 9), "toy_echo", json!({ "text": "x" })).await;
        assert_eq!(said.expect("acted for")["text"], "x");
    }
}

#[tokio::test]
async fn a_cancelled_one_answers_when_its_work_has_ended() {
    let stage = Stage::new(Stage::loose()).await;
    let errand = errand(stage.attachment.session, 60);
    let cancel = errand.cancel.clone();
    let dispatcher = stage.dispatcher.clone();
    let calling = tokio::spawn(async move {
        let args = json!({ "ms": 300, "stubborn": true });
        Tools::call(&dispatcher, errand, "toy_wait", args).await
    });
    eventually("it waits", || stage.marks.running.load(SeqCst) == 1).await;
    cancel.cancel();
    let ended = calling.await.expect("no panic");
    assert_eq!(stage.marks.running.load(SeqCst), 0, "answered before the work had ended");
    assert!(ended.is_ok(), "the toy did not listen: {ended:?}");
}

#[tokio::test]
async fn what_was_reserved_for_it_is_there_as_long_as_it_works() {
    let stage = Stage::new(Stage::loose()).await;
    let session = stage.attachment.session;
    let used = async || stage.sessions.list().await[0].used;
    let one = Resources::workspace(1, 1);
    let reserved = Reservation::take(std::sync::Arc::new(stage.sessions.clone()), session, one);
    let reserved = Some(reserved.await.expect("there is room"));
    let (errand, dispatcher) =
        (InternalCall { reserved, ..errand(session, 60) }, stage.dispatcher.clone());
    let calling = tokio::spawn(async move {
        Tools::call(&dispatcher, errand, "toy_wait", json!({ "ms": 300 })).await
    });
    eventually("it waits", || stage.marks.running.load(SeqCst) == 1).await;
    assert_eq!(used().await, one, "the call brought it");
    calling.await.expect("no panic").expect("waited");
    while used().await != Resources::default() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_deadline_cuts_it_short() {
    let stage = Stage::new(Stage::loose()).await;
    let late = tools(&stage)
        .call(errand(stage.attachment.session, 1), "toy_wait", json!({ "ms": 60_000 }))
        .await;
    assert_eq!(late.expect_err("late").code, "deadline_exceeded");
}

#[tokio::test]
async fn tools_that_are_not_wired_yet_are_asked_again() {
    let stage = Stage::new(Stage::loose()).await;
    let late = LateTools::default();
    let session = stage.attachment.session;
    let args = json!({ "text": "x" });
    let error = late.call(errand(session, 9), "toy_echo", args.clone()).await.expect_err("early");
    assert!(error.retryable && error.code == "actor_unavailable");
    late.wire(std::sync::Arc::new(stage.dispatcher.clone()));
    late.call(errand(session, 9), "toy_echo", args).await.expect("wired");
}
