//! Swarms that nothing happens to.

use std::time::Duration;

use serde_json::json;

use super::stage::{Stage, eventually, swarm};
use crate::Options;

#[tokio::test]
async fn every_task_runs_in_a_fork_of_its_own_and_nothing_is_left() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.work = Duration::from_millis(20));
    let names = ["e", "d", "c", "b", "a"];
    let tasks: Vec<_> =
        names.iter().map(|name| (*name, if *name == "b" { "fail" } else { "ok" })).collect();
    let mut args = swarm(&tasks);
    args["max_parallel"] = json!(2);
    let mut running = stage.begin(args);
    let mut told = Vec::new();
    while let Some(update) = running.progress.recv().await {
        told.push(update);
    }
    let done = running.answer().await.expect("a result");
    assert_eq!(done["state"], "completed");
    let rows = done["tasks"].as_array().expect("rows");
    let sorted: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(sorted, ["a", "b", "c", "d", "e"]);
    for row in rows {
        let failed = row["name"] == "b";
        assert_eq!(
            (&row["success"], &row["exit_code"]),
            (&json!(!failed), &json!(3 * i32::from(failed)))
        );
        assert_eq!(row["stdout"], if failed { "did fail" } else { "did ok" });
        assert_eq!((&row["outcome"], row.get("stdout_path")), (&json!("exited"), None));
    }
    let summary = &done["summary"];
    assert_eq!(
        [&summary["total_tasks"], &summary["succeeded"], &summary["failed"], &summary["pending"]],
        [5, 4, 1, 0]
    );
    assert_eq!((&summary["workers_destroyed"], &summary["workers_left"]), (&json!(5), &json!(0)));
    assert!(stage.fake.forks().is_empty());
    assert_eq!(stage.fake.with(|world| world.most), 2, "a fork goes before the next one is made");
    let effects = stage.fake.with(|world| world.effects.clone());
    assert!(effects.len() == 5 && effects.values().all(|count| *count == 1), "{effects:?}");

    // Each step of each task is told, and never backwards.
    assert!(told.windows(2).all(|pair| pair[0].done <= pair[1].done), "{told:?}");
    for word in ["forked", "started", "over"] {
        let count = told.iter().filter(|update| update.message.contains(word)).count();
        assert_eq!(count, 5, "{word}: {told:?}");
    }

    // Its result stays, over a restart too.
    let id = done["swarm_id"].clone();
    assert_eq!(stage.over(&id).await, done);
    let stage = stage.crashed().await;
    assert_eq!(stage.over(&id).await, done);
    let row = &stage.rows().await[0];
    assert_eq!((&row["state"], &row["owned"]), (&json!("completed"), &json!(true)));
    assert_eq!(row["summary"], *summary);
}

#[tokio::test]
async fn a_fork_that_fails_fails_its_task_only() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.fails = Some("-bad"));
    let done = stage.run(swarm(&[("good", "ok"), ("bad", "ok"), ("fine", "ok")])).await;
    let bad = &done["tasks"][0];
    assert_eq!(
        (&bad["name"], &bad["success"], &bad["outcome"]),
        (&json!("bad"), &json!(false), &json!("failed"))
    );
    assert_eq!(
        (&bad["workspace_id"], &bad["error_code"]),
        (&json!(null), &json!("quota_exceeded"))
    );
    assert_eq!((&done["summary"]["succeeded"], &done["summary"]["failed"]), (&json!(2), &json!(1)));
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn commits_of_the_successful_are_merged_while_their_forks_are_there() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("z", "ok"), ("bad", "fail"), ("a", "ok")]);
    args["merge_strategy"] = json!("branch-per-source");
    let done = stage.run(args.clone()).await;
    let merges = stage.fake.with(|world| std::mem::take(&mut world.merges));
    let (a, z) = (&done["tasks"][0]["workspace_id"], &done["tasks"][2]["workspace_id"]);
    assert_eq!(merges.len(), 1);
    assert_eq!(merges[0]["source_workspaces"], json!([z, a]), "in the order of the tasks");
    assert_eq!(merges[0]["strategy"], "branch-per-source");
    assert_eq!(merges[0]["target_workspace"], done["golden_workspace"]);
    assert_eq!((&done["merge"]["success"], &done["merge"]["error"]), (&json!(true), &json!(null)));
    assert!(stage.fake.forks().is_empty());

    stage.fake.with(|world| world.merge_fails = true);
    let done = stage.run(args.clone()).await;
    assert_eq!(done["merge"]["success"], false);
    assert!(done["merge"]["error"].is_string() && done["merge"]["detail"].is_object());
    // What could not be merged is nowhere else: it stays, and no other.
    assert_eq!(stage.fake.forks(), [done["tasks"][0]["workspace_name"].as_str().expect("a name")]);
    let kept = &done["workers_kept"];
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{done}");
    assert_eq!(kept[0]["workspace_id"], done["tasks"][0]["workspace_id"]);
    assert!(kept[0]["reason"].as_str().expect("a text").contains("workspace_destroy"));
    let counts = (&done["summary"]["workers_destroyed"], &done["summary"]["workers_left"]);
    assert_eq!((counts, done.get("workers_left")), ((&json!(2), &json!(1)), None));
    let stage = stage.crashed().await;
    assert_eq!(stage.over(&done["swarm_id"]).await["workers_kept"], *kept);

    let mut none = swarm(&[("a", "fail")]);
    none["merge_strategy"] = json!("sequential");
    let done = stage.run(none).await;
    assert_eq!(done["merge"]["success"], false);
    assert_eq!(stage.fake.with(|world| world.merges.len()), 1, "nothing to merge is not asked for");
}

#[tokio::test]
async fn forks_can_be_kept() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "ok"), ("A", "fail"), ("ä ö", "ok")]);
    args["cleanup"] = json!(false);
    let done = stage.run(args).await;
    let mut named: Vec<_> = done["tasks"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["workspace_name"].as_str().expect("a name").to_owned())
        .collect();
    named.sort();
    assert_eq!(stage.fake.forks(), named);
    assert!(named.iter().all(|name| name.starts_with("swarm-") && name.len() <= 63), "{named:?}");
    assert_eq!(done["summary"]["workers_left"], 3);
    assert_eq!(done["tasks"][0]["stdout_path"], "/var/lib/hivekeep/tasks/x");
    let kept = stage.fake.with(|world| world.workspaces.clone());
    assert!(named.iter().all(|name| kept[name].acknowledged), "their queues are free");
}

#[tokio::test]
async fn tasks_are_told_variables_and_contexts() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.vault = true);
    let mut args = swarm(&[("a", "ok")]);
    args["cleanup"] = json!(false);
    args["env_vars"] = json!({ "BOTH": "all", "ALL": "1" });
    args["tasks"][0]["env"] = json!({ "BOTH": "own" });
    args["tasks"][0]["workdir"] = json!("/srv");
    args["timeout_secs"] = json!(77);
    args["shared_context"] = json!("to all");
    args["vault_context"] =
        json!([{ "kind": "search", "query": "x" }, { "kind": "read", "query": "n.md" }]);
    stage.run(args).await;
    let kept = stage.fake.with(|world| world.workspaces.clone());
    let one = &kept[&stage.fake.forks()[0]];
    let (task, _) = one.task.as_ref().expect("put");
    let env: Vec<_> = task.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let paths = ["SHARED_CONTEXT=/tmp/.shared-context", "VAULT_CONTEXT=/tmp/.vault-context"];
    assert_eq!(env, ["ALL=1", "BOTH=own", paths[0], paths[1]]);
    assert_eq!((task.workdir.as_deref(), task.timeout_secs), (Some("/srv"), 77));
    assert_eq!(one.files["/tmp/.shared-context"], "to all");
    let vault = &one.files["/tmp/.vault-context"];
    assert!(vault.contains("a.md:7") && vault.contains("the whole note"), "{vault}");
}

#[tokio::test]
async fn results_are_kept_as_long_as_configured() {
    let stage = Stage::with(Options { kept: 2, ..Options::default() }).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(stage.run(swarm(&[("a", "ok")])).await["swarm_id"].clone());
    }
    eventually("the oldest are gone", async || stage.rows().await.len() == 2).await;
    let told: Vec<_> = stage.rows().await.iter().map(|row| row["swarm_id"].clone()).collect();
    assert_eq!(told, ids[2..]);
    eventually("from the journal too", async || {
        stage.journal.streams("swarm/").expect("read").len() == 2
    })
    .await;
    let gone = stage.call("swarm_status", json!({ "swarm_id": ids[0] })).await;
    assert_eq!(gone.expect_err("forgotten").code, "swarm_not_found");
}

#[tokio::test]
async fn forks_are_made_in_turns_and_the_first_tasks_run_meanwhile() {
    let stage = Stage::new().await;
    let at_once = std::thread::available_parallelism().map_or(2, |many| many.get().max(2));
    let names: Vec<_> = (0..3 * at_once).map(|number| format!("t{number}")).collect();
    let tasks: Vec<_> = names.iter().map(|name| (name.as_str(), "ok")).collect();
    stage.fake.with(|world| {
        (world.slow, world.work) = (Duration::from_millis(100), Duration::from_secs(60));
    });
    let mut args = swarm(&tasks);
    args["max_parallel"] = json!(tasks.len());
    let running = stage.begin(args);
    eventually("one runs while others are made", async || {
        stage.fake.with(|world| !world.effects.is_empty() && world.forking > 0)
    })
    .await;
    eventually("all run", async || stage.fake.with(|world| world.effects.len()) == tasks.len())
        .await;
    assert_eq!(stage.fake.with(|world| world.most_forking), at_once);
    running.cancel.cancel();
    running.answer().await.expect_err("cancelled");
}

#[tokio::test]
async fn forks_that_take_long_keep_the_others_for_a_turn_and_no_longer() {
    let stage = Stage::new().await;
    let at_once = std::thread::available_parallelism().map_or(2, |many| many.get().max(2));
    let names: Vec<_> = (0..2 * at_once).map(|number| format!("t{number}")).collect();
    let tasks: Vec<_> = names.iter().map(|name| (name.as_str(), "ok")).collect();
    stage.fake.with(|world| world.slow = Duration::from_secs(60));
    let mut args = swarm(&tasks);
    args["max_parallel"] = json!(tasks.len());
    let running = stage.begin(args);
    let begun = async || stage.fake.with(|world| world.begun);
    eventually("the first are being made", async || begun().await == at_once).await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(11)).await;
    tokio::time::resume();
    eventually("so are the others", async || begun().await == tasks.len()).await;
    assert_eq!(stage.fake.with(|world| world.forking), tasks.len(), "the first still are");
    running.cancel.cancel();
    drop(running);
}
