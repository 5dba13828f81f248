//! Teams as their manager keeps them: bounded in number and by the session's quota, and given up.

use std::time::Duration;

use serde_json::json;

use super::stage::{Stage, eventually, plan, speech};
use crate::Options;

#[tokio::test]
async fn there_are_as_many_as_configured_and_one_of_a_name() {
    let stage = Stage::with(Options { max_teams: 2, ..Options::default() }).await;
    stage.create("crew", &["a"]).await;
    // It would be too large, too; its name comes first.
    let mut large = plan("crew", &["a", "b"]);
    large["max_vms"] = json!(1);
    assert_eq!(stage.refused(large.clone()).await.code, "name_taken");
    stage.create("second", &["a"]).await;
    let error = stage.refused(plan("other", &["a"])).await;
    assert_eq!(error.code, "team_limit");
    assert!(error.message.contains("`team.max_teams`"), "{error}");
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    // One that is refused leaves its name and its place to others.
    assert_eq!(stage.refused(large).await.code, "team_budget_exceeded");
    stage.create("crew", &["a"]).await;
}

#[tokio::test]
async fn one_that_is_given_up_says_so_and_leaves_its_place_but_not_its_name() {
    let stage = Stage::with(Options { max_teams: 1, ..Options::default() }).await;
    stage.create("crew", &["a", "b"]).await;
    let status = json!({ "action": "status", "name": "crew" });
    eventually("it is given up", async || {
        stage.kill_teams();
        let told = stage.begin(status.clone()).answer().await;
        told.is_err_and(|error| error.message.contains("is down"))
    })
    .await;
    assert_eq!(stage.teams().await[0]["state"], "unavailable");
    let destroy = json!({ "action": "destroy", "name": "crew" });
    for args in [status.clone(), destroy, speech("a", "b", "x")] {
        assert_eq!(stage.refused(args.clone()).await.code, "actor_unavailable", "{args}");
    }
    assert_eq!(stage.refused(plan("crew", &["a"])).await.code, "name_taken");
    stage.create("other", &["a"]).await;
    // The next start tries again, with more of them than are admitted.
    let stage = stage.crashed().await;
    assert_eq!(stage.call(status).await["state"], "ready");
    assert_eq!(stage.teams().await.len(), 2);
}

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
