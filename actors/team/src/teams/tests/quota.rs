//! What a team takes of its session's quota, and when.

use std::time::Duration;

use serde_json::json;

use super::stage::{Stage, eventually, plan};

#[tokio::test]
async fn room_for_all_members_is_taken_before_the_first_is_made() {
    let stage = Stage::new().await;
    let used = || stage.fake.with(|world| world.used);
    stage.fake.with(|world| world.allowed = Some(3));
    let refused = stage.refused(plan("crew", &["a", "b", "c", "d"])).await;
    assert_eq!(refused.code, "quota_exceeded");
    assert_eq!(stage.fake.with(|world| world.begun), 0, "nothing was made for it");
    assert_eq!((used(), stage.teams().await.len()), (0, 0));

    stage.fake.with(|world| world.slow = Duration::from_millis(200));
    let making = stage.begin(plan("crew", &["a", "b", "c"]));
    eventually("one is being made", async || stage.fake.with(|world| world.running > 0)).await;
    assert_eq!(used(), 3, "all of it, though none is made");
    assert_eq!(stage.refused(plan("other", &["a"])).await.code, "quota_exceeded");
    making.answer().await.expect("made");
    assert_eq!(used(), 3, "counted once");
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(used(), 0);
}

#[tokio::test]
async fn what_a_team_that_is_not_made_took_is_given_back() {
    let stage = Stage::new().await;
    let back = async || {
        eventually("it is given back", async || stage.fake.with(|world| world.used == 0)).await;
    };
    stage.fake.with(|world| world.fails = Some("odd"));
    let mut args = plan("crew", &["a", "b", "c"]);
    args["roles"][2]["role"] = json!("odd");
    assert_eq!(stage.refused(args).await.code, "boot_failed");
    back().await;
    // Refused when the quota was taken already.
    let many = Vec::from_iter((0..21).map(|number| format!("m{number}")));
    let many = Vec::from_iter(many.iter().map(String::as_str));
    assert_eq!(stage.refused(plan("crew", &many)).await.code, "team_limit");
    back().await;
    // Its actor dies while members are made.
    stage.fake.with(|world| (world.begun, world.slow) = (0, Duration::from_millis(100)));
    let making = stage.begin(plan("crew", &["a", "b"]));
    eventually("they are being made", async || stage.fake.with(|world| world.begun > 0)).await;
    stage.kill_teams();
    making.answer().await.expect_err("not made");
    stage.until_none().await;
    back().await;
    // A fork takes what its source has.
    stage.create("golden", &["g"]).await;
    let mut args = plan("crew", &["a", "b"]);
    args["base_snapshot"] = json!("base");
    stage.call(args).await;
    assert_eq!(stage.fake.with(|world| world.used), 3);
}
