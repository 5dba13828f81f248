//! Swarms of real forks, and the daemon killed at each point of their lives.

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

/// A repository with one commit, and a snapshot of it with everything that runs.
fn golden(house: &House) {
    house.create("w");
    house.exec(
        "w",
        "cd /workspace && git init -q -b main . && git config user.name Ada \
         && git config user.email ada@example.org && echo base > base && git add . \
         && git commit -q -m base",
    );
    let args = json!({
        "workspace_id": "w", "action": "create", "name": "s", "include_memory": true,
    });
    house.call("snapshot", args);
}

/// A task that adds a line to a file of its own and commits it.
fn task(name: &str) -> Value {
    let file = format!("{name}-$ROUND");
    let command = format!("echo done >> {file} && git add {file} && git commit -q -m {file}");
    json!({ "name": name, "command": command })
}

fn request(tasks: &[Value], round: usize) -> Value {
    json!({
        "golden_workspace": "w", "snapshot_name": "s", "tasks": tasks,
        "env_vars": { "ROUND": round.to_string() }, "merge_strategy": "sequential",
        "timeout_secs": 60,
    })
}

fn nothing_is_left(house: &House, point: &str) {
    assert_eq!(house.list().len(), 1, "{point}: forks are left: {:?}", house.list());
    leaks::check(house);
}

pub fn tasks_run_in_forks_and_come_together(house: House) {
    golden(&house);
    let failing = json!({ "name": "c", "command": "cat $SHARED_CONTEXT; pwd; exit 3" });
    let mut args = request(&[task("a"), task("b"), failing], 1);
    args["shared_context"] = json!("to all\n");
    let done = house.call("swarm_run", args);
    let rows = done["tasks"].as_array().expect("rows");
    let exits: Vec<_> = rows.iter().map(|row| row["exit_code"].as_i64()).collect();
    assert_eq!(exits, [Some(0), Some(0), Some(3)], "{done}");
    assert_eq!(rows[2]["stdout"], "to all\n/workspace\n");
    let summary = &done["summary"];
    assert_eq!((&summary["succeeded"], &summary["workers_destroyed"]), (&json!(2), &json!(3)));
    assert_eq!(done["merge"]["success"], true, "{done}");
    assert_eq!(house.exec("w", "cd /workspace && cat a-1 b-1 base"), "done\ndone\nbase\n");
    let log = house.exec("w", "cd /workspace && git log --format=%s && git status --short");
    assert_eq!(log, "b-1\na-1\nbase\n");
    nothing_is_left(&house, "a run");
    let told = house.call("swarm_status", json!({ "swarm_id": done["swarm_id"] }));
    assert_eq!(told["swarm"], done);
}

pub fn every_point_of_a_swarm(mut house: House) {
    golden(&house);
    let points = [
        "swarm.after_plan",
        "swarm.after_fork",
        "swarm.after_put",
        "swarm.after_result",
        "swarm.before_merge",
        "swarm.after_merge",
        "swarm.after_cleanup",
        "swarm.before_end",
    ];
    for (round, point) in points.into_iter().enumerate() {
        die_at(&mut house, point, |house| {
            house.wait_state("w", "running");
            let answer = house.try_call("swarm_run", request(&[task("a"), task("b")], round));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        let listed = house.call("swarm_status", json!({}));
        let rows = listed["swarms"].as_array().expect("rows");
        assert_eq!(rows.len(), round + 1, "{point}: {listed}");
        let asked = json!({ "swarm_id": rows[round]["swarm_id"], "wait_secs": 100 });
        let told = house.call("swarm_status", asked)["swarm"].take();
        assert_eq!(told["state"], "completed", "{point}: {told}");
        assert_eq!(told["summary"]["succeeded"], 2, "{point}: {told}");
        assert_eq!(told["merge"]["success"], true, "{point}: {told}");
        // Each task took its effect once, and each commit came once.
        let look = format!("cd /workspace && cat ?-{round} && git rev-list --count HEAD");
        let wanted = format!("done\ndone\n{}\n", 1 + 2 * (round + 1));
        assert_eq!(house.exec("w", &look), wanted, "{point}");
        nothing_is_left(&house, point);
    }
}

pub fn an_ordered_stop_cancels_no_swarm(mut house: House) {
    golden(&house);
    let held_up = |name: &str| {
        let mut task = task(name);
        let command = task["command"].as_str().expect("a text");
        task["command"] = json!(format!("until [ -e /tmp/go ]; do sleep 0.1; done; {command}"));
        task
    };
    let (door, args) = (house.door(), request(&[held_up("a"), held_up("b")], 1));
    let call = json!({ "method": "call", "params": { "tool": "swarm_run", "args": args } });
    let asked = std::thread::spawn(move || door.ask(call));
    let begun = std::time::Instant::now();
    let id = loop {
        let listed = house.call("swarm_status", json!({}));
        let id = listed["swarms"][0]["swarm_id"].clone();
        let told = || house.call("swarm_status", json!({ "swarm_id": id }))["swarm"].take();
        let run = |told: &Value| {
            told["tasks"].as_array().expect("rows").iter().all(|row| row["outcome"] == "running")
        };
        if listed["swarms"][0]["state"] == "running" && run(&told()) {
            break id;
        }
        assert!(begun.elapsed().as_secs() < 120, "it does not run: {listed}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    house.stop(false);
    let refusal = asked.join().expect("no panic").expect_err("the daemon stops").refusal();
    let refusal = refusal.expect("it is answered before the doors close");
    assert_eq!((refusal.code.as_str(), &refusal.details["swarm_id"]), ("daemon_stopping", &id));
    house.start();
    let forks =
        house.list().into_iter().map(|row| row["name"].as_str().expect("a text").to_owned());
    for fork in forks.filter(|name| name.starts_with("swarm-")) {
        house.wait_state(&fork, "running");
        house.exec(&fork, "touch /tmp/go");
    }
    let asked = json!({ "swarm_id": id, "wait_secs": 100 });
    let told = house.call("swarm_status", asked)["swarm"].take();
    assert_eq!((&told["state"], &told["summary"]["succeeded"]), (&json!("completed"), &json!(2)));
    assert_eq!(told["merge"]["success"], true, "{told}");
    let count = house.exec("w", "cd /workspace && cat ?-1 && git rev-list --count HEAD");
    assert_eq!(count, "done\ndone\n3\n");
    nothing_is_left(&house, "an ordered stop");
}
