//! A daemon that dies in an operation: the next one removes its workspace, and finishes or ends it.

use serde_json::{Value, json};
use tokio::time::Duration;

use super::stage::{Stage, of, remote};

#[tokio::test]
async fn a_clone_that_was_cut_short_is_finished() {
    for tool in
        ["aegis.volume.list", "aegis.volume.create", "workspace_create", "exec", "git_clone"]
    {
        let mut stage = Stage::open().await;
        stage.daemon.script().hanging = Some(tool);
        stage.good("clone", remote("app")).await;
        stage.daemon.hangs.notified().await;
        let status = stage.status().await["status"].clone();
        assert_eq!(status, if tool.contains("volume") { "pending" } else { "cloning" }, "{tool}");
        stage.crash().await;
        let row = stage.done().await;
        assert_eq!((&row["status"], &row["error"]), (&json!("ready"), &Value::Null), "{tool}");
        assert_eq!(stage.told(), "one");
        assert_eq!(stage.daemon.volume_folders().len(), 1, "{tool}");
        stage.is_tidy();
    }
}

#[tokio::test]
async fn other_operations_are_finished_or_ended() {
    let mut stage = Stage::open().await;
    stage.bound().await;
    stage.daemon.script().remote = "two";
    for (operation, tool) in [
        ("refresh", "git_fetch"),
        ("commit", "git_commit"),
        ("push", "git_push"),
        ("diff", "git_diff"),
    ] {
        stage.daemon.script().hanging = Some(tool);
        let mut args = of("app");
        if operation == "commit" {
            args["message"] = json!("x");
        }
        let name = format!("aegis.git.{operation}");
        let session = stage.rig().session;
        let _cut = stage.rig().begin_as(session, &name, args, Duration::from_secs(60));
        stage.daemon.hangs.notified().await;
        // A commit may have been made, whatever its answer would have been.
        if operation == "commit" {
            let volume = stage.daemon.volume_folders().pop().expect("a volume");
            std::fs::write(volume.join("app/told"), "made").expect("written");
        }
        stage.crash().await;
        let row = stage.done().await;
        let commit = if operation == "refresh" { "two" } else { "made" };
        assert_eq!((&row["status"], &row["last_commit_sha"]), (&json!("ready"), &json!(commit)));
        stage.is_tidy();
    }
    // A workspace that an older daemon made as the session itself.
    stage.daemon.script().failing = Some(("workspace_destroy", "not_owner"));
    stage.good("diff", of("app")).await;
    stage.is_tidy();
    stage.daemon.script().hanging = Some("aegis.volume.delete");
    let session = stage.rig().session;
    let _cut =
        stage.rig().begin_as(session, "aegis.git.delete", of("app"), Duration::from_secs(60));
    stage.daemon.hangs.notified().await;
    stage.crash().await;
    hivekeep_testkit::eventually("it is gone", async || {
        stage.good("list", json!({})).await["total"] == 0
    })
    .await;
    assert!(stage.daemon.volume_folders().is_empty());
}

#[tokio::test]
async fn what_an_ordered_stop_cuts_short_goes_on_at_the_next_start() {
    let mut stage = Stage::open().await;
    stage.rig().daemon.closing.cancel();
    stage.daemon.script().failing = Some(("git_clone", "daemon_stopping"));
    stage.good("clone", remote("app")).await;
    hivekeep_testkit::eventually("its work has ended", async || {
        let row = stage.status().await;
        row["status"] == "cloning" && row["step"] == "working"
    })
    .await;
    stage.crash().await;
    let row = stage.done().await;
    assert_eq!((&row["status"], &row["error"]), (&json!("ready"), &Value::Null));
}
