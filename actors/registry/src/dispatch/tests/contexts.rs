//! Limits of security contexts on the calls of a session: how many at a time, and how large their results.

use hivekeep_policy::{CapabilityOptions, ContextOptions, Options, ToolPattern};
use serde_json::json;

use crate::test_util::Stage;

async fn stage(max_result_bytes: Option<usize>, max_calls: Option<u32>) -> Stage {
    let all = ToolPattern::try_from("*".to_owned()).expect("a pattern");
    let capability =
        CapabilityOptions { tools: vec![all], paths: None, commands: None, domains: None };
    let context = ContextOptions {
        capabilities: vec![capability],
        max_result_bytes,
        max_calls,
        ..ContextOptions::default()
    };
    Stage::ruled(Options {
        contexts: [("small".to_owned(), context)].into(),
        default_context: Some("small".to_owned()),
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn a_result_above_the_contexts_limit_is_kept_like_one_above_the_tools() {
    let stage = stage(Some(64), None).await;
    let small = stage.call("toy_echo", json!({ "text": "x" })).await;
    small.result.expect("it fits");
    let large = stage.call("toy_echo", json!({ "text": "x", "times": 100 })).await;
    let error = large.result.expect_err("too large");
    assert_eq!(
        (error.code.as_ref(), &error.details["budget_bytes"]),
        ("result_too_large", &json!(64))
    );
    assert_eq!(stage.keeper.kept.lock().expect("no panic").len(), 1);
}

#[tokio::test]
async fn one_call_more_than_the_context_allows_at_a_time_is_refused() {
    let stage = stage(None, Some(1)).await;
    let first = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let cancel = first.cancel.clone();
    let (dispatcher, running) = (stage.dispatcher.clone(), first);
    let running = tokio::spawn(async move { dispatcher.call(running).await });
    while stage.dispatcher.targets().await.expect("an answer").is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = stage.call("toy_echo", json!({ "text": "x" })).await.result.expect_err("refused");
    assert_eq!((refused.code.as_ref(), refused.retryable), ("busy", true));
    assert_eq!(refused.details["max_calls"], 1);
    cancel.cancel();
    running.await.expect("no panic").result.expect_err("cancelled");
    let again = stage.call("toy_echo", json!({ "text": "x" })).await;
    again.result.expect("there is room again");
}
