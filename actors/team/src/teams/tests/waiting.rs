//! What waits for a session, as whoever answers it is told.

use hivekeep_kernel::SessionId;
use hivekeep_ports::{WaitingMessages, WaitingSummary};
use serde_json::{Value, json};

use super::{
    stage::{Stage, eventually, speech},
    tasks::{all, crew, receive, task},
};
use crate::Options;

fn waiting(stage: &Stage, session: SessionId) -> Option<WaitingSummary> {
    stage.daemon.ports.need::<dyn WaitingMessages>().expect("teams offer it").of(session)
}

fn counts(stage: &Stage) -> (usize, usize) {
    waiting(stage, stage.session).map_or((0, 0), |waits| (waits.messages, waits.results))
}

async fn until(stage: &Stage, wanted: (usize, usize)) {
    eventually("so much waits", async || counts(stage) == wanted).await;
}

fn explicit(agent: &str) -> Value {
    let mut explicit = receive(agent, 0);
    explicit["confirm"] = json!("explicit");
    explicit
}

#[tokio::test]
async fn what_waits_is_told_until_it_is_on_its_way_and_again_if_it_does_not_arrive() {
    let (stage, _) = crew(Options::default()).await;
    assert_eq!(counts(&stage), (0, 0));
    stage.say("a", "boss", "1").await;
    stage.say("b", "boss", "2").await;
    until(&stage, (2, 0)).await;
    let oldest = waiting(&stage, stage.session).expect("messages").oldest;
    assert_eq!((&*oldest.team, &*oldest.member, &*oldest.from), ("crew", "boss", "a"));
    assert_eq!(waiting(&stage, SessionId::new()), None, "nobody else's");
    for round in 0..3 {
        let (got, pad) = stage.begin(receive("boss", 0)).held().await.expect("handed out");
        // At once: whoever has the answer is not told of what is in it.
        assert_eq!((got["count"].as_u64(), counts(&stage)), (Some(2), (0, 0)), "round {round}");
        drop(pad);
        until(&stage, (2, 0)).await;
    }
    let mut one = receive("boss", 0);
    one["limit"] = json!(1);
    stage.call(one).await;
    assert_eq!(counts(&stage), (1, 0), "what is left");
    stage.call(receive("boss", 60)).await;
    assert_eq!(counts(&stage), (0, 0));
}

#[tokio::test]
async fn results_count_and_confirmed_explicitly_they_wait_until_then() {
    let (stage, _) = crew(Options::default()).await;
    stage.call(task("a", "t1", "make")).await;
    until(&stage, (0, 1)).await;
    let waits = waiting(&stage, stage.session).expect("a result");
    assert_eq!((&*waits.oldest.member, &*waits.oldest.from), ("a", "a"));
    let got = stage.call(explicit("a")).await;
    let id = got["daemon_results"][0]["source_message_id"].clone();
    until(&stage, (0, 1)).await;
    let mut confirm = explicit("a");
    confirm["confirmed"] = json!([id]);
    assert_eq!(stage.call(confirm).await["confirmed"], 1);
    assert_eq!(counts(&stage), (0, 0), "confirmed");
}

#[tokio::test]
async fn what_is_durable_is_told_after_a_crash_and_by_the_next_incarnation() {
    let (stage, _) = crew(Options::default()).await;
    stage.say("a", "boss", "1").await;
    stage.call(task("b", "t1", "make")).await;
    until(&stage, (1, 1)).await;
    let before = waiting(&stage, stage.session);
    let stage = stage.crashed().await;
    until(&stage, (1, 1)).await;
    assert_eq!(waiting(&stage, stage.session), before, "also since when it waits");
    stage.kill_teams();
    eventually("it is started again", async || {
        stage.begin(json!({ "action": "status", "name": "crew" })).answer().await.is_ok()
    })
    .await;
    assert_eq!(counts(&stage), (1, 1));
    assert_eq!(all(&stage, "b", 1).await.len(), 1);
    until(&stage, (1, 0)).await;
}

#[tokio::test]
async fn it_goes_to_whoever_operates_the_team_and_ends_with_it() {
    let (stage, _) = crew(Options::default()).await;
    stage.say("a", "boss", "1").await;
    until(&stage, (1, 0)).await;
    let heir = SessionId::new();
    stage.fake.adopt(heir);
    stage.begin_as(heir, speech("b", "boss", "2")).answer().await.expect("it is the heir's");
    eventually("both are the heir's", async || {
        waiting(&stage, heir).is_some_and(|waits| waits.messages == 2)
    })
    .await;
    assert_eq!(counts(&stage), (0, 0));
    let destroy = json!({ "action": "destroy", "name": "crew" });
    stage.begin_as(heir, destroy).answer().await.expect("removed");
    assert_eq!(waiting(&stage, heir), None);
}

#[tokio::test]
async fn switched_off_nobody_is_asked() {
    let stage = Stage::with(Options { announce_waiting: false, ..Options::default() }).await;
    assert!(stage.daemon.ports.find::<dyn WaitingMessages>().is_none());
}
