//! The members' network.

use serde_json::{Value, json};

use super::stage::{Stage, plan};

fn groups(stage: &Stage) -> Vec<Option<String>> {
    stage.fake.with(|world| {
        let policy = |id| world.policies.get(id).and_then(|policy| policy.group.clone());
        world.workspaces.values().map(|one| policy(&one.id).map(String::from)).collect()
    })
}

async fn status(stage: &Stage, name: &str) -> Value {
    stage.call(json!({ "action": "status", "name": name })).await["network"].clone()
}

#[tokio::test]
async fn members_are_in_a_group_of_their_team_alone_when_it_is_ready() {
    let stage = Stage::new().await;
    let one = stage.create("a", &["x", "y"]).await;
    assert_eq!(one["network"]["members_reach_each_other"], true);
    assert_eq!((&one["network"]["mode"], one["network"].get("reason")), (&json!("bridge"), None));
    let of_one = groups(&stage);
    assert!(of_one.iter().all(|group| group.as_deref() == one["network"]["group"].as_str()));
    let mut below = plan("a-b", &["x", "y"]);
    below["parent_team"] = json!("a");
    let other = stage.call(below).await;
    assert_ne!(one["network"]["group"], other["network"]["group"]);
    assert_eq!(status(&stage, "a").await, one["network"]);
    assert_eq!(status(&stage, "a-b").await, other["network"]);

    // A workspace that another hand takes out of the group is told of.
    let member = one["members"][0]["workspace_id"].as_str().expect("an id").parse().expect("one");
    stage.fake.with(|world| world.policies.remove(&member));
    let told = status(&stage, "a").await;
    assert_eq!((&told["members_reach_each_other"], told.get("group")), (&json!(false), None));
    assert!(told["reason"].as_str().is_some_and(|reason| reason.ends_with(": x")), "{told}");
}

#[tokio::test]
async fn without_a_bridge_or_a_place_the_team_is_made_and_says_so() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.alone = Some("no CAP_NET_ADMIN"));
    let made = stage.create("alone", &["x", "y"]).await["network"].clone();
    assert_eq!((&made["mode"], &made["members_reach_each_other"]), (&json!("user"), &json!(false)));
    assert!(made["reason"].as_str().is_some_and(|why| why.contains("no CAP_NET_ADMIN")), "{made}");
    assert_eq!(groups(&stage), [None, None]);
    stage.fake.with(|world| (world.alone, world.placeless) = (None, true));
    let made = stage.create("boxes", &["x", "y"]).await["network"].clone();
    assert_eq!(
        (&made["mode"], &made["members_reach_each_other"]),
        (&json!("bridge"), &json!(false))
    );
    assert!(made["reason"].as_str().is_some_and(|why| why.contains("sandboxes")), "{made}");
}

#[tokio::test]
async fn a_team_whose_members_cannot_join_is_not_made() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.unruly = Some("odd"));
    let mut args = plan("crew", &["x", "y"]);
    args["roles"][1]["role"] = json!("odd");
    assert_eq!(stage.refused(args).await.code, "network_failed");
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
}
