//! What tasks made gets to its target, or stays; what a cancellation can still cut short.

use std::time::Duration;

use serde_json::json;

use super::{
    fake::GOLDEN,
    stage::{Stage, eventually, swarm},
    survive::left_behind,
};
use crate::swarm::state::Record;

#[tokio::test]
async fn machines_that_are_down_are_brought_up_for_the_merge() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "ok"), ("b", "gate")]);
    args["merge_strategy"] = json!("sequential");
    let running = stage.begin(args);
    eventually("one is over", async || {
        stage.rows().await.iter().any(|row| row["summary"]["succeeded"] == 1)
    })
    .await;
    stage.fake.crash("-a");
    stage.fake.with(|world| {
        world.workspaces.get_mut(GOLDEN).expect("there").state = "stopped";
        world.busy_starts = 1;
        world.gate = true;
    });
    let done = running.answer().await.expect("a result");
    assert_eq!(
        (&done["merge"]["success"], done.get("workers_kept")),
        (&json!(true), None),
        "{done}"
    );
    assert_eq!(stage.fake.with(|world| world.merges.len()), 1, "not asked while they were down");
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn after_a_stop_of_everything_the_merge_has_its_machines_again() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "ok"), ("b", "ok")]);
    args["merge_strategy"] = json!("sequential");
    let id = left_behind(&stage, &args, 4).await;
    stage.fake.all_are("stopped");
    let stage = stage.crashed().await;
    let done = stage.over(&json!(id)).await;
    assert_eq!(done["merge"]["success"], true, "{done}");
    assert_eq!(stage.fake.with(|world| world.starts), 3, "each was started, once");
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn sources_that_were_not_reached_are_asked_again_and_conflicts_are_not() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.unreached = 2);
    let mut args = swarm(&[("a", "ok"), ("b", "ok")]);
    args["merge_strategy"] = json!("sequential");
    let done = stage.run(args.clone()).await;
    assert_eq!(
        (&done["merge"]["success"], stage.fake.with(|world| world.merges.len())),
        (&json!(true), 3)
    );
    stage.fake.with(|world| world.merge_fails = true);
    stage.run(args).await;
    assert_eq!(stage.fake.with(|world| world.merges.len()), 4);
}

#[tokio::test]
async fn a_merge_that_may_have_landed_is_asked_for_although_its_swarm_was_cancelled() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "ok"), ("b", "ok")]);
    args["merge_strategy"] = json!("sequential");
    let id = left_behind(&stage, &args, 5).await;
    stage.write(id, &[Record::Cancelled]).await;
    let stage = stage.crashed().await;
    let done = stage.over(&json!(id)).await;
    let merge = &done["merge"];
    assert_eq!((&merge["success"], &merge["repeated"]), (&json!(true), &json!(true)), "{done}");
    assert_eq!(done["state"], "completed", "it cut nothing short");
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn a_cancellation_that_comes_when_all_is_done_changes_nothing() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.removing = Duration::from_millis(500));
    let mut args = swarm(&[("a", "ok")]);
    args["merge_strategy"] = json!("sequential");
    let running = stage.begin(args);
    eventually("it cleans up", async || {
        stage.rows().await.iter().any(|row| row["state"] == "cleaning_up")
    })
    .await;
    let id = stage.only().await;
    let told = stage.call("swarm_cancel", json!({ "swarm_id": id })).await.expect("told");
    assert_eq!(told["cancelled"], false);
    let done = running.answer().await.expect("its results");
    assert_eq!((&done["state"], &done["merge"]["success"]), (&json!("completed"), &json!(true)));
}

#[tokio::test]
async fn a_cancelled_swarm_keeps_no_forks_for_a_merge_that_was_not() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "ok"), ("b", "gate")]);
    args["merge_strategy"] = json!("sequential");
    let running = stage.begin(args);
    eventually("one is over", async || {
        stage.rows().await.iter().any(|row| row["summary"]["succeeded"] == 1)
    })
    .await;
    let id = stage.only().await;
    stage.call("swarm_cancel", json!({ "swarm_id": id })).await.expect("told");
    assert_eq!(running.answer().await.expect_err("cancelled").code, "cancelled");
    assert!(stage.fake.forks().is_empty() && stage.fake.with(|world| world.merges.is_empty()));
}
