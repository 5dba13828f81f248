//! Messages from member to member.

use std::time::Duration;

use hivekeep_kernel::SessionId;
use serde_json::{Value, json};

use super::stage::{Stage, eventually, said, speech};
use crate::Options;

fn receive(agent: &str) -> Value {
    json!({ "action": "receive", "name": "crew", "agent": agent })
}

async fn crew(options: Options) -> Stage {
    let stage = Stage::with(options).await;
    stage.create("crew", &["a", "b", "c"]).await;
    stage
}

#[tokio::test]
async fn messages_go_to_one_or_to_all_but_the_sender_in_order() {
    let stage = crew(Options::default()).await;
    let sent = stage.say("a", "b", "1").await;
    assert_eq!((&sent["status"], &sent["delivered_to"]), (&json!("delivered"), &json!(["b"])));
    let all = stage.say("a", "*", "2").await;
    assert_eq!(all["delivered_to"], json!(["b", "c"]));
    // Sent without waiting for one another.
    let many: Vec<_> = (3..30).map(|n| stage.begin(speech("a", "b", &n.to_string()))).collect();
    for one in many {
        one.answer().await.expect("delivered");
    }
    let got = stage.call(receive("b")).await;
    assert_eq!((&got["count"], &got["waiting"]), (&json!(10), &json!(19)));
    assert_eq!((&got["daemon_results"], &got["daemon_pending_tasks"]), (&json!([]), &json!(0)));
    let first = &got["messages"][1];
    assert_eq!((&first["message_id"], &first["to"]), (&all["message_id"], &json!("*")));
    let mut rest = receive("b");
    rest["limit"] = json!(100);
    let contents: Vec<_> = said(&got).into_iter().chain(said(&stage.call(rest).await)).collect();
    assert_eq!(contents, (1..30).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(said(&stage.call(receive("c")).await), ["2"]);
    assert_eq!(stage.call(receive("a")).await["count"], 0);
}

#[tokio::test]
async fn what_is_acknowledged_outlives_a_crash_and_what_is_taken_does_not_come_back() {
    let mut stage = crew(Options::default()).await;
    for n in 0..5 {
        stage.say("a", "b", &n.to_string()).await;
    }
    let mut two = receive("b");
    two["limit"] = json!(2);
    assert_eq!(said(&stage.call(two).await), ["0", "1"]);
    // That they were taken is written after the answer.
    let mut taken = stage.journal.events().subscribe(Some(hivekeep_store::Seq::FIRST), 64);
    loop {
        if let hivekeep_store::SubscriptionItem::Event(event) = taken.next().await.expect("runs")
            && event.kind == "message.taken"
        {
            break;
        }
    }
    drop(taken);
    for round in 0..2 {
        stage = stage.crashed().await;
        let got = stage.begin(receive("b")).lost().await.expect("handed out");
        assert_eq!(said(&got), ["2", "3", "4"], "round {round}");
    }
}

#[tokio::test]
async fn what_does_not_reach_its_receiver_is_handed_out_again() {
    let stage = crew(Options::default()).await;
    stage.say("a", "b", "1").await;
    stage.say("a", "b", "2").await;
    let first = stage.begin(receive("b")).lost().await.expect("handed out");
    assert_eq!(first["messages"][0]["redelivered"], false);
    stage.say("a", "b", "3").await;
    let again = stage.call(receive("b")).await;
    assert_eq!(said(&again), ["1", "2", "3"]);
    assert_eq!(again["messages"][0]["message_id"], first["messages"][0]["message_id"]);
    let repeats: Vec<_> = (0..3).map(|at| again["messages"][at]["redelivered"].clone()).collect();
    assert_eq!(repeats, [json!(true), json!(true), json!(false)]);
    assert_eq!(stage.call(receive("b")).await["count"], 0);
}

#[tokio::test]
async fn the_end_of_a_delivery_of_before_is_not_that_of_another() {
    let stage = crew(Options::default()).await;
    stage.say("a", "b", "1").await;
    let (_, old) = stage.begin(receive("b")).held().await.expect("handed out");
    stage.kill_teams();
    let mut held = None;
    eventually("it is handed out by the next incarnation", async || {
        let (got, pad) = match stage.begin(receive("b")).held().await {
            Ok(held) => held,
            Err(_starting) => return false,
        };
        held = Some(pad);
        said(&got) == ["1"]
    })
    .await;
    old.sign();
    stage.say("a", "b", "2").await;
    drop(held);
    assert_eq!(said(&stage.call(receive("b")).await), ["1", "2"]);
}

#[tokio::test]
async fn confirmed_explicitly_they_stay_until_then() {
    let stage = crew(Options::default()).await;
    stage.say("a", "b", "1").await;
    stage.say("a", "b", "2").await;
    let mut explicit = receive("b");
    explicit["confirm"] = json!("explicit");
    let first = stage.call(explicit.clone()).await;
    let again = stage.call(explicit.clone()).await;
    assert_eq!(said(&again), ["1", "2"]);
    assert_eq!(again["messages"][0]["redelivered"], true);
    explicit["confirmed"] = json!([first["messages"][0]["message_id"]]);
    let rest = stage.call(explicit.clone()).await;
    assert_eq!((said(&rest), &rest["confirmed"]), (vec!["2".to_owned()], &json!(1)));
    assert_eq!(stage.call(explicit).await["confirmed"], 0, "confirmed before");
    let stage = stage.crashed().await;
    assert_eq!(said(&stage.call(receive("b")).await), ["2"], "what is confirmed is durable");
}

#[tokio::test]
async fn a_receiver_waits_until_a_message_comes_or_is_cancelled() {
    let stage = crew(Options { waiting_receivers: 2, ..Options::default() }).await;
    let mut wait = receive("b");
    wait["wait_secs"] = json!(60);
    let (first, second) = (stage.begin(wait.clone()), stage.begin(wait.clone()));
    // The bound is taken before a call waits, in the order of the calls.
    assert_eq!(stage.refused(wait.clone()).await.code, "too_many_receivers");
    first.cancel.cancel();
    assert_eq!(first.answer().await.expect_err("cancelled").code, "cancelled");
    stage.say("a", "b", "1").await;
    assert_eq!(said(&second.answer().await.expect("woken")), ["1"]);
    wait["wait_secs"] = json!(1);
    let empty = stage.call(wait).await;
    assert_eq!(empty["count"], 0);
}

#[tokio::test]
async fn a_full_inbox_is_an_error_to_the_sender_and_told_of_a_broadcast() {
    let stage = crew(Options { inbox_messages: 2, ..Options::default() }).await;
    stage.say("a", "b", "1").await;
    stage.say("a", "b", "2").await;
    let full = stage.refused(speech("a", "b", "3")).await;
    assert_eq!((full.code.as_ref(), full.retryable), ("inbox_full", true));
    let all = stage.say("a", "*", "4").await;
    assert_eq!((&all["status"], &all["delivered_to"]), (&json!("partly_delivered"), &json!(["c"])));
    assert_eq!(
        (&all["undelivered"][0]["to"], &all["undelivered"][0]["code"]),
        (&json!("b"), &json!("inbox_full"))
    );
    assert_eq!(said(&stage.call(receive("b")).await), ["1", "2"]);
    eventually("there is room again", async || {
        stage.begin(speech("a", "b", "5")).answer().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn messages_behind_a_takeover_stay_in_their_order() {
    let stage = crew(Options { message_burst: 2_000, ..Options::default() }).await;
    let other = SessionId::new();
    stage.fake.adopt(other);
    // A look that takes longer than those behind it would.
    stage.fake.with(|world| world.slow_lists = [Duration::from_millis(300)].into());
    let mut sent = Vec::new();
    // The first wait for the takeover, and the last need not.
    for n in 0..100 {
        sent.push(stage.begin_as(other, speech("a", "b", &n.to_string())));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for one in sent {
        one.answer().await.expect("delivered");
    }
    let mut all = receive("b");
    all["limit"] = json!(100);
    let got = stage.begin_as(other, all).answer().await.expect("it is the owner");
    assert_eq!(said(&got), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    let refused = stage.begin(speech("a", "b", "x")).answer().await.expect_err("not any more");
    assert_eq!(refused.code, "not_owner");
}

#[tokio::test]
async fn what_is_for_all_of_one_is_for_nobody() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let mut task = speech("a", "*", r#"{"task_id":"t","command":"true"}"#);
    task["message_type"] = json!("task_assignment");
    for message in [speech("a", "*", "hello"), task] {
        assert_eq!(stage.refused(message).await.code, "no_recipients");
    }
    assert_eq!(stage.say("a", "a", "hello").await["delivered_to"], json!(["a"]));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let stage = crew(Options::default()).await;
    assert_eq!(stage.refused(speech("z", "b", "x")).await.code, "member_not_found");
    assert_eq!(stage.refused(speech("a", "z", "x")).await.code, "member_not_found");
    assert_eq!(stage.refused(receive("z")).await.code, "member_not_found");
    let large = stage.refused(speech("a", "b", &"x".repeat(256 * 1024 + 1))).await;
    assert_eq!(large.code, "message_too_large");
    // The largest arrives whole, whatever it is made of.
    let worst = "\u{1}".repeat(256 * 1024);
    stage.say("a", "b", &worst).await;
    let stage = stage.crashed().await;
    assert_eq!(said(&stage.call(receive("b")).await), [worst]);
}

#[tokio::test]
async fn each_sender_has_a_bucket_of_its_own() {
    let stage =
        crew(Options { message_burst: 3, messages_per_minute: 1, ..Options::default() }).await;
    for n in 0..3 {
        stage.say("a", "b", &n.to_string()).await;
    }
    let slow = stage.refused(speech("a", "b", "4")).await;
    assert!(slow.code == "rate_limited" && slow.retry_after_ms.is_some_and(|ms| ms > 1_000));
    stage.say("c", "b", "x").await;
}

#[tokio::test]
async fn a_long_stream_is_folded_and_loses_nothing() {
    let stage = crew(Options { message_burst: 2_000, ..Options::default() }).await;
    for round in 0..12 {
        let many: Vec<_> =
            (0..50).map(|n| stage.begin(speech("a", "b", &(round * 50 + n).to_string()))).collect();
        for one in many {
            one.answer().await.expect("delivered");
        }
    }
    let stream = stage.journal.streams("mailbox/").expect("read").remove(0);
    eventually("it is folded", async || {
        stage.journal.replay(&stream).expect("read").snapshot.is_some()
    })
    .await;
    let stage = stage.crashed().await;
    let mut all = Vec::new();
    for _ in 0..6 {
        let mut some = receive("b");
        some["limit"] = json!(100);
        all.extend(said(&stage.call(some).await));
    }
    assert_eq!(all, (0..600).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_its_way_when_a_team_died_is_in_the_next_one() {
    let stage = crew(Options::default()).await;
    // One commit that takes longer than a team takes to come back.
    let other = hivekeep_store::StreamId::new("test", "long").expect("a name");
    let flood: Vec<_> = (0..40)
        .map(|_| {
            let (journal, other) = (stage.journal.clone(), other.clone());
            tokio::spawn(async move { journal.append(&other, vec![vec![7; 1 << 20]]).await })
        })
        .collect();
    let written = || flood.iter().filter(|one| one.is_finished()).count();
    let queued = || stage.journal.stats().queue_depth;
    eventually("the rest of it is being written", async || written() > 0 && queued() == 0).await;
    let sent = stage.begin(speech("a", "b", "1"));
    eventually("it waits for that, unless that is over", async || {
        queued() > 0 || written() == flood.len()
    })
    .await;
    if written() == flood.len() {
        sent.answer().await.expect("delivered");
    }
    stage.kill_teams();
    let mut explicit = receive("b");
    explicit["confirm"] = json!("explicit");
    eventually("it can be received", async || {
        let got = stage.begin(explicit.clone()).answer().await;
        got.is_ok_and(|got| said(&got) == ["1"])
    })
    .await;
    for one in flood {
        one.await.expect("no panic").expect("written");
    }
}
