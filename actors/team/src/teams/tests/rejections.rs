//! Messages that are refused are limited, too.

use hivekeep_kernel::SessionId;
use serde_json::json;

use super::stage::{Stage, speech};
use crate::Options;

/// Three wrong ones at once, and one more in a minute.
async fn strict() -> Stage {
    let options = Options { message_burst: 3, messages_per_minute: 1, ..Options::default() };
    let stage = Stage::with(options).await;
    stage.create("crew", &["a", "b"]).await;
    stage
}

#[tokio::test]
async fn messages_to_a_foreign_team_are_limited_and_nothing_is_looked_at_for_them() {
    let stage = strict().await;
    let thief = SessionId::new();
    let tries = async || {
        let said = stage.begin_as(thief, speech("a", "b", "x")).answer().await;
        said.expect_err("it is another's")
    };
    for _ in 0..4 {
        assert_eq!(tries().await.code, "not_owner");
    }
    let lists = stage.fake.with(|world| world.lists);
    for _ in 0..3 {
        let error = tries().await;
        assert_eq!((error.code.as_ref(), error.retryable), ("rate_limited", true));
        assert!(error.retry_after_ms.is_some_and(|wait| wait > 0), "{error}");
    }
    assert_eq!(stage.fake.with(|world| world.lists), lists);
    // Others are not held up by it, and what is received is not counted.
    stage.say("a", "b", "x").await;
    stage.call(json!({ "action": "receive", "name": "crew", "agent": "b" })).await;
}

#[tokio::test]
async fn so_are_those_that_make_no_sense() {
    let stage = strict().await;
    let mut nowhere = speech("a", "b", "x");
    nowhere["name"] = json!("nobody");
    let mut task = speech("a", "b", "{}");
    task["message_type"] = json!("task_assignment");
    let codes = [
        (nowhere, "team_not_found"),
        (speech("nobody", "b", "x"), "member_not_found"),
        (speech("a", "nobody", "x"), "member_not_found"),
        (task, "invalid_task"),
        (speech("a", "b", "x"), "rate_limited"),
    ];
    for (args, code) in codes {
        assert_eq!(stage.refused(args.clone()).await.code, code, "{args}");
    }
}
