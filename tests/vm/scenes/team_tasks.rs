//! Tasks of a team's members, whatever dies meanwhile.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

const PATIENCE: Duration = Duration::from_secs(90);

fn crew(house: &House, members: &[&str]) -> Vec<String> {
    let roles: Vec<_> = members.iter().map(|one| json!({ "name": one, "role": "hand" })).collect();
    let made = house.call("team", json!({ "action": "create", "name": "crew", "roles": roles }));
    let members = made["members"].as_array().expect("members").iter();
    members.map(|one| one["workspace_name"].as_str().expect("a name").to_owned()).collect()
}

fn assignment(to: &str, id: &str, command: &str) -> Value {
    let content = json!({ "task_id": id, "command": command, "timeout_secs": 600 }).to_string();
    json!({
        "action": "message", "name": "crew", "agent": "boss", "to": to, "content": content,
        "message_type": "task_assignment",
    })
}

/// A task that leaves a line.
fn mark(to: &str, id: &str) -> Value {
    assignment(to, id, &format!("echo {id} >> /root/ran; echo done {id}"))
}

fn member(house: &House, number: usize) -> Value {
    let status = house.call("team", json!({ "action": "status", "name": "crew" }));
    status["members"][number].clone()
}

fn until(house: &House, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// So many results of a member, by task.
fn results(house: &House, agent: &str, count: usize) -> BTreeMap<String, Value> {
    results_until(house, agent, |results| results.len() == count)
}

/// That of a task. Others may come again: that they were taken is written after the answer.
fn result(house: &House, agent: &str, id: &str) -> Value {
    let results = results_until(house, agent, |results| results.contains_key(id));
    results[id].clone()
}

fn results_until(
    house: &House,
    agent: &str,
    enough: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> BTreeMap<String, Value> {
    let mut results = BTreeMap::new();
    let begun = Instant::now();
    while !enough(&results) {
        let receive =
            json!({ "action": "receive", "name": "crew", "agent": agent, "wait_secs": 5 });
        let got = house.call("team", receive);
        assert_eq!(got["count"], 0, "a task is not a message: {got}");
        for result in got["daemon_results"].as_array().expect("results") {
            let id = result["task_id"].as_str().expect("an id").to_owned();
            results.insert(id, result.clone());
        }
        assert!(begun.elapsed() < PATIENCE, "{results:?}\n{got}\n{}", house.stderr());
    }
    results
}

fn lines(house: &House, workspace: &str) -> Vec<String> {
    let ran = house.exec(workspace, "sort /root/ran 2>/dev/null || true");
    ran.lines().map(str::to_owned).collect()
}

/// All of them exited with 0, and each has left one line.
fn each_ran_once(house: &House, workspace: &str, results: &BTreeMap<String, Value>) {
    for (id, result) in results {
        assert_eq!(result["success"], true, "{result}");
        assert_eq!(result["stdout"], format!("done {id}\n"));
    }
    let ids: Vec<_> = results.keys().cloned().collect();
    assert_eq!(lines(house, workspace), ids);
}

fn destroy(house: &House) {
    house.call("team", json!({ "action": "destroy", "name": "crew" }));
    assert_eq!(house.list().len(), 0, "workspaces are left: {:?}", house.list());
    leaks::check(house);
}

fn kill_the_guest_daemon(house: &House, workspace: &str) {
    let kill = "for p in /proc/[0-9]*; do if tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q 'hivekeep-gues[t] agent'; then kill -9 ${p#/proc/}; fi; done; sleep 60";
    let lost = house
        .refused("exec", json!({ "workspace_id": workspace, "command": kill, "timeout_secs": 40 }));
    assert!(["link_lost", "deadline_exceeded"].contains(&lost.code.as_str()), "{}", lost.text);
}

pub fn thirty_tasks_are_each_run_once(mut house: House) {
    let names = ["boss", "a", "b"];
    let workspaces = crew(&house, &names);
    for n in 0..10 {
        for name in names {
            let sent = house.call("team", mark(name, &format!("{name}-{n}")));
            assert_eq!(sent["tasks"][0]["state"], "queued", "{sent}");
        }
        if n == 4 {
            house.kill();
            house.start();
        }
        if n == 7 {
            kill_the_guest_daemon(&house, &workspaces[1]);
        }
    }
    house.kill();
    house.start();
    for (name, workspace) in names.iter().zip(&workspaces) {
        let told = results(&house, name, 10);
        each_ran_once(&house, workspace, &told);
    }
    // A repeat is told what became of the task, and runs nothing.
    let again = house.call("team", mark("a", "a-0"));
    assert_eq!(again["tasks"][0]["state"], "received", "{again}");
    assert_eq!(again["tasks"][0]["result"]["stdout"], "done a-0\n");
    let differs = house.refused("team", assignment("a", "a-0", "false"));
    assert_eq!(differs.code, "task_differs");
    assert_eq!(lines(&house, &workspaces[1]).len(), 10);
    let one = member(&house, 1);
    assert_eq!((&one["agent_status"], &one["pending_tasks"]), (&json!("ready"), &json!(0)));
    destroy(&house);
}

pub fn a_stopped_workspace_keeps_its_tasks(house: House) {
    let workspaces = crew(&house, &["boss", "a"]);
    let workspace = &workspaces[1];
    for n in 0..4 {
        let id = format!("long-{n}");
        house.call("team", assignment("a", &id, &format!("echo {id} >> /root/ran; sleep 600")));
    }
    until(&house, "four run", || lines(&house, workspace).len() == 4);
    until(&house, "it works", || member(&house, 1)["agent_status"] == "working");
    house.call("team", mark("a", "queued-there"));
    until(&house, "its guest has all", || member(&house, 1)["running_tasks"] == 4);
    house.call("workspace_stop", json!({ "workspace_id": workspace }));
    house.call("team", mark("a", "queued-here"));
    let one = member(&house, 1);
    assert_eq!(
        (&one["agent_status"], &one["pending_tasks"]),
        (&json!("failed"), &json!(6)),
        "{one}"
    );
    house.call("workspace_start", json!({ "workspace_id": workspace }));
    let told = results(&house, "a", 6);
    for (id, result) in &told {
        let outcome = if id.starts_with("long") { "interrupted" } else { "exited" };
        assert_eq!(result["outcome"], outcome, "{result}");
    }
    let all: Vec<_> = told.into_keys().collect();
    assert_eq!(lines(&house, workspace), all, "each was begun once");
    // What only its guest can know is a result, too.
    let mut nowhere = mark("a", "nowhere");
    nowhere["content"] = json!(
        json!({ "task_id": "nowhere", "command": "true", "workdir": "/nowhere" }).to_string()
    );
    house.call("team", nowhere);
    let mut preload = mark("a", "preload");
    preload["content"] = json!(
        json!({ "task_id": "preload", "command": "true", "env": { "LD_PRELOAD": "x" } })
            .to_string()
    );
    house.call("team", preload);
    house
        .call("team", assignment("a", "loud", "head -c 100000 /dev/zero | tr '\\0' x; kill -9 $$"));
    let told = results(&house, "a", 3);
    assert_eq!(told["preload"]["outcome"], "invalid", "{told:?}");
    let (nowhere, loud) = (&told["nowhere"], &told["loud"]);
    assert_eq!((&nowhere["outcome"], &nowhere["code"]), (&json!("invalid"), &json!("not_found")));
    assert_eq!((&loud["outcome"], &loud["exit_code"]), (&json!("signalled"), &json!(137)));
    assert_eq!((&loud["truncated"], &loud["stdout_bytes"]), (&json!(true), &json!(100_000)));
    let path = loud["stdout_path"].as_str().expect("all of it is in a file");
    assert_eq!(house.exec(workspace, &format!("wc -c < {path}")).trim(), "100000");
    destroy(&house);
}

pub fn every_point_of_a_task(mut house: House) {
    let workspaces = crew(&house, &["boss", "a"]);
    for (n, point) in [
        // The first: a start acknowledges again what was kept before.
        "task.after_acknowledged",
        "task.after_assigned",
        "task.after_put",
        "task.before_kept",
        "task.after_kept",
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("t{n}");
        die_at(&mut house, point, |house| {
            // Whether its answer arrives is not known beyond the first point.
            let answer = house.try_call("team", mark("a", &id));
            let unanswered = point == "task.after_assigned";
            assert!(!unanswered || matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        let again = house.call("team", mark("a", &id));
        assert_eq!(again["tasks"][0]["repeat"], true, "{point}: it was lost: {again}");
        let told = result(&house, "a", &id);
        assert_eq!(told["success"], true, "{point}: {told}");
    }
    house.call("team", mark("a", "t5"));
    until(&house, "it has ended", || member(&house, 1)["pending_tasks"] == 0);
    die_at(&mut house, "task.before_taken", |house| {
        until(house, "it was taken", || {
            let receive = json!({ "action": "receive", "name": "crew", "agent": "a" });
            house.try_call("team", receive).is_err()
        });
    });
    assert_eq!(result(&house, "a", "t5")["redelivered"], true);
    let all: Vec<_> = (0..6).map(|n| format!("t{n}")).collect();
    assert_eq!(lines(&house, &workspaces[1]), all);
    destroy(&house);
}
