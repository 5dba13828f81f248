//! Changes of disk and snapshots that meet others. What is sent to a workspace is taken up in the
//! order in which it is sent, and a call that is held in the driver goes on when the test says.

use serde_json::{Value, json};

use super::stage::Stage;

fn snapshot(workspace: &str, action: &str, memory: bool) -> Value {
    json!({ "workspace_id": workspace, "action": action, "name": "s", "include_memory": memory })
}

fn change(workspace: &str, action: &str) -> Value {
    json!({ "workspace_id": workspace, "action": action, "name": "s" })
}

#[tokio::test]
async fn a_start_does_not_take_the_disk_from_under_a_snapshot() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    let seen = stage.driver.calls().len();
    let making = stage.send("snapshot", snapshot(&id, "create", false), |_| {}).unwrap();
    // Taken up before the snapshot's first record can be applied.
    let start = stage.send("workspace_start", json!({ "workspace_id": id }), |_| {}).unwrap();
    let refused = start.await.unwrap().unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("workspace_busy", true));
    making.await.unwrap().unwrap();
    assert_eq!(stage.driver.calls().len(), seen, "nothing was started");
    // What was refused can be repeated, on the new top.
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    let top = stage.driver.top(&id).unwrap();
    assert!(top.starts_with(&stage.daemon.shared.folders.layers), "{}", top.display());
}

#[tokio::test]
async fn a_snapshot_does_not_begin_on_a_disk_that_is_being_started() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    stage.driver.hold("launch", true);
    let start = stage.send("workspace_start", json!({ "workspace_id": id }), |_| {}).unwrap();
    let refused = stage.call("snapshot", snapshot(&id, "create", false)).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("workspace_busy", true));
    stage.driver.hold("launch", false);
    start.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_start_that_is_given_up_while_its_machine_is_recorded_ends_that_machine() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    let seen = stage.driver.calls().len();
    let cancel = tokio_util::sync::CancellationToken::new();
    let start = json!({ "workspace_id": id });
    let start = stage.send("workspace_start", start, |cx| cx.cancel = cancel.clone()).unwrap();
    // The journal is written by another thread: what launched it waits there by now.
    while !stage.driver.is_running(&id) {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    assert_eq!(start.await.unwrap().unwrap_err().code, "cancelled");
    let calls = stage.driver.calls().split_off(seen);
    let calls: Vec<_> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    assert_eq!(calls, ["release", "prepare", "launch", "kill", "release"]);
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
}

#[tokio::test]
async fn a_deletion_does_not_meet_a_restore_to_the_same_snapshot() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("snapshot", snapshot(&id, "create", true)).await.unwrap();
    stage.driver.hold("launch_from", true);
    let seen = stage.driver.calls().len();
    let restore = stage.send("snapshot", change(&id, "restore"), |_| {}).unwrap();
    // Before its intent is recorded, and after the record that it is there: while its memory is
    // being loaded no record says that it is needed.
    let refused = stage.call("snapshot", change(&id, "delete")).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("workspace_busy", true));
    stage.driver.called(&format!("launch_from {id}"), seen).await;
    let refused = stage.call("snapshot", change(&id, "delete")).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("workspace_busy", true));
    stage.driver.hold("launch_from", false);
    let restored = restore.await.unwrap().unwrap();
    assert_eq!(restored["has_memory"], true);
    stage.call("snapshot", change(&id, "delete")).await.unwrap();
    stage.until(|| !stage.files().iter().any(|file| file.starts_with("memories/"))).await;
}

#[tokio::test]
async fn a_restore_does_not_meet_a_deletion_of_the_same_snapshot() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("snapshot", snapshot(&id, "create", true)).await.unwrap();
    let deletion = stage.send("snapshot", change(&id, "delete"), |_| {}).unwrap();
    let restore = stage.send("snapshot", change(&id, "restore"), |_| {}).unwrap();
    assert_eq!(restore.await.unwrap().unwrap_err().code, "workspace_busy");
    deletion.await.unwrap().unwrap();
    let gone = stage.call("snapshot", change(&id, "restore")).await.unwrap_err();
    assert_eq!(
        (gone.code.as_ref(), &stage.info(&id).await["state"]),
        ("snapshot_not_found", &json!("running"))
    );
}
