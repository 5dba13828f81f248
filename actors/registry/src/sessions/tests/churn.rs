//! Sessions that come and go leave nothing that grows.

use std::time::{Duration, Instant};

use hivekeep_kernel::{Door, Resources, SessionId};
use hivekeep_ports::SessionQuotas as _;
use serde_json::json;

use crate::{
    CallRequest, OpenSession, Options, SessionState, User,
    test_util::{Stage, stage::eventually},
};

fn small() -> Options {
    let mut options = Stage::loose();
    options.sessions.max_sessions = 16.try_into().expect("above zero");
    options.sessions.max_ended = 20;
    options
}

async fn come_and_go(stage: &Stage, user: User, call: bool) -> SessionId {
    let (door, client) = (Door::McpStdio, "a passer-by".to_owned());
    let opened = stage
        .sessions
        .open(OpenSession { door, client, user, resume: None, profile: Default::default() })
        .await;
    let session = opened.expect("opens").session;
    if call {
        let request = stage.request("toy_echo", json!({ "text": "x" }));
        let request = CallRequest { session, ..request };
        stage.dispatcher.call(request).await.result.expect("passes");
    }
    session
}

/// Medians of the last and the first tenth, as a ratio. Printed: a time is no verdict.
fn last_to_first(took: &[Duration]) -> f64 {
    let tenth = took.len() / 10;
    let median = |some: &[Duration]| {
        let mut some = some.to_vec();
        some.sort_unstable();
        some[some.len() / 2].as_secs_f64()
    };
    median(&took[took.len() - tenth..]) / median(&took[..tenth])
}

fn streams(stage: &Stage) -> usize {
    stage.journal.streams("session/").expect("reads").len()
}

/// Waits until no more than `live + ended` sessions are listed and stored, `ended` of them over.
async fn settled(stage: &Stage, live: usize, ended: usize) {
    let most = live + ended;
    for _ in 0..2_000 {
        let rows = stage.sessions.list().await;
        // The end of a session is listed for a moment before the session is forgotten.
        let over = rows.iter().filter(|row| row.state == SessionState::Ended).count();
        if rows.len() <= most && over <= ended && streams(stage) <= most {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} sessions, {} streams", stage.sessions.list().await.len(), streams(stage));
}

/// How many come and go.
const MANY: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_did_nothing_leave_nothing() {
    let stage = Stage::new(small()).await;
    let (rounds, mut took) = (MANY / 8, Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        let opens = (0..8).map(|_| come_and_go(&stage, User::Uid(5), false));
        futures::future::join_all(opens).await;
        took.push(begun.elapsed());
    }
    println!("the last to the first: {:.2}", last_to_first(&took));
    settled(&stage, 16, 0).await;
    // Told one by one they would be three for each session.
    let last = stage.journal.events().last().get();
    assert!(last < MANY as u64 / 3, "{last} events");
    eventually("their actors are gone", || {
        stage.census.rows().iter().filter(|row| row.path.starts_with("sessions/")).count() <= 16
    })
    .await;
    let stage = stage.restarted(small()).await;
    assert!(stage.sessions.list().await.len() <= 17, "and a start reads no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_that_did_something_so_many_are_kept_and_all_that_own_something() {
    let stage = Stage::new(small()).await;
    let owner = come_and_go(&stage, User::Uid(5), true).await;
    stage.sessions.reserve(owner, Resources::workspace(1, 1)).await.expect("fits");
    stage.sessions.end(owner).await.expect("ends");
    for _ in 0..20 {
        let opens = (0..8).map(|_| come_and_go(&stage, User::Uid(5), true));
        futures::future::join_all(opens).await;
    }
    // 16 that are live, 20 that ended, and what has not been swept yet.
    settled(&stage, 16, 20 + 64 + 1).await;
    let rows = stage.sessions.list().await;
    assert!(rows.iter().any(|row| row.session == owner), "it still owns something");
    stage.crash("sessions").await;
    stage.sessions.release(owner, Resources::workspace(1, 1));
    for _ in 0..15 {
        let opens = (0..8).map(|_| come_and_go(&stage, User::Uid(5), true));
        futures::future::join_all(opens).await;
    }
    settled(&stage, 16, 20 + 64).await;
    let rows = stage.sessions.list().await;
    assert!(rows.iter().all(|row| row.session != owner), "it owns nothing any more");
    assert!(stage.sessions.standing(owner).await.ended);
}

#[tokio::test]
async fn one_user_leaves_places_to_others() {
    let stage = Stage::new(small()).await;
    let open = |user| {
        let (door, client) = (Door::McpHttp, "greedy".to_owned());
        stage.sessions.open(OpenSession {
            door,
            client,
            user,
            resume: None,
            profile: Default::default(),
        })
    };
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(open(User::Bearer).await.expect("three quarters"));
    }
    let error = open(User::Bearer).await.expect_err("no more of one user");
    assert_eq!((error.code.as_ref(), &error.details["allowed"]), ("too_many_sessions", &json!(12)));
    held.push(open(User::Uid(1)).await.expect("another user's"));
}
