//! What the manager counts, keeps and lets go of, and what a swarm holds.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use hivekeep_kernel::{Resources, SessionId, SwarmId};
use hivekeep_ports::SessionQuotas;
use serde_json::json;

use super::stage::{Stage, eventually, swarm};
use crate::{Options, swarm::state::Record};

/// The manager hears of a swarm's end before what that swarm told it last: one thread, so that both
/// wait for it together.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_swarm_whose_end_overtakes_its_last_word_is_let_go_of_too() {
    let stage = Stage::with(Options { kept: 2, ..Options::default() }).await;
    for _ in 0..30 {
        stage.run(swarm(&[("a", "ok")])).await;
    }
    eventually("two are kept", async || stage.rows().await.len() == 2).await;
    eventually("in the journal too", async || {
        stage.journal.streams("swarm/").expect("read").len() == 2
    })
    .await;
}

#[tokio::test]
async fn the_results_that_ended_last_are_kept() {
    let stage = Stage::with(Options { kept: 1, ..Options::default() }).await;
    let long = stage.begin(swarm(&[("a", "gate")]));
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    stage.run(swarm(&[("b", "ok")])).await;
    stage.fake.with(|world| world.gate = true);
    let done = long.answer().await.expect("a result");
    eventually("one is kept", async || stage.rows().await.len() == 1).await;
    assert_eq!(stage.only().await, done["swarm_id"], "it was planned first and ended last");
}

#[tokio::test]
async fn whoever_waits_keeps_nobody_out_and_is_one_of_so_many() {
    let stage = Stage::new().await;
    let running = stage.begin(swarm(&[("a", "gate")]));
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    let args = json!({ "swarm_id": stage.only().await, "wait_secs": 60 });
    let limit = Duration::from_secs(60);
    let ask = || stage.begin_as(stage.session, "swarm_status", args.clone(), limit);
    let waiting: Vec<_> = (0..64).map(|_| ask()).collect();
    eventually("all have given their place back", async || stage.places.load(SeqCst) == 65).await;
    let error = ask().answer().await.expect_err("one too many");
    assert_eq!((error.code.as_ref(), error.retryable), ("too_many_receivers", true));
    stage.fake.with(|world| world.gate = true);
    running.answer().await.expect("a result");
    for one in waiting {
        one.answer().await.expect("told");
    }
    ask().answer().await.expect("there is room again");
}

#[tokio::test]
async fn a_swarm_that_is_given_up_says_so_holds_no_place_and_can_be_cancelled() {
    let stage = Stage::with(Options { max_running: 1, ..Options::default() }).await;
    let running = stage.begin(swarm(&[("a", "hang")]));
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    eventually("it is given up", async || {
        stage.kill_swarms();
        stage.rows().await[0]["state"] == "given_up"
    })
    .await;
    let error = running.answer().await.expect_err("nobody goes on with it");
    assert!(!error.retryable, "{error}");
    let args = json!({ "swarm_id": error.details["swarm_id"], "wait_secs": 5 });
    let told = stage.call("swarm_status", args.clone()).await.expect("told")["swarm"].take();
    assert_eq!(
        (&told["state"], &told["gave_up"]),
        (&json!("given_up"), &json!("killed")),
        "{told}"
    );
    stage.run(swarm(&[("b", "ok")])).await;
    let id = json!({ "swarm_id": args["swarm_id"] });
    assert_eq!(stage.call("swarm_cancel", id).await.expect("told")["cancelled"], true);
    let stage = stage.crashed().await;
    assert_eq!(stage.over(&args["swarm_id"]).await["state"], "cancelled");
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn a_record_without_a_plan_is_of_no_swarm_and_is_removed() {
    let stage = Stage::new().await;
    stage.write(SwarmId::new(), &[Record::Cancelled]).await;
    let stage = stage.crashed().await;
    assert!(stage.rows().await.is_empty());
    eventually("it is gone", async || stage.journal.streams("swarm/").expect("read").is_empty())
        .await;
}

#[tokio::test]
async fn a_plan_that_may_be_durable_is_not_offered_to_be_repeated() {
    let stage = Stage::new().await;
    // The manager has read what there is.
    assert!(stage.rows().await.is_empty());
    stage.journal.close().await;
    let error = stage.refused(swarm(&[("a", "ok")])).await;
    assert_eq!((error.code.as_ref(), error.retryable), ("journal_failed", false), "{error}");
    assert!(error.details["swarm_id"].is_string(), "{error:?}");
    assert!(stage.rows().await.is_empty());
    assert_eq!(stage.fake.with(|world| world.reserved), Resources::default());
}

#[tokio::test]
async fn a_task_waits_for_the_room_of_one_that_cannot_be_removed() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "gate"), ("b", "ok")]);
    args["max_parallel"] = json!(1);
    let running = stage.begin(args);
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    stage.fake.with(|world| {
        world.stuck = world.workspaces.keys().cloned().collect();
        world.gate = true;
    });
    eventually("it is over", async || stage.rows().await[0]["summary"]["succeeded"] == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stage.fake.with(|world| world.begun), 1, "there is no room for another");
    stage.fake.with(|world| world.stuck.clear());
    let done = running.answer().await.expect("a result");
    assert_eq!(done["summary"]["succeeded"], 2);
    assert_eq!(stage.fake.with(|world| world.most), 1);
}

#[tokio::test]
async fn the_room_of_a_swarm_is_its_own_to_the_end() {
    let stage = Stage::new().await;
    stage.fake.with(|world| (world.room, world.slow) = (Some(1), Duration::from_millis(20)));
    let mut args = swarm(&[("a", "ok"), ("b", "ok"), ("c", "ok"), ("d", "ok")]);
    args["max_parallel"] = json!(1);
    let running = stage.begin(args);
    eventually("it has begun", async || stage.fake.with(|world| world.begun) > 0).await;
    let one = Resources::workspace(1, 1);
    while stage.fake.with(|world| world.begun) < 4 {
        let taken = stage.fake.reserve(stage.session, one).await;
        taken.expect_err("it is reserved, between two forks as well");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(running.answer().await.expect("a result")["summary"]["succeeded"], 4);
    stage.fake.reserve(stage.session, one).await.expect("it is given back");
}

#[tokio::test]
async fn a_swarm_holds_its_session_until_it_is_over_or_the_daemon_stops() {
    let stage = Stage::new().await;
    let held = || {
        let held = stage.fake.with(|world| world.held.get(&stage.session).cloned());
        held.is_some_and(|held| Arc::strong_count(&held) > 2)
    };
    let running = stage.begin(swarm(&[("a", "gate")]));
    eventually("it is held", async || held()).await;
    stage.fake.with(|world| world.gate = true);
    running.answer().await.expect("a result");
    eventually("it is let go of", async || !held()).await;
    stage.fake.with(|world| world.gate = false);
    let running = stage.begin(swarm(&[("b", "gate")]));
    eventually("it is held again", async || held()).await;
    stage.closing.cancel();
    eventually("a stop waits for no swarm", async || !held()).await;
    running.answer().await.expect_err("the daemon stops");
}

#[tokio::test]
async fn a_fork_that_another_session_took_over_is_left_to_it() {
    let stage = Stage::new().await;
    let running = stage.begin(swarm(&[("a", "gate")]));
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    let name = stage.fake.forks()[0].clone();
    stage.fake.with(|world| {
        world.stuck.insert(name.clone());
        world.gate = true;
    });
    let done = running.answer().await.expect("a result");
    assert_eq!(done["workers_left"][0]["workspace_name"], json!(name));
    let other = SessionId::new();
    stage.fake.with(|world| world.workspaces.get_mut(&name).expect("there").owner = other);
    let stage = stage.crashed().await;
    eventually("it is not tried any more", async || {
        stage.over(&done["swarm_id"]).await.get("workers_left").is_none()
    })
    .await;
    let told = stage.over(&done["swarm_id"]).await;
    assert_eq!(told["workers_kept"][0]["workspace_name"], json!(name));
    assert!(
        told["workers_kept"][0]["reason"].as_str().expect("a text").contains("another session")
    );
    assert_eq!((stage.fake.forks(), &told["summary"]["workers_left"]), (vec![name], &json!(1)));
}
