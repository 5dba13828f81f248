//! Layers that deleted snapshots leave, with machines that are none and layers that are real.

use serde_json::{Value, json};

use super::stage::Stage;

async fn snapshot(stage: &Stage, workspace: &str, action: &str, name: &str) -> Value {
    let args = json!({ "workspace_id": workspace, "action": action, "name": name });
    stage.call("snapshot", args).await.unwrap()
}

async fn stop(stage: &Stage, workspace: &str) {
    stage.call("workspace_stop", json!({ "workspace_id": workspace })).await.unwrap();
}

fn layers(stage: &Stage) -> usize {
    stage.files().iter().filter(|file| file.starts_with("layers/")).count()
}

/// A stopped workspace with three snapshots in a row.
async fn three(stage: &Stage) -> String {
    let id = stage.create("w").await;
    stop(stage, &id).await;
    for name in ["a", "b", "c"] {
        snapshot(stage, &id, "create", name).await;
    }
    id
}

/// Without the program that merges there is nothing to see.
fn qemu_img() -> bool {
    let found = std::process::Command::new("qemu-img").arg("--version").output().is_ok();
    if !found {
        hivekeep_skip::skip("no qemu-img");
    }
    found
}

#[tokio::test]
async fn a_deletion_merges_what_it_leaves_over() {
    if !qemu_img() {
        return;
    }
    let mut stage = Stage::open().await;
    let id = three(&stage).await;
    let told = snapshot(&stage, &id, "delete", "c").await;
    assert_eq!(told["merged"], false, "its layer stands on one that is a snapshot's: {told}");
    assert!(told["not_merged"].as_str().unwrap().starts_with("no layer"), "{told}");
    let before = layers(&stage);
    let told = snapshot(&stage, &id, "delete", "b").await;
    assert_eq!((&told["merged"], &told["not_merged"]), (&json!(true), &Value::Null));
    stage.until(|| layers(&stage) == before - 1).await;
    // The chain is the same for the next daemon, and can be started, frozen and gone back to.
    stage.restart().await;
    assert_eq!(layers(&stage), before - 1);
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    snapshot(&stage, &id, "create", "d").await;
    snapshot(&stage, &id, "restore", "a").await;
    snapshot(&stage, &id, "restore", "d").await;
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(stage.files(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_running_machine_has_open_is_merged_at_its_stop() {
    if !qemu_img() {
        return;
    }
    let stage = Stage::open().await;
    let id = three(&stage).await;
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    snapshot(&stage, &id, "delete", "c").await;
    let told = snapshot(&stage, &id, "delete", "b").await;
    assert!(told["not_merged"].as_str().unwrap().contains("when the workspace is stopped"));
    let before = layers(&stage);
    stop(&stage, &id).await;
    stage.until(|| layers(&stage) == before - 1).await;
}

#[tokio::test]
async fn what_a_fork_needs_stays_apart() {
    if !qemu_img() {
        return;
    }
    let stage = Stage::open().await;
    let id = three(&stage).await;
    let fork = json!({ "workspace_id": id, "snapshot_name": "c", "new_name": "f" });
    stage.call("workspace_fork", fork).await.unwrap();
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    // The fork has no snapshot at all: its three layers are one, once the source is gone.
    let before = layers(&stage);
    stop(&stage, "f").await;
    stage.until(|| layers(&stage) == before - 2).await;

    let again = json!({ "workspace_id": "f", "action": "create", "name": "s" });
    stage.call("snapshot", again.clone()).await.unwrap();
    let second = json!({ "workspace_id": "f", "action": "create", "name": "t" });
    stage.call("snapshot", second).await.unwrap();
    let fork = json!({ "workspace_id": "f", "snapshot_name": "s", "new_name": "g" });
    stage.call("workspace_fork", fork).await.unwrap();
    snapshot(&stage, "f", "delete", "t").await;
    let refused = json!({ "workspace_id": "f", "action": "delete", "name": "s" });
    let refused = stage.call("snapshot", refused).await.unwrap_err();
    assert_eq!(refused.code, "snapshot_has_dependents");
}

#[tokio::test]
async fn a_start_takes_the_chain_as_it_is_and_a_layer_that_cannot_be_read_stays() {
    if !qemu_img() {
        return;
    }
    let stage = Stage::open().await;
    let id = three(&stage).await;
    let folder = stage.daemon.shared.folders.layers.clone();
    let all = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let content = std::fs::read(all().next().unwrap()).unwrap();
    all().for_each(|path| std::fs::write(path, "junk").unwrap());
    snapshot(&stage, &id, "delete", "c").await;
    let before = layers(&stage);
    let told = snapshot(&stage, &id, "delete", "b").await;
    assert_eq!(told["merged"], false, "{told}");
    assert!(told["not_merged"].as_str().unwrap().starts_with("machine_host_io"), "{told}");
    assert_eq!(layers(&stage), before, "nothing was lost, nothing is left");
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(stage.info(&id).await["state"], "running");
    all().for_each(|path| std::fs::write(path, &content).unwrap());
    // What failed is tried again at the next stop.
    let before = layers(&stage);
    stop(&stage, &id).await;
    stage.until(|| layers(&stage) == before - 1).await;
}
