//! The daemon dies at named points; nothing is lost and nothing leaks.

use serde_json::json;

use super::{
    jobs::{job, wait_ended},
    parking, snapshots,
};
use crate::{house::House, leaks};

const KILL: &str = "=return(kill)";

/// Starts the daemon with one point armed, provokes it, and starts it again in peace.
pub fn die_at(house: &mut House, point: &str, provoke: impl FnOnce(&House)) {
    if house.try_call("workspace_list", json!({})).is_ok() {
        house.kill();
    }
    house.start_armed(&format!("{point}{KILL}"));
    provoke(house);
    house.wait_for_death();
    house.start();
}

pub fn settled(house: &House, name: &str) -> Option<String> {
    let begun = std::time::Instant::now();
    loop {
        let row = house.list().into_iter().find(|row| row["name"] == name)?;
        let state = row["state"].as_str().expect("a state").to_owned();
        if !["starting", "stopping", "creating", "destroying"].contains(&state.as_str()) {
            return Some(state);
        }
        assert!(begun.elapsed().as_secs() < 60, "{name} stays {state}\n{}", house.stderr());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// With `other` beside it, made where it is not there.
pub fn idle_with_two_workspaces_and_a_job(house: &mut House) {
    if settled(house, "other").is_none() {
        house.create("other");
    }
    house.exec("w", "echo volatile > /dev/shm/x");
    let started = job(
        house,
        "start",
        json!({ "command": "i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 6" }),
    );
    for _ in 0..3 {
        house.kill();
        house.start();
        house.wait_state("w", "running");
        house.wait_state("other", "running");
    }
    assert_eq!(house.exec("w", "cat /dev/shm/x").trim(), "volatile", "it was rebooted");
    house.exec("other", "true");
    let ended = wait_ended(house, &started["job_id"]);
    let all: String = (0..50).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        (&ended["stdout"], &ended["exit_code"]),
        (&json!(all), &json!(6)),
        "output was lost"
    );
    leaks::check(house);
}

fn creation_is_undone(house: &mut House, point: &str) {
    die_at(house, point, |house| {
        let answer = house.try_call("workspace_create", json!({ "name": "half" }));
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
    });
    let half = settled(house, "half");
    assert_eq!(half, None, "{point}: an unacknowledged creation was not undone");
    leaks::check(house);
}

pub fn every_point_of_create(mut house: House) {
    for point in [
        "create.after_plan",
        "start.before_prepare",
        "start.after_prepare",
        "start.after_intent",
        "start.after_launch",
        "start.after_launched",
        "create.before_created",
    ] {
        creation_is_undone(&mut house, point);
    }
    // Acknowledged or not, what is recorded as made is there.
    die_at(&mut house, "create.after_created", |house| {
        let _died = house.try_call("workspace_create", json!({ "name": "whole" }));
    });
    assert_eq!(settled(&house, "whole").as_deref(), Some("running"));
    house.exec("whole", "true");
    leaks::check(&house);
}

pub fn every_point_of_destroy(mut house: House) {
    for point in ["destroy.after_intent", "kill.after_kill", "destroy.after_discard"] {
        house.create("doomed");
        house.kill();
        house.start_armed(&format!("{point}{KILL}"));
        house.wait_state("doomed", "running");
        let answer = house.try_call("workspace_destroy", json!({ "workspace_id": "doomed" }));
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        house.wait_for_death();
        house.start();
        assert_eq!(settled(&house, "doomed"), None, "{point}: a destruction was not finished");
        leaks::check(&house);
    }
}

pub fn every_point_of_stop_and_start(mut house: House) {
    house.create("w");
    house.exec("w", "echo kept > /root/kept; sync");
    for (point, tool) in [
        ("stop.after_intent", "workspace_stop"),
        ("stop.after_end", "workspace_stop"),
        ("start.after_intent", "workspace_start"),
        ("start.after_launch", "workspace_start"),
        ("start.after_launched", "workspace_start"),
    ] {
        stop_or_start_is_settled(&mut house, point, tool);
    }
    running(&house);
    assert_eq!(house.exec("w", "cat /root/kept").trim(), "kept");
}

/// Starts `w` where it does not run.
fn running(house: &House) {
    if settled(house, "w").as_deref() != Some("running") {
        house.call("workspace_start", json!({ "workspace_id": "w" }));
    }
}

fn stop_or_start_is_settled(house: &mut House, point: &str, tool: &str) {
    if tool == "workspace_stop" {
        running(house);
    } else if settled(house, "w").as_deref() == Some("running") {
        house.call("workspace_stop", json!({ "workspace_id": "w" }));
    }
    house.kill();
    house.start_armed(&format!("{point}{KILL}"));
    assert!(settled(house, "w").is_some());
    let answer = house.try_call(tool, json!({ "workspace_id": "w" }));
    assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
    house.wait_for_death();
    house.start();
    let after = settled(house, "w").expect("listed");
    assert!(after == "stopped" || after == "running", "{point}: {after}");
    leaks::check(house);
}

/// Of machines, in each run: one point of each operation, which have all of theirs in turns.
pub fn one_point_of_each(mut house: House) {
    creation_is_undone(&mut house, "start.after_launched");
    house.create("w");
    house.exec("w", "echo kept > /root/kept; sync");
    stop_or_start_is_settled(&mut house, "start.after_launch", "workspace_start");
    running(&house);
    snapshots::with_memory(&house, "base");
    snapshots::snapshot_is_whole_or_gone(&mut house, "snapshot.after_save", true);
    snapshots::restore_is_done_or_not(&mut house, "restore.after_kill");
    let job = parking::begin(&house);
    parking::parks_or_runs(&mut house, "park.after_save");
    parking::end(&house, &job);
}

pub fn jobs_and_transfers(mut house: House) {
    house.create("w");
    house.kill();
    for point in ["job.after_intent", "job.after_start"] {
        house.start_armed(&format!("{point}{KILL}"));
        house.wait_state("w", "running");
        let args =
            json!({ "workspace_id": "w", "action": "start", "command": "echo ran >> /root/ran" });
        let answer = house.try_call("exec_background", args);
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        house.wait_for_death();
    }
    std::fs::write(house.path().join("state/transfers/up"), "content").expect("written");
    for (point, direction, host) in [
        ("transfer.after_upload", "upload", "up"),
        ("transfer.before_sync", "download", "down"),
        ("transfer.after_download", "download", "down"),
    ] {
        house.start_armed(&format!("{point}{KILL}"));
        house.wait_state("w", "running");
        let args = json!({ "workspace_id": "w", "direction": direction, "host_path": host, "guest_path": "/root/file" });
        let answer = house.try_call("file_transfer", args);
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        house.wait_for_death();
        let down = std::fs::read_to_string(house.path().join("state/transfers/down")).ok();
        match point {
            "transfer.after_download" => assert_eq!(down.as_deref(), Some("content")),
            _ => assert_eq!(down, None, "{point}: half a file appeared"),
        }
    }
    house.start();
    house.wait_state("w", "running");
    // The job that was never sent did not run; the one that was ran once.
    assert_eq!(house.exec("w", "cat /root/ran"), "ran\n");
    assert_eq!(house.exec("w", "cat /root/file"), "content");
    let left: Vec<_> = std::fs::read_dir(house.path().join("state/transfers"))
        .expect("listed")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 2, "a cut download left something: {left:?}");
    leaks::check(&house);
}
