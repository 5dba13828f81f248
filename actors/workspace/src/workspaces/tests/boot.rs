//! Machines that end in their boot, and those that wake slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use hivekeep_ports::NetworkMode;
use hivekeep_protocol::ToGuest;
use serde_json::json;

use super::stage::{Stage, guest};
use super::wires::Wires;

fn launches(stage: &Stage) -> usize {
    stage.driver.calls().iter().filter(|call| call.starts_with("launch")).count()
}

fn repeats(stage: &Stage) -> usize {
    stage.events().iter().filter(|kind| *kind == "workspace.boot_repeated").count()
}

#[tokio::test]
async fn a_machine_that_ends_in_its_boot_is_booted_once_more() {
    let stage = Stage::open().await;
    stage.driver.end_next_boots(1);
    let id = stage.create("w").await;
    assert_eq!((launches(&stage), repeats(&stage)), (2, 1));
    let page = stage.journal.events().read(hivekeep_store::Seq::FIRST, 1_000).unwrap();
    let told = page.events.iter().find(|event| event.kind == "workspace.boot_repeated").unwrap();
    assert_eq!(told.data["console_end"], "fake console [redacted]\n");
    // Every start, and on the disk that the first one has made.
    let args = json!({ "workspace_id": id });
    stage.call("workspace_stop", args.clone()).await.unwrap();
    stage.driver.end_next_boots(1);
    stage.call("workspace_start", args.clone()).await.unwrap();
    assert_eq!((launches(&stage), repeats(&stage)), (4, 2));
    let answer = stage.call("exec", json!({ "workspace_id": id, "command": "true" })).await;
    assert_eq!(answer.unwrap()["exit_code"], 0);
    assert_eq!(stage.records().matches("disk_made").count(), 1, "{}", stage.records());
}

#[tokio::test]
async fn a_second_end_in_the_boot_is_told_with_the_console_and_leaves_nothing() {
    let stage = Stage::open().await;
    stage.driver.end_next_boots(2);
    let made = stage.call("workspace_create", json!({ "name": "w", "disk_gb": 1 })).await;
    let error = made.unwrap_err();
    assert_eq!((error.code.as_ref(), launches(&stage)), ("boot_failed", 2));
    assert_eq!(error.details["console_end"], "fake console s3cret\n");
    assert_eq!((stage.daemon.quota.held(), stage.files()), (0, Vec::new()));
    stage.create("w").await;
}

#[tokio::test]
async fn a_memory_has_no_boot_to_repeat() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    let snapshot =
        json!({ "workspace_id": id, "action": "create", "name": "s", "include_memory": true });
    stage.call("snapshot", snapshot).await.unwrap();
    stage.driver.end_next_boots(1);
    let fork = json!({ "workspace_id": id, "snapshot_name": "s", "new_name": "f" });
    let error = stage.call("workspace_fork", fork).await.unwrap_err();
    let begun = stage.driver.calls().iter().filter(|call| call.starts_with("launch_from")).count();
    assert_eq!((error.code.as_ref(), begun, repeats(&stage)), ("machine_gone", 1, 0));
}

#[tokio::test]
async fn a_creation_cut_short_between_its_two_boots_is_undone() {
    for held in ["release", "launch"] {
        let mut stage = Stage::open().await;
        stage.driver.end_next_boots(1);
        stage.driver.hold("release", true);
        let args = json!({ "name": "w", "disk_gb": 1 });
        let creation = stage.send("workspace_create", args, |_| {}).unwrap();
        stage.until(|| stage.driver.calls().iter().any(|call| call.starts_with("release"))).await;
        if held == "launch" {
            stage.driver.hold("launch", true);
            stage.driver.hold("release", false);
            stage.until(|| launches(&stage) == 2).await;
        }
        drop(creation);
        stage.restart().await;
        stage.driver.hold(held, false);
        stage.until(|| stage.files().is_empty() && stage.daemon.quota.held() == 0).await;
        let list = stage.call("workspace_list", json!({})).await.unwrap();
        assert_eq!(list["workspaces"], json!([]), "{held}");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_late_is_set_again() {
    let (slow, times) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let script = {
        let (slow, times) = (slow.clone(), times.clone());
        move |request: &ToGuest| {
            let sets = matches!(request, ToGuest::Configure(_) | ToGuest::Reidentify(_));
            times.fetch_add(usize::from(sets), SeqCst);
            if sets && slow.swap(false, SeqCst) {
                std::thread::sleep(Duration::from_millis(600));
            }
            guest(request)
        }
    };
    let wires = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(wires, script).await;
    let id = stage.create("w").await;
    assert_eq!(times.swap(0, SeqCst), 2, "a boot");
    let snapshot =
        json!({ "workspace_id": id, "action": "create", "name": "s", "include_memory": true });
    stage.call("snapshot", snapshot).await.unwrap();
    slow.store(true, SeqCst);
    times.store(0, SeqCst);
    let fork = json!({ "workspace_id": id, "snapshot_name": "s", "new_name": "f" });
    stage.call("workspace_fork", fork).await.unwrap();
    assert_eq!(times.load(SeqCst), 2, "a copy of a memory");
}
