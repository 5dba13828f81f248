//! Snapshots, forks and pauses of virtual machines.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::crash::{die_at, settled};
use crate::{house::House, leaks};

fn snapshot(house: &House, action: &str, more: Value) -> Value {
    let mut args = json!({ "workspace_id": "w", "action": action });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    house.call("snapshot", args)
}

fn names(house: &House) -> Vec<String> {
    let listed = snapshot(house, "list", json!({}));
    let rows = listed["snapshots"].as_array().expect("rows").clone();
    rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

/// Something that only lives in memory, and counts.
fn count(house: &House, pause_secs: &str) {
    let command =
        format!("i=0; while :; do i=$((i+1)); echo $i > /dev/shm/count; sleep {pause_secs}; done");
    let args = json!({ "workspace_id": "w", "action": "start", "command": command });
    house.call("exec_background", args);
    house.exec("w", "until [ -s /dev/shm/count ]; do sleep 0.05; done");
}

fn number(house: &House, workspace: &str) -> u64 {
    // The file is empty for a moment with each number.
    let read = "until n=$(cat /dev/shm/count); [ -n \"$n\" ]; do :; done; echo $n";
    house.exec(workspace, read).trim().parse().expect("a number")
}

pub fn memory_and_disk_go_back_to_any_node(mut house: House) {
    house.create("w");
    count(&house, "0.05");
    house.exec("w", "echo one > /root/f");
    let made = snapshot(&house, "create", json!({ "name": "one", "include_memory": true }));
    assert!(made["pause_ms"].as_u64().is_some() && made["memory_bytes"].as_u64() > Some(1 << 20));
    let at_one = number(&house, "w");
    house.exec("w", "echo two > /root/f");
    snapshot(&house, "create", json!({ "name": "two" }));
    let twice = json!({ "workspace_id": "w", "action": "create", "name": "two" });
    assert_eq!(house.refused("snapshot", twice).code, "snapshot_exists");
    house.exec("w", "echo three > /root/f; sleep 3");

    let back = snapshot(&house, "restore", json!({ "name": "one" }));
    assert_eq!((&back["has_memory"], &back["state"]), (&json!(true), &json!("running")));
    assert_eq!(house.exec("w", "cat /root/f").trim(), "one");
    // It goes on where it was: neither from the start, nor from where it had got to since.
    let (now, later) = (number(&house, "w"), at_one + 40);
    assert!((1..later).contains(&now), "{now}, was {at_one}");
    house.check_clock("w");
    // The node after it is still there, and its disk.
    snapshot(&house, "restore", json!({ "name": "two" }));
    assert_eq!(house.exec("w", "cat /root/f").trim(), "two");

    // What hangs on what.
    snapshot(&house, "create", json!({ "name": "three" }));
    let listed = snapshot(&house, "list", json!({}));
    let row = |name: &str| {
        let rows = listed["snapshots"].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).expect("listed").clone()
    };
    assert_eq!(row("two")["parent"], row("one")["id"]);
    assert_eq!(row("three")["parent"], row("two")["id"]);
    assert_eq!(row("three")["current"], true);
    assert_eq!(row("one")["dependents"], json!(["two"]));
    let args = json!({ "workspace_id": "w", "action": "delete", "name": "one" });
    assert_eq!(house.refused("snapshot", args).code, "snapshot_has_dependents");

    // All of it outlives the daemon, and a machine that stopped.
    house.kill();
    house.start();
    house.wait_state("w", "running");
    assert_eq!(names(&house), ["one", "two", "three"]);
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    let made = snapshot(&house, "create", json!({ "name": "stopped" }));
    assert_eq!(made["disk_synced"], true);
    // Another on a top that no start has begun, and it can be started and listed.
    snapshot(&house, "create", json!({ "name": "again" }));
    assert_eq!(snapshot(&house, "list", json!({}))["count"], 5);
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "cat /root/f").trim(), "two");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    let args =
        json!({ "workspace_id": "w", "action": "create", "name": "no", "include_memory": true });
    assert_eq!(house.refused("snapshot", args).code, "workspace_state");
    let back = snapshot(&house, "restore", json!({ "name": "one", "discard_newer": true }));
    assert_eq!(back["discarded"], json!(["again", "stopped", "three", "two"]));
    assert_eq!(house.exec("w", "cat /root/f").trim(), "one");
    assert_eq!(names(&house), ["one"]);
    // Now nothing but the workspace itself stands on it.
    assert_eq!(snapshot(&house, "delete", json!({ "name": "one" }))["deleted"], true);
    assert_eq!(house.exec("w", "cat /root/f").trim(), "one");
    // What deleted ones left of the disk becomes one layer while it stands, the first, which was
    // made from the image, too.
    for name in ["four", "five"] {
        house.exec("w", &format!("echo {name} > /root/{name}; sync"));
        snapshot(&house, "create", json!({ "name": name }));
        assert_eq!(snapshot(&house, "delete", json!({ "name": name }))["merged"], false);
    }
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    let layers = || std::fs::read_dir(house.path().join("state/layers")).expect("layers").count();
    let begun = Instant::now();
    // One, and the one that is written.
    while layers() > 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} layers: {}",
            layers(),
            house.stderr()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "cd /root; cat f four five"), "one\nfour\nfive\n");
    leaks::check(&house);
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    leaks::check(&house);
}

pub fn forks_of_one_memory_are_themselves(house: House) {
    house.create("w");
    // Twenty of them run at once.
    count(&house, "1");
    house.call("set_env", json!({ "workspace_id": "w", "vars": { "FROM": "source" } }));
    snapshot(&house, "create", json!({ "name": "s", "include_memory": true }));
    let args = json!({ "workspace_id": "w", "snapshot_name": "s", "count": 20 });
    let forked = house.call("workspace_fork", args);
    assert_eq!(forked["success_count"], 20, "{}", forked["failures"]);
    let workers = forked["workers"].as_array().expect("workers").clone();
    let mut said = BTreeSet::new();
    for worker in &workers {
        let name = worker["name"].as_str().expect("a name");
        let script =
            "cat /etc/machine-id; hostname; head -c 16 /dev/urandom | od -An -tx1; echo $FROM";
        let lines = house.exec(name, script);
        let lines: Vec<_> = lines.lines().map(str::trim).collect();
        let [id, host, random, from] = lines[..] else { panic!("{lines:?}") };
        assert_eq!((host, from), (name, "source"));
        house.check_clock(name);
        for secret in [id, random] {
            assert!(secret.len() >= 32 && said.insert(secret.to_owned()), "{name}: {secret} twice");
        }
    }
    // Each counts on by itself, and none sees what another writes.
    assert!(number(&house, "worker-7") > 0);
    house.exec("worker-1", "echo mine > /root/f; sync");
    assert_eq!(house.exec("worker-2", "ls /root").trim(), "");
    let info = house.call("workspace_info", json!({ "workspace_id": "worker-3" }));
    assert_eq!(info["forked_from"]["source_workspace_name"], "w");
    // The source's snapshot is held by name; the source itself may go.
    let args = json!({ "workspace_id": "w", "action": "delete", "name": "s" });
    assert_eq!(house.refused("snapshot", args).code, "snapshot_has_dependents");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    house.exec("worker-4", "true");
    house.call("workspace_stop", json!({ "workspace_id": "worker-1" }));
    house.call("workspace_start", json!({ "workspace_id": "worker-1" }));
    assert_eq!(house.exec("worker-1", "cat /root/f; hostname").trim(), "mine\nworker-1");
    for worker in &workers {
        house.call("workspace_destroy", json!({ "workspace_id": worker["name"] }));
    }
    leaks::check(&house);
}

pub fn forks_of_forks_and_of_disks(house: House) {
    house.create("w");
    count(&house, "0.05");
    let args = json!({ "workspace_id": "w", "new_name": "a" });
    let branched = house.call("workspace_branch", args);
    assert!(branched["pause_ms"].as_u64().is_some(), "{branched}");
    house.exec("a", "echo a > /root/f");
    // The memory of a fork is its own pages; it is saved in another way.
    let args = json!({ "workspace_id": "a", "new_name": "b", "snapshot_name": "n" });
    house.call("workspace_branch", args);
    assert_eq!(house.exec("b", "cat /root/f; hostname").trim(), "a\nb");
    let first = number(&house, "b");
    house.exec("b", "sleep 1");
    let second = number(&house, "b");
    assert!(second > first, "{first}, then {second}");
    // Without memory it boots, with another size.
    let args = json!({
        "workspace_id": "a", "snapshot_name": "n", "new_name": "c", "with_memory": false,
        "memory_mb": 320,
    });
    assert_eq!(house.call("workspace_fork", args)["with_memory"], false);
    assert_eq!(house.exec("c", "cat /root/f; ls /dev/shm").trim(), "a");
    let args = json!({
        "workspace_id": "a", "snapshot_name": "n", "with_memory": true, "memory_mb": 320,
    });
    assert_eq!(house.refused("workspace_fork", args).code, "invalid_input");
    for (args, code) in [
        (json!({ "workspace_id": "a", "snapshot_name": "none" }), "snapshot_not_found"),
        (json!({ "workspace_id": "a", "snapshot_name": "n", "count": 21 }), "invalid_input"),
        (json!({ "workspace_id": "a", "snapshot_name": "n", "new_name": "b" }), "name_taken"),
    ] {
        assert_eq!(house.refused("workspace_fork", args.clone()).code, code, "{args}");
    }
    leaks::check(&house);
}

pub fn a_paused_workspace_stands_still(mut house: House) {
    house.create("w");
    count(&house, "0.05");
    house.call("workspace_pause", json!({ "workspace_id": "w" }));
    let args = json!({ "workspace_id": "w", "command": "true" });
    assert_eq!(house.refused("exec", args).code, "workspace_state");
    // Paused for one daemon is paused for the next.
    house.kill();
    house.start();
    house.wait_state("w", "paused");
    let made = snapshot(&house, "create", json!({ "name": "still", "include_memory": true }));
    assert_eq!(made["has_memory"], true);
    assert_eq!(settled(&house, "w").as_deref(), Some("paused"));
    assert_eq!(made["disk_synced"], false);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let resumed = house.call("workspace_resume", json!({ "workspace_id": "w" }));
    assert_eq!(resumed["clock_error"], Value::Null);
    house.check_clock("w");
    let first = number(&house, "w");
    house.exec("w", "sleep 0.5");
    assert!(number(&house, "w") > first);
    house.call("workspace_pause", json!({ "workspace_id": "w" }));
    let stopped = house.call("workspace_stop", json!({ "workspace_id": "w" }));
    assert_eq!(stopped["how"], "guest");
    leaks::check(&house);
}

pub fn every_point_of_a_snapshot_and_a_restore(mut house: House) {
    house.create("w");
    house.exec("w", "echo kept > /root/kept; sync");
    with_memory(&house, "base");
    for (point, memory) in [
        ("snapshot.after_intent", true),
        ("snapshot.after_save", true),
        ("snapshot.after_save", false),
        ("snapshot.after_made", true),
    ] {
        snapshot_is_whole_or_gone(&mut house, point, memory);
    }
    assert_eq!(house.exec("w", "tr -d '\\n' < /root/grows").trim(), "xyxyxyxy");
    for point in ["restore.after_intent", "restore.after_kill", "restore.after_restored"] {
        restore_is_done_or_not(&mut house, point);
    }
}

/// Takes a snapshot of `w`, as it runs.
pub fn with_memory(house: &House, name: &str) {
    snapshot(house, "create", json!({ "name": name, "include_memory": true }));
}

pub fn snapshot_is_whole_or_gone(house: &mut House, point: &str, memory: bool) {
    house.exec("w", "echo x >> /root/grows; sync");
    let args = json!({
        "workspace_id": "w", "action": "create", "name": "half", "include_memory": memory,
    });
    die_at_running(house, point, "snapshot", args);
    assert_eq!(settled(house, "w").as_deref(), Some("running"), "{point}");
    let made = names(house).contains(&"half".to_owned());
    assert_eq!(made, point == "snapshot.after_made", "{point}");
    house.exec("w", "echo y >> /root/grows; sync");
    leaks::check(house);
}

/// Of the snapshot `base`, which has `/root/kept` and not `/root/grows`. Leaves it running.
pub fn restore_is_done_or_not(house: &mut House, point: &str) {
    let args = json!({ "workspace_id": "w", "action": "restore", "name": "base" });
    die_at_running(house, point, "snapshot", args);
    let state = settled(house, "w").expect("listed");
    let expected = match point {
        "restore.after_intent" => "running",
        "restore.after_kill" => "crashed",
        _ => "stopped",
    };
    assert_eq!(state, expected, "{point}");
    if state != "running" {
        house.call("workspace_start", json!({ "workspace_id": "w" }));
    }
    // Before the point of no return the present disk is untouched, after it it is gone.
    let grown = house.exec("w", "cat /root/kept; ls /root/grows 2>/dev/null | wc -l");
    let there = if point == "restore.after_restored" { "kept\n0" } else { "kept\n1" };
    assert_eq!(grown.trim(), there, "{point}");
    leaks::check(house);
}

pub fn every_point_of_ten_forks(mut house: House) {
    house.create("w");
    snapshot(&house, "create", json!({ "name": "s", "include_memory": true }));
    for point in
        ["create.after_plan", "start.after_launch", "start.after_launched", "create.before_created"]
    {
        let args = json!({ "workspace_id": "w", "snapshot_name": "s", "count": 10 });
        die_at_running(&mut house, point, "workspace_fork", args);
        house.wait_state("w", "running");
        for n in 1..=10 {
            assert_eq!(settled(&house, &format!("worker-{n}")), None, "{point}");
        }
        leaks::check(&house);
    }
    let args = json!({ "workspace_id": "w", "snapshot_name": "s", "count": 2 });
    assert_eq!(house.call("workspace_fork", args)["success_count"], 2);
    leaks::check(&house);
}

/// The workspace runs; the daemon dies while it does what is asked.
fn die_at_running(house: &mut House, point: &str, tool: &str, args: Value) {
    die_at(house, point, |house| {
        house.wait_state("w", "running");
        let answer = house.try_call(tool, args);
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
    });
}

/// A sandbox is paused where it has a cgroup of version 2, and then nothing runs in it.
pub fn a_sandbox_refuses_snapshots(house: House) {
    house.create("w");
    let snapshot = json!({ "workspace_id": "w", "action": "create", "name": "s" });
    assert_eq!(house.refused("snapshot", snapshot).code, "snapshot_unsupported");
    let ticks =
        "while read -r now _ < /proc/uptime; do echo $now >> /workspace/ticks; sleep 0.05; done";
    let start = json!({ "workspace_id": "w", "action": "start", "command": ticks });
    house.call("exec_background", start);
    let run =
        |command: &str| house.call("exec", json!({ "workspace_id": "w", "command": command }));
    run("until [ -s /workspace/ticks ]; do sleep 0.05; done");
    let w = json!({ "workspace_id": "w" });
    match house.try_call("workspace_pause", w.clone()) {
        Ok(paused) => assert_eq!(paused["state"], "paused"),
        Err(refused) => {
            let refused = refused.expect("the daemon lives");
            assert_eq!(refused.code, "snapshot_unsupported");
            return;
        }
    }
    let gap = Duration::from_secs(2);
    thread::sleep(gap);
    house.call("workspace_resume", w);
    let longest = "awk 'p && $1 - p > m { m = $1 - p } { p = $1 } END { printf \"%d\", m * 1000 }' /workspace/ticks";
    let ran = run(&format!("sleep 0.2; {longest}"));
    let ms: u128 = ran["stdout"].as_str().and_then(|text| text.parse().ok()).expect("a number");
    assert!(ms >= gap.as_millis(), "it ran on while it was paused: {ms} ms");
}
