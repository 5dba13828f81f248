//! Results that are too large: kept for their users, and told.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::Progress;
use hivekeep_ports::{InternalCall, LargeResult, Tools};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    ToolView,
    test_util::{Stage, stage::USER},
};

fn kept(stage: &Stage) -> Vec<LargeResult> {
    stage.keeper.kept.lock().expect("no panic").clone()
}

fn large() -> Value {
    json!({ "text": "é", "times": 40_000 })
}

#[tokio::test]
async fn a_result_over_its_budget_is_kept_whole_for_its_user_and_told_where() {
    let stage = Stage::new(Stage::loose()).await;
    let outcome = stage.call("toy_echo", large()).await;
    let error = outcome.result.expect_err("too large");
    assert_eq!(error.code, "result_too_large");
    let all = kept(&stage);
    assert_eq!((all.len(), all[0].user, all[0].tool), (1, USER, "toy_echo"));
    assert_eq!((all[0].session, all[0].call), (stage.attachment.session, outcome.call));
    assert_eq!(all[0].value, json!({ "text": "é".repeat(40_000) }));
    let told = &error.details["artifact"];
    assert_eq!((&told["uri"], &told["bytes"]), (&json!("toy://kept"), &json!(80_011)), "{told}");
    assert_eq!(told["expires_at"], "1970-01-01T00:00:00Z");
    assert!(
        error.details["preview"].as_str().is_some_and(|shown| shown.starts_with(r#"{"text":"é"#))
    );
    assert!(error.message.ends_with("all of it is kept as toy://kept"), "{}", error.message);
    let step = error.next_step.expect("a step");
    assert_eq!(step, "read it in ranges with `toy_echo`, or ask for less");
    assert_eq!(stage.events("call.finished", 1).await[0].data["outcome"], "result_too_large");
}

#[tokio::test]
async fn whoever_is_not_shown_the_reader_is_sent_to_the_operator() {
    let stage = Stage::new(Stage::loose()).await;
    let only = Some(vec!["toy boxes".to_owned()]);
    let mut request = stage.request("toy_look", json!({ "toy_id": "red" }));
    request.view = ToolView { toolsets: only, ..ToolView::default() }.into();
    stage.dispatcher.call(request.clone()).await.result.expect("it fits");
    let owner = crate::dispatch::limit::step_for(&request.view, &stage.catalogue, "toy_echo");
    assert_eq!(owner, "have the operator read it with `hivekeep artifact get`");
}

#[tokio::test]
async fn where_it_is_not_kept_the_refusal_says_so() {
    let stage = Stage::new(Stage::loose()).await;
    stage.keeper.refuses.store(1, SeqCst);
    let error = stage.refusal("toy_echo", large()).await;
    assert_eq!(error.code, "result_too_large");
    assert_eq!(error.details["not_kept"]["code"], "toys_full");
    assert_eq!(error.details.get("artifact"), None);
    assert_eq!((kept(&stage).len(), error.next_step.as_deref()), (0, Some("ask for less")));
}

#[tokio::test]
async fn the_daemons_own_calls_keep_for_the_user_of_the_session_while_there_is_one() {
    let stage = Stage::new(Stage::loose()).await;
    let call = || {
        let errand = InternalCall {
            session: stage.attachment.session,
            deadline: Instant::now() + Duration::from_secs(9),
            cancel: CancellationToken::new(),
            progress: Progress::default(),
            reserved: None,
        };
        Tools::call(&stage.dispatcher, errand, "toy_echo", large())
    };
    let error = call().await.expect_err("too large");
    assert_eq!((kept(&stage).len(), kept(&stage)[0].user), (1, USER), "{error:?}");
    stage.sessions.end(stage.attachment.session).await.expect("ends");
    let error = call().await.expect_err("too large");
    assert_eq!(error.details["not_kept"]["code"], "session_ended");
    assert_eq!(kept(&stage).len(), 1);
}
