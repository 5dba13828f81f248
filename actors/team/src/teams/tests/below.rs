//! Removing teams that others are below, and calls that wait for it.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::SessionId;
use serde_json::{Value, json};

use super::stage::{Stage, eventually, plan};
use crate::teams::{Inner, Msg, ids};

fn destroy(name: &str) -> Value {
    json!({ "action": "destroy", "name": name })
}

fn below(name: &str, parent: &str) -> Value {
    let mut args = plan(name, &["b"]);
    args["parent_team"] = json!(parent);
    args
}

/// The teams `top` and, below it, `low`, of a member each; the workspace of that one.
async fn family() -> (Stage, String) {
    let stage = Stage::new().await;
    stage.create("top", &["a"]).await;
    stage.call(below("low", "top")).await;
    let low = stage.fake.names().into_iter().find(|name| name.starts_with("low-"));
    (stage, low.expect("it is made"))
}

async fn states(stage: &Stage) -> Vec<(String, String)> {
    let text = |row: &Value, field: &str| row[field].as_str().expect("a text").to_owned();
    stage.teams().await.iter().map(|row| (text(row, "name"), text(row, "state"))).collect()
}

#[tokio::test]
async fn a_team_stays_with_all_it_has_as_long_as_one_below_it_does() {
    let (stage, stuck) = family().await;
    stage.fake.with(|world| world.stuck.insert(stuck.clone()));
    let error = stage.refused(destroy("top")).await;
    assert_eq!(error.code, "team_not_destroyed");
    let top = stage.fake.names().into_iter().find(|name| name.starts_with("top-"));
    assert_eq!(error.details["left"], json!([stuck, top.expect("it is there")]));
    let rows = &error.details["members"];
    assert_eq!((&rows[0]["destroyed"], &rows[1]["destroyed"]), (&json!(false), &json!(false)));
    assert!(rows[1]["error"].as_str().is_some_and(|why| why.contains("`low`")), "{rows}");
    let both = ["top", "low"].map(|name| (name.to_owned(), "destroying".to_owned()));
    assert_eq!(states(&stage).await, both);
    // Called again, it goes on with both.
    stage.fake.with(|world| world.stuck.clear());
    let gone = stage.call(destroy("top")).await;
    assert_eq!(gone["members"].as_array().map(Vec::len), Some(2));
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
}

#[tokio::test]
async fn a_start_goes_on_with_the_lowest_and_with_those_above_when_it_is_gone() {
    let (stage, stuck) = family().await;
    stage.fake.with(|world| world.stuck.insert(stuck));
    assert_eq!(stage.refused(destroy("top")).await.code, "team_not_destroyed");
    stage.fake.with(|world| world.asked_to_remove.clear());
    let stage = stage.crashed().await;
    let of_low = async || {
        eventually("the lowest is gone on with", async || {
            stage.fake.with(|world| !world.asked_to_remove.is_empty())
        })
        .await;
    };
    of_low().await;
    // An actor that is started again does not run ahead either.
    stage.kill_teams();
    stage.fake.with(|world| world.asked_to_remove.clear());
    of_low().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(stage.fake.with(|world| world.removed.len()), 0);
    assert_eq!(stage.teams().await.len(), 2);
    stage.fake.with(|world| world.stuck.clear());
    stage.call(destroy("low")).await;
    // The one above was waiting for it.
    stage.until_none().await;
    let order = stage.fake.with(|world| world.removed.clone());
    assert!(order[0].starts_with("low-") && order[1].starts_with("top-"), "{order:?}");
    assert!(stage.fake.names().is_empty());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
}

#[tokio::test]
async fn who_may_not_remove_a_team_opens_none_that_another_one_closed() {
    let (stage, _) = family().await;
    let id = stage.call(json!({ "action": "status", "name": "top" })).await["team_id"].clone();
    let id = id.as_str().expect("an id").parse().expect("an id");
    let close = async || {
        let close = |reply| Msg(Inner::Close(id, reply));
        let closed = stage.teams.ask(Duration::from_secs(60), close).await;
        closed.expect("it answers").expect("they are closed")
    };
    let mine = close().await;
    let error = stage.begin_as(SessionId::new(), destroy("top")).answer().await.expect_err("no");
    assert_eq!(error.code, "not_owner");
    assert_eq!(stage.refused(below("new", "low")).await.code, "team_state");
    stage.teams.send(Msg(Inner::Reopen(ids(&mine)))).expect("it is there");
    stage.call(below("new", "low")).await;
    // A call that has gone does not keep them closed.
    let (reply, gone) = tokio::sync::oneshot::channel();
    drop(gone);
    stage.teams.send(Msg(Inner::Close(id, reply))).expect("it is there");
    stage.call(below("newer", "low")).await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_removal_holds_no_place_and_its_end_stops_nothing() {
    let (stage, _) = family().await;
    stage.fake.with(|world| world.slow_end = Duration::from_millis(300));
    let call = stage.begin(destroy("top"));
    eventually("its place is given back", async || stage.given_back.load(SeqCst) == 1).await;
    assert_eq!(stage.fake.names().len(), 2, "none is removed yet");
    call.cancel.cancel();
    assert_eq!(call.answer().await.expect_err("cancelled").code, "cancelled");
    stage.until_none().await;
    assert!(stage.fake.names().is_empty());
}

#[tokio::test]
async fn so_many_calls_may_wait_for_one_removal() {
    let (stage, _) = family().await;
    stage.fake.with(|world| world.slow_end = Duration::from_secs(3_600));
    let begin = || stage.begin(destroy("top"));
    let mut calls: Vec<_> = (0..16).map(|_| begin()).collect();
    eventually("all wait", async || stage.given_back.load(SeqCst) == 16).await;
    let error = begin().answer().await.expect_err("one too many");
    assert_eq!((error.code.as_ref(), error.retryable), ("too_many_waiting", true));
    // Of another team it may.
    stage.create("other", &["c"]).await;
    let other = stage.begin(destroy("other"));
    eventually("it is removed", async || stage.fake.with(|world| world.asked_to_remove.len()) == 2)
        .await;
    other.cancel.cancel();
    let last = calls.pop().expect("sixteen");
    last.cancel.cancel();
    assert_eq!(last.answer().await.expect_err("cancelled").code, "cancelled");
    let _again = begin();
    eventually("one has left its place", async || stage.given_back.load(SeqCst) == 18).await;
    // One removal of the lowest, whoever waits for it.
    assert_eq!(stage.fake.with(|world| world.asked_to_remove.len()), 2);
}
