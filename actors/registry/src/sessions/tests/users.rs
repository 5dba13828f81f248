//! Tests of users' allowances: a new session is no new allowance, and a host is only so large.

use hivekeep_kernel::{Door, Resources};
use hivekeep_ports::SessionQuotas as _;
use serde_json::json;

use crate::{Attachment, CallRequest, OpenSession, Options, User, test_util::Stage};

async fn open(stage: &Stage, user: User) -> Attachment {
    let (door, client) = (Door::McpStdio, "one of many".to_owned());
    stage
        .sessions
        .open(OpenSession { door, client, user, resume: None, profile: Default::default() })
        .await
        .expect("opens")
}

fn factors(rate: u32, quota: u32) -> Options {
    let mut options = Options::default();
    options.user.rate_factor = rate.try_into().expect("above zero");
    options.user.quota_factor = quota.try_into().expect("above zero");
    options
}

#[tokio::test]
async fn who_opens_again_and_again_gets_no_new_burst() {
    let mut options = factors(2, 1);
    options.rate.exec_per_minute = 1.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let (mut passed, mut refused) = (0, Vec::new());
    for _ in 0..5 {
        let session = open(&stage, User::Uid(7)).await;
        for _ in 0..10 {
            let request = stage.request("toy_wait", json!({ "ms": 0 }));
            let request = CallRequest { session: session.session, ..request };
            match stage.dispatcher.call(request).await.result {
                Ok(_) => passed += 1,
                Err(error) => refused.push(error),
            }
        }
    }
    assert_eq!(passed, 20, "two sessions' bursts of ten, however many sessions");
    let error = refused.pop().expect("refused");
    assert_eq!((error.code.as_ref(), &error.details["of"]), ("rate_limited", &json!("user")));
    assert!(error.retry_after_ms.is_some() && error.message.contains("uid:7"), "{}", error.message);
    stage.call("toy_wait", json!({ "ms": 0 })).await.result.expect("another user's is untouched");
}

#[tokio::test]
async fn room_is_a_users_over_all_sessions_and_stays_so_after_a_restart() {
    let mut options = factors(1, 2);
    options.quota.max_workspaces = 2;
    let stage = Stage::new(options.clone()).await;
    let one = Resources::workspace(1, 1);
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = open(&stage, User::Bearer).await;
        for _ in 0..2 {
            stage.sessions.reserve(session.session, one).await.expect("there is room");
        }
        sessions.push(session);
    }
    let late = open(&stage, User::Bearer).await;
    let full = stage.sessions.reserve(late.session, one).await.expect_err("full");
    assert_eq!((full.code.as_ref(), &full.details["of"]), ("quota_exceeded", &json!("user")));
    let holders = full.details["holders"].as_array().expect("a list");
    assert_eq!((holders.len(), &holders[0]["workspaces"]), (2, &json!(2)));
    let other = open(&stage, User::Uid(3)).await;
    stage.sessions.reserve(other.session, one).await.expect("another user");

    // An end gives nothing back: what was owned is still there.
    let (first, second) = (sessions[0].session, sessions[1].session);
    stage.sessions.end(first).await.expect("ends");
    assert!(stage.sessions.reserve(late.session, one).await.is_err());
    // What is taken over from the same user is there already.
    stage.sessions.take_over(late.session, Some(first), one).await.expect("fits");
    stage.sessions.release(first, one);
    assert!(stage.sessions.reserve(late.session, one).await.is_err());
    let by_other = stage.sessions.take_over(late.session, Some(other.session), one).await;
    assert_eq!(by_other.expect_err("of another user it is not").details["of"], "user");

    let late = late.session;
    let stage = stage.restarted(options).await;
    for (session, count) in [(first, 1), (second, 2), (late, 1)] {
        (0..count).for_each(|_| stage.sessions.restore(session, one));
    }
    let full = stage.sessions.reserve(late, one).await.expect_err("full");
    assert_eq!(full.details["of"], "user");
    stage.sessions.release(second, one);
    stage.sessions.reserve(late, one).await.expect("there is room again");
}

#[tokio::test]
async fn all_sessions_together_get_what_the_host_has() {
    let room = Resources { memory_mb: 1_000, disk_gb: 50, workspaces: u64::MAX };
    let stage = Stage::on(Stage::loose(), room).await;
    let one = open(&stage, User::Uid(1)).await;
    let two = open(&stage, User::Bearer).await;
    stage.sessions.reserve(one.session, Resources::workspace(600, 1)).await.expect("fits");
    stage.sessions.reserve(two.session, Resources::workspace(400, 1)).await.expect("fits");
    let full = stage.sessions.reserve(two.session, Resources::workspace(1, 1)).await;
    let full = full.expect_err("full");
    assert_eq!((full.code.as_ref(), full.retryable), ("host_full", true));
    assert_eq!(
        (&full.details["exceeded"], &full.details["allowed"]["memory_mb"]),
        (&json!("memory_mb"), &json!(1_000))
    );
    let most = &full.details["holders"][0];
    assert_eq!((&most["session"], &most["memory_mb"]), (&json!(one.session), &json!(600)));
    assert!(full.next_step.expect("a step").contains("registry.host"));
    let taken = Resources { memory_mb: 600, disk_gb: 1, workspaces: 1 };
    let over = stage.sessions.take_over(two.session, Some(one.session), taken).await;
    over.expect("it is there already");
    stage.sessions.release(one.session, taken);
    stage.sessions.release(two.session, taken);
    stage.sessions.reserve(one.session, Resources::workspace(600, 1)).await.expect("fits again");
}
