//! Bad days of the host: its disk is full, or it is slow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use hivekeep_link::{LinkSupervisorOptions, fake::RequestBehaviour};
use hivekeep_machine::ReattachError;
use hivekeep_ports::NetworkMode;
use hivekeep_protocol::ToGuest;
use serde_json::json;

use super::stage::{FLOOR, Stage, guest};
use super::wires::Wires;
use crate::Options;

/// A workspace whose guest is silent while its machine stands still. Pings are quick, and few
/// enough for the slots that a link has for them: this guest never closes those that it ignored.
async fn with_pings() -> (Stage, String, Arc<AtomicBool>) {
    let silent = Arc::new(AtomicBool::new(false));
    let says_nothing = silent.clone();
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let script = move |request: &ToGuest| match says_nothing.load(SeqCst) {
        true => RequestBehaviour::Ignore,
        false => guest(request),
    };
    let link =
        LinkSupervisorOptions { ping_idle_ms: 50, ping_timeout_ms: 2_000, ..Default::default() };
    let stage = Stage::furnished(network, script, Options { link, ..Options::default() }).await;
    let id = stage.create("w").await;
    (stage, id, silent)
}

fn since(stage: &Stage, seen: usize, call: &str) -> usize {
    stage.driver.calls().iter().skip(seen).filter(|is| is.starts_with(call)).count()
}

#[tokio::test]
async fn a_machine_without_room_for_its_writes_says_so_and_goes_on_by_itself() {
    let (stage, id, silent) = with_pings().await;
    let seen = stage.driver.calls().len();
    stage.free.store(0, SeqCst);
    stage.driver.starve(&id);
    silent.store(true, SeqCst);
    let info = stage.once(&id, |info| info["state"] == "host_disk_full").await;
    assert_eq!(info["process"], "running");
    assert!(info["reason"].as_str().unwrap().starts_with("host_disk_full"), "{info}");
    assert_eq!(stage.word(&id), "host_disk_full");
    for (tool, more) in [
        ("exec", json!({ "command": "true" })),
        ("workspace_pause", json!({})),
        ("workspace_resume", json!({})),
        ("workspace_start", json!({})),
        ("snapshot", json!({ "action": "create", "name": "s", "include_memory": true })),
    ] {
        let mut args = more;
        args["workspace_id"] = json!(id);
        let refused = stage.call(tool, args).await.unwrap_err();
        assert_eq!(refused.code, "host_disk_full", "{tool}");
        assert!(refused.retryable && refused.next_step.is_some(), "{tool}");
    }
    // Without room it is not woken: it would only fill what is left.
    stage.driver.make_room(&id);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(since(&stage, seen, "resume"), 0);

    stage.free.store(FLOOR, SeqCst);
    stage.until(|| since(&stage, seen, "resume") > 0).await;
    silent.store(false, SeqCst);
    let info = stage.once(&id, |info| info["state"] == "running").await;
    assert!(info["reason"].is_null(), "{info}");
    let answer = stage.call("exec", json!({ "workspace_id": id, "command": "true" })).await;
    assert_eq!(answer.unwrap()["exit_code"], 0);
    assert_eq!(since(&stage, seen, "launch") + since(&stage, seen, "kill"), 0);
    for kind in ["workspace.host_disk_full", "workspace.goes_on"] {
        stage.until(|| stage.events().iter().any(|is| is == kind)).await;
    }
}

#[tokio::test]
async fn a_machine_found_without_room_is_taken_up_as_it_is() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let seen = stage.driver.calls().len();
    stage.free.store(0, SeqCst);
    stage.driver.starve(&id);
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "host_disk_full").await;
    assert_eq!(info["process"], "running");
    stage.driver.make_room(&id);
    stage.free.store(FLOOR, SeqCst);
    stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(since(&stage, seen, "launch") + since(&stage, seen, "kill"), 0);
}

#[tokio::test]
async fn a_machine_without_room_can_be_stopped_and_destroyed() {
    let mut stage = Stage::open().await;
    let (stopped, destroyed) = (stage.create("a").await, stage.create("b").await);
    for id in [&stopped, &destroyed] {
        stage.driver.starve(id);
    }
    stage.free.store(0, SeqCst);
    stage.restart().await;
    for id in [&stopped, &destroyed] {
        stage.once(id, |info| info["state"] == "host_disk_full").await;
    }
    stage.call("workspace_stop", json!({ "workspace_id": stopped })).await.unwrap();
    stage.call("workspace_destroy", json!({ "workspace_id": destroyed })).await.unwrap();
    assert!(!stage.driver.is_running(&stopped) && !stage.driver.is_running(&destroyed));
}

#[tokio::test]
async fn nothing_new_is_made_below_the_floor() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    let snapshot = json!({ "workspace_id": id, "action": "create", "name": "s" });
    stage.call("snapshot", snapshot).await.unwrap();
    stage.free.store(FLOOR - 1, SeqCst);
    let (files, records) = (stage.files(), stage.records());
    let fork = json!({ "workspace_id": id, "snapshot_name": "s" });
    let download = json!({ "workspace_id": id, "direction": "download", "guest_path": "/f", "host_path": "f" });
    for (tool, args) in [
        ("workspace_create", json!({ "name": "x" })),
        ("workspace_fork", fork),
        ("snapshot", json!({ "workspace_id": id, "action": "create", "name": "t" })),
        ("file_transfer", download),
    ] {
        let refused = stage.call(tool, args).await.unwrap_err();
        assert_eq!(refused.code, "host_disk_full", "{tool}: {refused:?}");
        assert_eq!(refused.details["floor_bytes"], json!(FLOOR), "{tool}");
    }
    assert_eq!((stage.files(), stage.records()), (files, records));
    assert_eq!(stage.daemon.quota.held(), 1);
    // What is there goes on.
    stage.call("exec", json!({ "workspace_id": id, "command": "true" })).await.unwrap();
    stage.free.store(FLOOR, SeqCst);
    stage.create("x").await;
}

#[tokio::test]
async fn a_slow_machine_is_taken_up_when_it_answers() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let seen = stage.driver.calls().len();
    for _ in 0..3 {
        let reason = "no answer to query-uuid within 5000 ms".to_owned();
        stage.driver.fail_next_reattach(ReattachError::Silent { reason });
    }
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(since(&stage, seen, "reattach"), 4);
    assert_eq!(since(&stage, seen, "launch") + since(&stage, seen, "kill"), 0);
}

/// One that was silent for as long as a boot may take.
async fn left_alone() -> (Stage, String, usize) {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let seen = stage.driver.calls().len();
    stage.options.boot_timeout_secs = 1;
    for _ in 0..3 {
        let reason = "no answer to query-uuid within 5000 ms".to_owned();
        stage.driver.fail_next_reattach(ReattachError::Silent { reason });
    }
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "crashed").await;
    assert_eq!(info["process"], "unknown", "{info}");
    assert_eq!(since(&stage, seen, "kill"), 0);
    (stage, id, seen)
}

#[tokio::test]
async fn a_machine_that_was_given_up_is_taken_up_when_it_answers_after_all() {
    let (stage, id, seen) = left_alone().await;
    stage.once(&id, |info| info["state"] != "crashed").await;
    assert_eq!(since(&stage, seen, "launch") + since(&stage, seen, "kill"), 0);
    stage.once(&id, |info| info["process"] == "running").await;
}

#[tokio::test]
async fn a_machine_that_was_given_up_is_ended_by_order() {
    let (stage, id, seen) = left_alone().await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(since(&stage, seen, "kill"), 1);
    assert!(!stage.driver.is_running(&id));
}
