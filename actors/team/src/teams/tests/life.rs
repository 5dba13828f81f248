//! Teams from their making to their end.

use hivekeep_kernel::SessionId;
use serde_json::json;

use super::stage::{Stage, plan};
use crate::Options;

#[tokio::test]
async fn a_team_is_made_side_by_side_looked_at_and_removed() {
    let stage = Stage::with(Options { max_parallel: 2, ..Options::default() }).await;
    stage.fake.with(|world| world.slow = std::time::Duration::from_millis(30));
    let made = stage.create("crew", &["a", "b", "c"]).await;
    assert_eq!((&made["state"], &made["member_count"]), (&json!("ready"), &json!(3)));
    assert_eq!(made["member_workspace_ids"].as_array().map(Vec::len), Some(3));
    assert_eq!(stage.fake.with(|world| world.most), 2, "as many at a time as configured");
    for name in stage.fake.names() {
        let digits = name.strip_prefix("crew-hand-").expect("named after team and role");
        assert!(digits.len() == 4 && u16::from_str_radix(digits, 16).is_ok(), "{name}");
    }
    assert_eq!(stage.teams().await[0]["owned"], true);

    let first = made["members"][0]["workspace_name"].as_str().expect("a name").to_owned();
    stage.fake.with(|world| world.workspaces.get_mut(&first).expect("there").state = "crashed");
    let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
    let states: Vec<_> =
        status["members"].as_array().expect("members").iter().map(|m| &m["agent_status"]).collect();
    assert_eq!(states, ["failed", "ready", "ready"]);
    assert!(status["members"][0]["reason"].as_str().is_some_and(|why| why.contains("crashed")));

    let gone = stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(
        (&gone["success"], gone["members"].as_array().map(Vec::len)),
        (&json!(true), Some(3))
    );
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0, "its records are gone, too");
    assert_eq!(
        stage.refused(json!({ "action": "status", "name": "crew" })).await.code,
        "team_not_found"
    );
    stage.create("crew", &["a"]).await;
}

#[tokio::test]
async fn members_can_be_forks_and_the_snapshot_is_found() {
    let stage = Stage::new().await;
    let mut args = plan("crew", &["a", "b"]);
    args["base_snapshot"] = json!("base");
    assert_eq!(stage.refused(args.clone()).await.code, "snapshot_not_found");
    stage.create("golden", &["g"]).await;
    let made = stage.call(args.clone()).await;
    assert_eq!(made["member_count"], 2);
    let forked =
        |world: &mut super::fake::World| world.workspaces.values().filter(|w| w.forked).count();
    assert_eq!(stage.fake.with(forked), 2);
    stage.create("golden2", &["g"]).await;
    args["name"] = json!("other");
    assert_eq!(stage.refused(args.clone()).await.code, "snapshot_ambiguous");
    args["golden_workspace"] =
        json!(stage.fake.names().into_iter().find(|name| name.starts_with("golden-")));
    stage.call(args).await;
}

#[tokio::test]
async fn teams_below_are_counted_above_and_go_first() {
    let stage = Stage::new().await;
    let mut top = plan("top", &["a"]);
    top["max_vms"] = json!(3);
    stage.call(top).await;
    let below = |name: &str, parent: &str, members: &[&str]| {
        let mut args = plan(name, members);
        args["parent_team"] = json!(parent);
        args
    };
    stage.call(below("mid", "top", &["b"])).await;
    let refused = stage.refused(below("low", "mid", &["c", "d"])).await;
    assert_eq!(
        (refused.code.as_ref(), &refused.details["team"]),
        ("team_budget_exceeded", &json!("top"))
    );
    stage.call(below("low", "mid", &["c"])).await;
    let status = stage.call(json!({ "action": "status", "name": "mid" })).await;
    assert_eq!((&status["parent_team"], &status["sub_teams"]), (&json!("top"), &json!(["low"])));

    let gone = stage.call(json!({ "action": "destroy", "name": "top" })).await;
    let order: Vec<_> =
        gone["members"].as_array().expect("members").iter().map(|m| &m["name"]).collect();
    assert_eq!(order, ["c", "b", "a"]);
    let removed = stage.fake.with(|world| world.removed.clone());
    let teams: Vec<_> = removed.iter().filter_map(|name| name.split('-').next()).collect();
    assert_eq!(teams, ["low", "mid", "top"]);
    assert!(stage.teams().await.is_empty());
}

#[tokio::test]
async fn a_session_that_has_all_its_workspaces_operates_it() {
    let stage = Stage::new().await;
    stage.create("crew", &["a", "b"]).await;
    let heir = SessionId::new();
    // One of two is not all.
    let first = stage.fake.names()[0].clone();
    stage.fake.with(|world| world.workspaces.get_mut(&first).expect("there").owner = heir);
    let status = json!({ "action": "status", "name": "crew" });
    stage.begin_as(heir, status.clone()).answer().await.expect_err("not all");
    stage.fake.adopt(heir);
    stage.begin_as(heir, super::stage::speech("a", "b", "x")).answer().await.expect("taken over");
    assert_eq!(stage.refused(status.clone()).await.code, "not_owner");
    // It is in the journal.
    let stage = stage.crashed().await;
    assert_eq!(stage.refused(status.clone()).await.code, "not_owner");
    stage
        .begin_as(heir, json!({ "action": "destroy", "name": "crew" }))
        .answer()
        .await
        .expect("its own");
}

#[tokio::test]
async fn a_team_whose_session_and_workspaces_are_gone_can_be_removed() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    stage.fake.with(|world| world.workspaces.clear());
    let other = SessionId::new();
    let destroy = json!({ "action": "destroy", "name": "crew" });
    let error =
        stage.begin_as(other, destroy.clone()).answer().await.expect_err("its session is there");
    assert_eq!(error.code, "not_owner");
    stage.fake.with(|world| world.ended.insert(stage.session));
    stage.begin_as(other, destroy).answer().await.expect("nobody's");
}
