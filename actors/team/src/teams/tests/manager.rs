//! Teams as their manager keeps them: bounded in number, and given up.

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
