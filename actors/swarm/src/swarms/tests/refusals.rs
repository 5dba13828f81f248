//! What is refused, and that nothing was made for it.

use std::time::Duration;

use hivekeep_kernel::SessionId;
use serde_json::{Value, json};

use super::stage::{Stage, eventually, swarm};
use crate::Options;

fn with(key: &str, value: Value) -> Value {
    let mut args = swarm(&[("a", "ok")]);
    args[key] = value;
    args
}

fn task(key: &str, value: Value) -> Value {
    let mut args = swarm(&[("a", "ok")]);
    args["tasks"][0][key] = value;
    args
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let stage = Stage::new().await;
    let foreign = stage.fake.add("foreign", SessionId::new());
    stage.fake.add("halted", stage.session);
    stage.fake.with(|world| world.workspaces.get_mut("halted").expect("there").state = "stopped");
    let target = |name: &str| {
        let mut args = with("merge_strategy", json!("sequential"));
        args["merge_target"] = json!(name);
        args
    };
    let note = json!([{ "kind": "read", "query": "a.md" }]);
    let cases = [
        ("invalid_input", swarm(&[("a", "ok"), ("a", "ok")])),
        ("invalid_input", with("merge_target", json!("golden"))),
        ("invalid_input", with("env_vars", json!({ "LD_PRELOAD": "x" }))),
        ("invalid_input", with("env_vars", json!({ "A B": "x" }))),
        ("invalid_input", with("shared_context", json!("x".repeat(1024 * 1024 + 1)))),
        ("invalid_input", with("vault_context", json!([{ "kind": "read", "query": " " }]))),
        ("invalid_input", with("unknown", json!(1))),
        ("invalid_input", task("name", json!(" "))),
        ("invalid_input", task("name", json!("a\nb"))),
        ("invalid_input", task("command", json!(""))),
        ("invalid_input", task("command", json!("x".repeat(256 * 1024 + 1)))),
        ("invalid_input", task("workdir", json!("src"))),
        ("invalid_input", task("env", json!({ "X": "a\0b" }))),
        ("vault_disabled", with("vault_context", note)),
        ("workspace_not_found", with("golden_workspace", json!("nobody"))),
        ("snapshot_not_found", with("snapshot_name", json!("none"))),
        ("not_owner", with("golden_workspace", json!(foreign))),
        ("workspace_not_found", target("nobody")),
        ("not_owner", target("foreign")),
        ("workspace_state", target("halted")),
    ];
    for (code, args) in cases {
        let error = stage.refused(args.clone()).await;
        let text = args.to_string();
        assert_eq!(error.code, code, "{}: {error}", &text[..text.len().min(400)]);
    }
    assert_eq!(stage.fake.with(|world| world.begun), 0);
    assert!(stage.rows().await.is_empty() && stage.journal.streams("").expect("read").is_empty());
}

#[tokio::test]
async fn as_many_run_as_configured() {
    let stage = Stage::with(Options { max_running: 1, ..Options::default() }).await;
    let first = stage.begin(swarm(&[("a", "hang")]));
    eventually("it runs", async || stage.rows().await.len() == 1).await;
    assert_eq!(stage.refused(swarm(&[("a", "ok")])).await.code, "too_many_swarms");
    first.cancel.cancel();
    assert_eq!(first.answer().await.expect_err("cancelled").code, "cancelled");
    stage.run(swarm(&[("a", "ok")])).await;
}

#[tokio::test]
async fn room_for_the_whole_swarm_is_taken_before_the_first_fork() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.room = Some(2));
    let three = [("a", "ok"), ("b", "ok"), ("c", "ok")];
    assert_eq!(stage.refused(swarm(&three)).await.code, "quota_exceeded");
    assert_eq!(stage.fake.with(|world| (world.begun, world.reserved)), (0, Default::default()));
    // Two at a time fit, for each goes before the next one is made; not where they have to stay.
    let mut args = swarm(&three);
    args["max_parallel"] = json!(2);
    let done = stage.run(args.clone()).await;
    assert_eq!(done["summary"]["succeeded"], 3, "{done}");
    assert_eq!(stage.fake.with(|world| world.reserved), Default::default(), "it is given back");
    args["merge_strategy"] = json!("sequential");
    assert_eq!(stage.refused(args).await.code, "quota_exceeded");
}

#[tokio::test]
async fn a_swarm_is_its_sessions() {
    let stage = Stage::new().await;
    let done = stage.run(swarm(&[("a", "ok")])).await;
    let (other, limit) = (SessionId::new(), Duration::from_secs(60));
    let args = json!({ "swarm_id": done["swarm_id"] });
    for tool in ["swarm_status", "swarm_cancel"] {
        let asked = stage.begin_as(other, tool, args.clone(), limit).answer().await;
        assert_eq!(asked.expect_err("another's").code, "not_owner", "{tool}");
    }
    let listed = stage.begin_as(other, "swarm_status", json!({}), limit).answer().await;
    assert_eq!(listed.expect("listed")["swarms"][0]["owned"], false);
    stage.fake.with(|world| world.ended.insert(stage.session));
    let asked = stage.begin_as(other, "swarm_status", args.clone(), limit).answer().await;
    assert_eq!(asked.expect("nobody's")["swarm"], done);
    let cancelled = stage.call("swarm_cancel", args).await.expect("over already");
    assert_eq!(cancelled["cancelled"], false);
}
