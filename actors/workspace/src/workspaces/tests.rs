//! Starts, stops and recoveries that fail, against machines that are none.

mod boot;
mod commands;
mod fake_host;
mod forks;
mod host;
mod hostile;
mod lifetimes;
mod merge;
mod network;
mod parking;
mod pool;
mod ports;
mod prepare;
mod races;
mod refusals;
mod stage;
mod tasks;
mod wires;

use hivekeep_kernel::WorkspaceId;
use hivekeep_link::LinkToken;
use hivekeep_machine::{ExitHow, Isolation, ReattachError};
use serde_json::json;
use tokio::sync::oneshot;

use self::stage::Stage;
use crate::{
    manager::Msg,
    records::{Planned, WorkspaceSpec},
};

/// A workspace whose machine could be neither taken up nor ended after a restart.
async fn left_by_a_recovery() -> (Stage, String) {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let reason = "nobody answers at its control socket".to_owned();
    stage.driver.fail_next_reattach(ReattachError::Uncontrollable { reason });
    stage.driver.refuse_kills(true);
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "crashed").await;
    (stage, id)
}

/// What the driver was asked after the first `seen` calls, without the looks.
fn since(stage: &Stage, seen: usize) -> Vec<String> {
    let calls = stage.driver.calls().into_iter().skip(seen);
    calls.filter_map(|call| Some(call.split_once(' ')?.0.to_owned())).collect()
}

#[tokio::test]
async fn a_start_ends_the_machine_that_a_failed_recovery_left() {
    let (stage, id) = left_by_a_recovery().await;
    let seen = stage.driver.calls().len();
    let refused = stage.call("workspace_start", json!({ "workspace_id": id })).await;
    assert_eq!(refused.unwrap_err().code, "machine_unkillable");
    assert!(!since(&stage, seen).contains(&"launch".to_owned()), "{:?}", since(&stage, seen));
    assert!(stage.driver.is_running(&id));
    // The refused start lost nothing: the next one still knows the machine.
    let info = stage.once(&id, |info| info["state"] == "crashed").await;
    assert_eq!(info["process"], "unknown", "{info}");

    stage.driver.refuse_kills(false);
    let seen = stage.driver.calls().len();
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(since(&stage, seen), ["kill", "release", "prepare", "launch"]);
    assert_eq!(stage.info(&id).await["process"], "running");
}

#[tokio::test]
async fn a_start_ends_the_machine_that_a_failed_stop_left() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.driver.refuse_kills(true);
    let refused = stage.call("workspace_stop", json!({ "workspace_id": id })).await;
    assert_eq!(refused.unwrap_err().code, "machine_unkillable");
    let info = stage.once(&id, |info| info["state"] == "crashed").await;
    assert_eq!(info["process"], "unknown", "{info}");
    let seen = stage.driver.calls().len();
    let refused = stage.call("workspace_start", json!({ "workspace_id": id })).await;
    assert_eq!(refused.unwrap_err().code, "machine_unkillable");
    assert!(!since(&stage, seen).contains(&"launch".to_owned()), "{:?}", since(&stage, seen));

    stage.driver.refuse_kills(false);
    let seen = stage.driver.calls().len();
    stage.once(&id, |info| info["state"] == "crashed").await;
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(since(&stage, seen), ["kill", "release", "prepare", "launch"]);
}

#[tokio::test]
async fn a_machine_that_may_still_run_is_not_called_gone() {
    let (mut stage, id) = left_by_a_recovery().await;
    let info = stage.info(&id).await;
    let reason = info["reason"].as_str().unwrap();
    assert!(reason.contains("may still run: workspace_stop ends it"), "{reason}");
    assert_eq!((&info["process"], info["machine"].is_object()), (&json!("unknown"), true));
    let list = stage.call("workspace_list", json!({})).await.unwrap();
    assert_eq!(list["workspaces"][0]["process"], "unknown", "{list}");
    assert_eq!(stage.word(&id), "crashed, machine may run");

    assert!(stage.driver.crash(&id, ExitHow::Signaled { signal: 9 }));
    let info = stage.once(&id, |info| info["process"] == "none" && info["machine"].is_null()).await;
    let reason = info["reason"].as_str().unwrap();
    assert!(reason.ends_with("its process has ended since"), "{reason}");
    assert_eq!((&info["state"], stage.word(&id).as_str()), (&json!("crashed"), "crashed"));
    // It is a fact, not only said.
    stage.restart().await;
    let info = stage.info(&id).await;
    assert_eq!((&info["state"], &info["process"]), (&json!("crashed"), &json!("none")), "{info}");
}

#[tokio::test]
async fn a_stop_ends_what_a_failed_recovery_left() {
    let (stage, id) = left_by_a_recovery().await;
    stage.driver.refuse_kills(false);
    let stopped = stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!((&stopped["how"], stage.driver.is_running(&id)), (&json!("killed"), false));
    let info = stage.once(&id, |info| info["state"] == "stopped").await;
    assert_eq!((&info["process"], &info["reason"]), (&json!("none"), &json!(null)));
}

#[tokio::test]
async fn a_stop_of_all_machines_takes_what_a_failed_recovery_left() {
    let (stage, id) = left_by_a_recovery().await;
    stage.driver.refuse_kills(false);
    let patience = std::time::Duration::from_secs(30);
    stage.daemon.manager.ask(patience, Msg::StopAll).await.unwrap();
    assert!(!stage.driver.is_running(&id));
}

#[tokio::test]
async fn a_stop_of_all_machines_takes_one_that_is_being_started() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    stage.driver.hold("launch", true);
    let seen = stage.driver.calls().len();
    let start = stage.send("workspace_start", json!({ "workspace_id": id }), |_| {}).unwrap();
    stage.driver.called(&format!("launch {id}"), seen).await;
    let manager = stage.daemon.manager.clone();
    let patience = std::time::Duration::from_secs(110);
    let stopping = tokio::spawn(async move { manager.ask(patience, Msg::StopAll).await });
    // It is asked while the machine does not run.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    stage.driver.hold("launch", false);
    start.await.unwrap().unwrap();
    stopping.await.unwrap().unwrap();
    assert!(!stage.driver.is_running(&id));
}

#[tokio::test]
async fn once_the_daemon_stops_nothing_is_made_or_started_and_the_rest_goes_on() {
    let stage = Stage::open().await;
    let halted = stage.create("halted").await;
    let at_it = json!({ "workspace_id": halted });
    let snapshot = json!({ "workspace_id": halted, "action": "create", "name": "s" });
    stage.call("snapshot", snapshot).await.unwrap();
    stage.call("workspace_stop", at_it.clone()).await.unwrap();
    let running = stage.create("running").await;
    let launched = stage.driver.calls().len();
    stage.daemon.shared.daemon.closing.cancel();
    let fork = json!({ "workspace_id": halted, "snapshot_name": "s", "new_name": "f" });
    let restore = json!({ "workspace_id": halted, "action": "restore", "name": "s" });
    for (tool, args) in [
        ("workspace_create", json!({ "name": "late" })),
        ("workspace_fork", fork),
        ("workspace_start", at_it.clone()),
        ("snapshot", restore),
    ] {
        let error = stage.call(tool, args).await.unwrap_err();
        assert_eq!((error.code.as_ref(), error.retryable), ("daemon_stopping", true), "{tool}");
    }
    assert!(stage.driver.calls()[launched..].iter().all(|call| !call.starts_with("launch")));
    assert_eq!(
        (stage.info(&halted).await["state"].clone(), stage.daemon.quota.held()),
        (json!("stopped"), 2)
    );
    stage.call("workspace_stop", json!({ "workspace_id": running })).await.unwrap();
    stage.call("workspace_destroy", at_it).await.unwrap();
}

#[tokio::test]
async fn calls_right_after_a_restart_are_answered_and_a_long_reattachment_holds_up_nobody() {
    let mut stage = Stage::open().await;
    let stopped = stage.create("stopped").await;
    stage.call("workspace_stop", json!({ "workspace_id": stopped })).await.unwrap();
    let mut running = Vec::new();
    for nth in 0..8 {
        running.push(stage.create(&format!("w{nth}")).await);
    }
    stage.driver.hold("reattach", true);
    stage.restart().await;
    // Not one of these is tried again.
    for id in &running {
        assert_eq!(stage.info(id).await["state"], "starting");
    }
    stage.call("workspace_start", json!({ "workspace_id": stopped })).await.unwrap();
    stage.driver.hold("reattach", false);
    for id in &running {
        stage.once(id, |info| info["state"] == "running").await;
    }
}

#[tokio::test]
async fn a_plan_that_gets_no_actor_holds_nothing() {
    for daemon_stops in [false, true] {
        no_actor(daemon_stops).await;
    }
}

async fn no_actor(daemon_stops: bool) {
    let stage = Stage::open().await;
    let id = WorkspaceId::new();
    let plan = Planned {
        id,
        name: "w".parse().unwrap(),
        owner: stage.session,
        user: None,
        spec: WorkspaceSpec {
            image: "base".to_owned(),
            isolation: Isolation::Vm,
            vcpus: 1,
            memory_mb: 256,
            disk_gb: 1,
        },
        slot: 0,
        uuid: uuid::Uuid::new_v4(),
        at: chrono::Utc::now(),
        token: LinkToken::from_bytes([7; 32]),
        fork: None,
        network: Default::default(),
        recipe: None,
        pool: None,
        several_users: false,
        volumes: Vec::new(),
        labels: Default::default(),
        lifetime: None,
    };
    // As a creation does up to the plan; then it ends.
    let (shared, quota) = (&stage.daemon.shared, &stage.daemon.quota);
    shared.directory.claim(&plan.name, id).unwrap();
    assert_eq!(shared.directory.take_slot(id, 1), Some(0));
    shared.daemon.sessions.reserve(plan.owner, plan.spec.resources()).await.unwrap();
    shared.logs.plan(plan.clone()).await.unwrap();
    let (reply, spawned) = oneshot::channel();
    // Its caller is there only where the daemon stops.
    let caller = daemon_stops.then_some(spawned);
    if daemon_stops {
        shared.daemon.closing.cancel();
    }
    stage.daemon.manager.send(Msg::Spawn(Box::new(plan), reply)).unwrap();
    if let Some(spawned) = caller {
        assert!(spawned.await.is_err(), "nothing is given an actor any more");
    }

    let begun = tokio::time::Instant::now();
    while quota.held() > 0 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "the quota is held");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(stage.journal.streams("workspace/").unwrap().is_empty());
    let other = WorkspaceId::new();
    shared.directory.claim(&"w".parse().unwrap(), other).unwrap();
    assert_eq!(shared.directory.take_slot(other, 1), Some(0));
}

#[tokio::test]
async fn a_creation_draws_from_what_its_call_brings() {
    use hivekeep_kernel::Resources;
    use hivekeep_ports::Reservation;

    let stage = Stage::open().await;
    let quota = stage.daemon.quota.clone();
    let two = Resources { workspaces: 2, ..Resources::default() };
    let two = Reservation::take(quota.clone(), stage.session, two).await.unwrap();
    assert_eq!(quota.held(), 2);
    let create = async |name: &str| {
        let args = json!({ "name": name, "disk_gb": 1 });
        let reserved = Some(two.clone());
        let sent = stage.send("workspace_create", args, |cx| cx.reserved = reserved);
        sent.unwrap().await.unwrap()
    };
    create("a").await.unwrap();
    assert_eq!((quota.held(), two.left().workspaces), (2, 1), "counted once");
    // A second one of that name takes nothing.
    assert_eq!(create("a").await.unwrap_err().code, "name_taken");
    assert_eq!((quota.held(), two.left().workspaces), (2, 1));
    create("b").await.unwrap();
    create("c").await.unwrap();
    assert_eq!((quota.held(), two.left().workspaces), (3, 0), "the third is counted beside it");
    // What is removed in its name is reserved for the next one.
    let reserved = Some(two.clone());
    let gone = json!({ "workspace_id": "b" });
    let sent = stage.send("workspace_destroy", gone, |cx| cx.reserved = reserved);
    sent.unwrap().await.unwrap().unwrap();
    assert_eq!((quota.held(), two.left().workspaces), (3, 1));
    create("d").await.unwrap();
    assert_eq!((quota.held(), two.left().workspaces), (3, 0));
    drop(two);
    assert_eq!(quota.held(), 3);
    stage.call("workspace_destroy", json!({ "workspace_id": "a" })).await.unwrap();
    assert_eq!(quota.held(), 2);
}

#[tokio::test]
async fn what_only_waits_gives_its_place_back_and_a_creation_keeps_it() {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    let stage = Stage::open().await;
    stage.create("w").await;
    stage.create("v").await;
    let snapshot = json!({ "workspace_id": "w", "action": "create", "name": "s" });
    stage.call("snapshot", snapshot).await.unwrap();
    let given = async |tool: &'static str, args| {
        let count = Arc::<AtomicU32>::default();
        let counted = count.clone();
        let slot = hivekeep_kernel::AdmissionPermit::new(move || {
            counted.fetch_add(1, SeqCst);
        });
        // What comes of it is not looked at: this guest knows few commands.
        let _result = stage.send(tool, args, |cx| cx.slot = slot).unwrap().await.unwrap();
        count.load(SeqCst) > 0
    };
    let parallel = json!({ "workspace_ids": ["w", "v"], "commands": "true" });
    assert!(given("exec_parallel", parallel).await);
    let merge = json!({
        "target_workspace": "w", "source_workspaces": ["v"], "strategy": "sequential",
    });
    assert!(given("workspace_merge", merge).await);
    let fork = json!({ "workspace_id": "w", "snapshot_name": "s" });
    assert!(given("workspace_fork", fork).await);
    let branch = json!({ "workspace_id": "w" });
    assert!(given("workspace_branch", branch).await);
    assert!(given("workspace_prepare", json!({ "name": "golden" })).await);
    assert!(!given("workspace_create", json!({ "name": "x" })).await, "a boot is the host's work");
}
