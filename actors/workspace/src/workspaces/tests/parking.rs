//! Sleep and wake, against machines that are none: what holds the memory when, and who waits.

use std::time::Duration;

use hivekeep_kernel::{SessionId, SnapshotId, ToolError, WorkspaceId};
use hivekeep_machine::{Error, ExitHow};
use hivekeep_ports::{WorkspacePorts as _, WorkspaceStandstill as _};
use hivekeep_store::StreamId;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::{
    Options, WorkspacePortsHandle,
    parking::standstill::WorkspaceStandstillHandle,
    records::{ParkPlan, Record},
};

/// Memory of a workspace that says nothing of it.
const MEMORY_MB: i64 = 512;

/// How often the driver was asked this.
fn asked(stage: &Stage, what: &str) -> usize {
    stage.driver.calls().iter().filter(|call| call.split(' ').next() == Some(what)).count()
}

fn count(stage: &Stage, kind: &str) -> usize {
    stage.events().iter().filter(|event| *event == kind).count()
}

fn memories(stage: &Stage) -> Vec<String> {
    stage.files().into_iter().filter(|file| file.starts_with("memories/")).collect()
}

async fn parked(stage: &Stage, name: &str) -> String {
    let id = stage.create(name).await;
    park(stage, &id).await;
    id
}

async fn park(stage: &Stage, id: &str) -> Value {
    let parked = stage.call("workspace_park", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(parked["state"], "parked");
    stage.once(id, |info| info["state"] == "parked").await
}

fn command(id: &str) -> Value {
    json!({ "workspace_id": id, "command": "true" })
}

async fn record(stage: &Stage, id: &str, record: &Record) {
    let stream = StreamId::new("workspace", id).unwrap();
    stage.journal.append(&stream, vec![serde_json::to_vec(record).unwrap()]).await.unwrap();
}

#[tokio::test]
async fn a_parked_machine_holds_nothing_and_wakes_for_a_command() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    assert_eq!(stage.daemon.quota.held_mb(), MEMORY_MB);
    let info = park(&stage, &id).await;
    assert_eq!((&info["process"], &info["machine"]), (&json!("none"), &Value::Null), "{info}");
    assert!(info["parked_bytes"].as_u64().unwrap() > 0, "{info}");
    assert!(!stage.driver.is_running(&id));
    // It is still one of the session's, with its disk.
    assert_eq!((stage.daemon.quota.held(), stage.daemon.quota.held_mb()), (1, 0));
    assert_eq!(memories(&stage).len(), 1);

    stage.call("exec", command(&id)).await.unwrap();
    let info = stage.info(&id).await;
    assert_eq!(
        (&info["state"], &info["parked_bytes"]),
        (&json!("running"), &Value::Null),
        "{info}"
    );
    assert_eq!((asked(&stage, "park"), asked(&stage, "wake"), asked(&stage, "launch")), (1, 1, 2));
    assert_eq!((stage.daemon.quota.held(), stage.daemon.quota.held_mb()), (1, MEMORY_MB));
    stage.until(|| memories(&stage).is_empty()).await;
    assert_eq!((count(&stage, "workspace.parked"), count(&stage, "workspace.started")), (1, 0));
    stage.until(|| count(&stage, "workspace.woken") == 1).await;
}

#[tokio::test]
async fn however_many_want_it_it_wakes_once_and_all_are_answered() {
    let stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    stage.driver.hold("wake", true);
    let mut answers = Vec::new();
    for tool in ["exec", "file_list", "exec", "workspace_resume", "workspace_start", "exec"] {
        let args = match tool {
            "exec" => command(&id),
            "file_list" => json!({ "workspace_id": id, "path": "/" }),
            _ => json!({ "workspace_id": id }),
        };
        answers.push((tool, stage.send(tool, args, |_| {}).unwrap()));
    }
    // Whoever only looks wakes nothing and waits for nothing.
    stage.once(&id, |info| info["state"] == "starting").await;
    stage.driver.hold("wake", false);
    for (tool, answer) in answers {
        let answer = answer.await.unwrap();
        // The guest of these tests has no files: what counts is that it was asked.
        let of_guest = |code: &str| !code.starts_with("workspace_");
        assert!(
            answer.as_ref().map_or_else(|error| of_guest(&error.code), |_| true),
            "{tool}: {answer:?}"
        );
    }
    assert_eq!(asked(&stage, "wake"), 1);
    assert_eq!(stage.commands().len(), 3);
}

#[tokio::test]
async fn what_comes_while_it_is_parked_waits_and_wakes_it() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.driver.hold("park", true);
    let parking = stage.send("workspace_park", json!({ "workspace_id": id }), |_| {}).unwrap();
    let wanted = stage.send("exec", command(&id), |_| {}).unwrap();
    let refused = stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(refused.code, "workspace_busy");
    stage.driver.hold("park", false);
    assert_eq!(parking.await.unwrap().unwrap()["state"], "parked");
    assert_eq!(wanted.await.unwrap().unwrap()["exit_code"], 0);
    assert_eq!((asked(&stage, "park"), asked(&stage, "wake")), (1, 1));
}

#[tokio::test]
async fn one_that_cannot_be_saved_goes_on() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.driver.fail_next_save(Error::HostDiskFull);
    let refused = stage.call("workspace_park", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(refused.code, "host_disk_full");
    assert_eq!(stage.call("exec", command(&id)).await.unwrap()["exit_code"], 0);
    assert_eq!((asked(&stage, "resume"), asked(&stage, "launch")), (1, 1));
    assert_eq!((stage.daemon.quota.held_mb(), memories(&stage).len()), (MEMORY_MB, 0));
    // And can be parked later.
    park(&stage, &id).await;
}

#[tokio::test]
async fn a_packet_from_outside_wakes_it() {
    let stage = Stage::open().await;
    let id: WorkspaceId = parked(&stage, "w").await.parse().unwrap();
    let ports = WorkspacePortsHandle::new(stage.daemon.shared.clone());
    for _ in 0..2 {
        ports.wake(id, Duration::from_secs(30)).await.unwrap();
        assert_eq!(stage.info(&id.to_string()).await["state"], "running");
    }
    assert_eq!(asked(&stage, "wake"), 1);
    let unknown = ports.wake(WorkspaceId::new(), Duration::ZERO).await.unwrap_err();
    assert_eq!(unknown.code, "workspace_not_found");
}

#[tokio::test]
async fn a_destroyed_workspace_has_removed_what_it_let_go_of_before() {
    let stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    // Takes longer to remove than a file, and than the rest of the workspace.
    let memory = stage.daemon.shared.daemon.folders.state.join(&memories(&stage)[0]);
    (0..20_000).for_each(|n| drop(std::fs::File::create(memory.join(n.to_string())).unwrap()));
    stage.call("exec", command(&id)).await.unwrap();
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(memories(&stage), Vec::<String>::new());
}

#[tokio::test]
async fn a_parked_machine_outlives_the_daemon_with_its_quota() {
    let mut stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    stage.restart().await;
    let info = stage.info(&id).await;
    assert_eq!((&info["state"], &info["process"]), (&json!("parked"), &json!("none")), "{info}");
    assert_eq!((stage.daemon.quota.held(), stage.daemon.quota.held_mb()), (1, 0));
    assert_eq!(memories(&stage).len(), 1, "it is not a leftover");
    stage.call("exec", command(&id)).await.unwrap();
    assert_eq!((asked(&stage, "wake"), stage.daemon.quota.held_mb()), (1, MEMORY_MB));
}

#[tokio::test]
async fn a_park_that_was_cut_short_lets_the_machine_go_on() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    // The daemon died while the memory was being saved, or right behind that.
    let request = ParkPlan { park: SnapshotId::new(), base: None, paused: false };
    record(&stage, &id, &Record::ParkWanted(request)).await;
    stage.call("workspace_pause", json!({ "workspace_id": id })).await.unwrap();
    let seen = asked(&stage, "resume");
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!((asked(&stage, "resume"), asked(&stage, "launch")), (seen + 1, 1));
    assert!(stage.records().contains("park_failed"));
    stage.call("exec", command(&id)).await.unwrap();
}

#[tokio::test]
async fn a_machine_that_is_parked_by_the_records_is_ended() {
    let mut stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    let plan = stage.daemon.shared.logs.state(id.parse().unwrap()).unwrap().parked.unwrap().plan;
    stage.call("exec", command(&id)).await.unwrap();
    // The daemon died between the record and the end of the machine.
    let park = plan.park;
    record(&stage, &id, &Record::ParkWanted(plan)).await;
    let at = chrono::Utc::now();
    record(&stage, &id, &Record::Parked { park, memory_bytes: 8, at }).await;
    assert!(stage.driver.is_running(&id));
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "parked").await;
    stage.until(|| !stage.driver.is_running(&id)).await;
    stage.until(|| stage.records().matches("park_ended").count() == 2).await;
}

#[tokio::test]
async fn a_wake_that_was_cut_short_is_as_if_it_had_not_begun() {
    let mut stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    record(&stage, &id, &Record::StartWanted).await;
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "parked").await;
    assert_eq!((memories(&stage).len(), stage.daemon.quota.held_mb()), (1, 0));
    stage.call("exec", command(&id)).await.unwrap();
}

#[tokio::test]
async fn one_that_cannot_be_woken_says_so_and_is_started_from_its_disk_when_asked() {
    let stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    let differs = || Error::ShapeDiffers {
        what: "QEMU's version",
        saved: "7".to_owned(),
        here: "8".to_owned(),
    };
    for _ in 0..2 {
        stage.driver.fail_next_launch(differs());
        let refused = stage.call("exec", command(&id)).await.unwrap_err();
        assert_eq!(refused.code, "not_woken", "{refused:?}");
        assert!(refused.message.contains("QEMU's version was 7 and is 8"), "{}", refused.message);
        assert!(refused.next_step.unwrap().contains("from_disk"));
        let info = stage.once(&id, |info| info["state"] == "parked").await;
        assert!(info["reason"].as_str().unwrap().contains("QEMU's version"), "{info}");
        assert_eq!((memories(&stage).len(), stage.daemon.quota.held_mb()), (1, 0));
    }
    let request = json!({ "workspace_id": id, "from_disk": true });
    stage.call("workspace_start", request).await.unwrap();
    let info = stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(info["reason"], Value::Null);
    stage.until(|| memories(&stage).is_empty()).await;
    assert_eq!(stage.daemon.quota.held_mb(), MEMORY_MB);
    assert_eq!(count(&stage, "workspace.memory_given_up"), 1);
}

#[tokio::test]
async fn wakes_have_turns_and_nobody_is_woken_for_who_went_away() {
    let options: Options =
        serde_json::from_value(json!({ "default_disk_gb": 1, "max_parallel_wakes": 1 })).unwrap();
    let stage = Stage::open_with(options).await;
    let (first, second) = (parked(&stage, "first").await, parked(&stage, "second").await);
    stage.driver.hold("wake", true);
    let one = stage.send("exec", command(&first), |_| {}).unwrap();
    stage.until(|| asked(&stage, "wake") == 1).await;
    let gone = stage.send("exec", command(&second), |cx| cx.cancel.cancel()).unwrap();
    let other = parked(&stage, "third").await;
    let two = stage.send("exec", command(&other), |_| {}).unwrap();
    stage.once(&other, |info| info["state"] == "starting").await;
    assert_eq!(asked(&stage, "wake"), 1, "one after the other");
    stage.driver.hold("wake", false);
    for answer in [one, two] {
        assert_eq!(answer.await.unwrap().unwrap()["exit_code"], 0);
    }
    drop(gone);
    stage.once(&second, |info| info["state"] == "parked").await;
    assert!(!stage.driver.calls().contains(&format!("wake {second}")));
}

#[tokio::test]
async fn an_idle_machine_is_parked_and_one_is_at_its_end() {
    let stage = Stage::open().await;
    let (idle, ended) = (stage.create("idle").await, stage.create("ended").await);
    let request = json!({ "workspace_id": idle, "idle_park_secs": 1 });
    let set = stage.call("workspace_lifetime", request).await.unwrap();
    assert_eq!((&set["idle_park_secs"], &set["ends_at"]), (&json!(1), &Value::Null));
    let request = json!({ "workspace_id": ended, "lifetime_secs": 1, "at_end": "park" });
    stage.call("workspace_lifetime", request).await.unwrap();
    for id in [&idle, &ended] {
        let info = stage.once(id, |info| info["state"] == "parked").await;
        assert_eq!(info["process"], "none");
    }
    stage.once(&ended, |info| info["ends_at"].is_null()).await;
    // Both wake; the one is parked again, the other one has no end any more.
    for id in [&idle, &ended] {
        stage.call("exec", command(id)).await.unwrap();
    }
    stage.until(|| count(&stage, "workspace.parked") == 3).await;
    assert_eq!(stage.info(&ended).await["state"], "running");
    let request = json!({ "workspace_id": idle, "idle_park_secs": null });
    let set = stage.call("workspace_lifetime", request).await.unwrap();
    assert_eq!(set["idle_park_secs"], Value::Null);
}

#[tokio::test]
async fn what_a_parked_workspace_can_do_and_what_not() {
    let stage = Stage::open().await;
    let id = parked(&stage, "w").await;
    let refused = stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(refused.code, "workspace_state");
    assert!(refused.next_step.unwrap().contains("workspace_start wakes it"));
    // Its disk is as after a power cut, and is not mixed up with its memory.
    let request = json!({ "workspace_id": id, "action": "create", "name": "s" });
    assert_eq!(stage.call("snapshot", request).await.unwrap()["disk_synced"], false);
    stage.call("set_env", json!({ "workspace_id": id, "vars": { "A": "1" } })).await.unwrap();
    assert_eq!(asked(&stage, "wake"), 0);
    stage.call("exec", command(&id)).await.unwrap();
    park(&stage, &id).await;
    let refused = stage.call("workspace_park", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(refused.code, "workspace_state");
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!((stage.daemon.quota.held(), stage.daemon.quota.held_mb()), (0, 0));
    stage.until(|| stage.files().is_empty()).await;
}

/// Standstill of the stage's session.
async fn standstill(stage: &Stage, id: &str, saved: Option<bool>) -> Result<(), ToolError> {
    let port = WorkspaceStandstillHandle(stage.daemon.shared.clone());
    let id = id.parse().unwrap();
    match saved {
        Some(saved) => port.halt(stage.session, id, saved).await,
        None => port.go_on(stage.session, id).await,
    }
}

#[tokio::test]
async fn a_machine_that_stands_still_until_it_is_used_goes_on_for_whoever_uses_it() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    let stranger = WorkspaceStandstillHandle(stage.daemon.shared.clone());
    let workspace = id.parse().unwrap();
    let refused = stranger.halt(SessionId::new(), workspace, false).await.unwrap_err();
    assert_eq!(refused.code, "not_owner");
    for _ in 0..2 {
        standstill(&stage, &id, Some(false)).await.unwrap();
    }
    assert_eq!(stage.info(&id).await["state"], "paused");
    assert_eq!(asked(&stage, "pause"), 1);
    stage.call("exec", command(&id)).await.unwrap();
    assert_eq!(
        (stage.info(&id).await["state"].as_str(), asked(&stage, "resume")),
        (Some("running"), 1)
    );

    // What comes while it is being paused waits, and has it go on.
    stage.driver.hold("pause", true);
    let port = WorkspaceStandstillHandle(stage.daemon.shared.clone());
    let session = stage.session;
    let halting = tokio::spawn(async move { port.halt(session, workspace, false).await });
    stage.until(|| asked(&stage, "pause") == 2).await;
    let used = stage.send("exec", command(&id), |_| {}).unwrap();
    stage.driver.hold("pause", false);
    halting.await.unwrap().unwrap();
    used.await.unwrap().unwrap();
    assert_eq!(stage.commands().len(), 2);

    standstill(&stage, &id, Some(false)).await.unwrap();
    standstill(&stage, &id, None).await.unwrap();
    standstill(&stage, &id, None).await.unwrap();
    assert_eq!(
        (stage.info(&id).await["state"].as_str(), asked(&stage, "resume")),
        (Some("running"), 3)
    );
    standstill(&stage, &id, Some(true)).await.unwrap();
    assert_eq!(stage.info(&id).await["state"], "parked");
    stage.call("exec", command(&id)).await.unwrap();
    // A pause that a person asked for ends by a person alone.
    stage.call("workspace_pause", json!({ "workspace_id": id })).await.unwrap();
    standstill(&stage, &id, Some(false)).await.unwrap();
    standstill(&stage, &id, None).await.unwrap();
    let refused = stage.call("exec", command(&id)).await.unwrap_err();
    assert_eq!(refused.code, "workspace_state");
}

#[tokio::test]
async fn a_standstill_outlives_the_daemon_and_ends_by_use_or_with_the_machine() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    standstill(&stage, &id, Some(false)).await.unwrap();
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "paused").await;
    stage.call("exec", command(&id)).await.unwrap();
    assert_eq!(asked(&stage, "resume"), 1);
    standstill(&stage, &id, Some(false)).await.unwrap();
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(stage.info(&id).await["state"], "stopped");
    assert!(!stage.driver.is_running(&id));
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    stage.call("exec", command(&id)).await.unwrap();
}

#[tokio::test]
async fn a_standstill_says_nothing_of_a_pause_that_is_under_way_and_needs_none_without_a_machine() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    for (what, begun, other) in [("pause", Some(false), None), ("resume", None, Some(false))] {
        stage.driver.hold(what, true);
        let port = WorkspaceStandstillHandle(stage.daemon.shared.clone());
        let (session, workspace) = (stage.session, id.parse().unwrap());
        let turning = tokio::spawn(async move {
            match begun {
                Some(saved) => port.halt(session, workspace, saved).await,
                None => port.go_on(session, workspace).await,
            }
        });
        stage.until(|| asked(&stage, what) == 1).await;
        let busy = standstill(&stage, &id, other).await.unwrap_err();
        assert!(busy.code == "workspace_busy" && busy.retryable, "{what}: {busy}");
        stage.driver.hold(what, false);
        turning.await.unwrap().unwrap();
    }
    assert!(stage.driver.crash(&id, ExitHow::Signaled { signal: 9 }));
    stage.once(&id, |info| info["state"] == "crashed").await;
    standstill(&stage, &id, Some(false)).await.unwrap();
}

#[tokio::test]
async fn a_persons_pause_is_theirs_before_the_machine_stands_whatever_was_before() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let workspace: WorkspaceId = id.parse().unwrap();
    stage.driver.fail_next_turn(Error::CannotPause { why: "not now" });
    standstill(&stage, &id, Some(false)).await.unwrap_err();
    stage.call("exec", command(&id)).await.unwrap();
    stage.driver.hold("pause", true);
    let paused = stage.send("workspace_pause", json!({ "workspace_id": id }), |_| {}).unwrap();
    stage.until(|| asked(&stage, "pause") == 2).await;
    let rests = |stage: &Stage| stage.daemon.shared.logs.state(workspace).unwrap().rests;
    assert!(!rests(&stage), "it would be ended by any use if the daemon died now");
    stage.driver.hold("pause", false);
    paused.await.unwrap().unwrap();
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "paused").await;
    let refused = stage.call("exec", command(&id)).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), asked(&stage, "resume")), ("workspace_state", 0));
}

#[tokio::test]
async fn a_machine_that_does_not_go_on_says_so_to_whoever_waits_and_is_tried_again() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    standstill(&stage, &id, Some(false)).await.unwrap();
    stage.driver.hold("resume", true);
    stage.driver.fail_next_turn(Error::HostDiskFull);
    let waiting: Vec<_> =
        (0..2).map(|_| stage.send("exec", command(&id), |_| {}).unwrap()).collect();
    stage.until(|| asked(&stage, "resume") == 1).await;
    stage.driver.hold("resume", false);
    for refused in waiting {
        assert_eq!(refused.await.unwrap().unwrap_err().code, "host_disk_full");
    }
    assert_eq!(stage.info(&id).await["state"], "paused");
    stage.call("exec", command(&id)).await.unwrap();
    assert_eq!((stage.commands().len(), asked(&stage, "resume")), (1, 2));
}
