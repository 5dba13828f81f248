use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::house::House;

pub fn job(house: &House, action: &str, more: Value) -> Value {
    let mut args = json!({ "workspace_id": "w", "action": action });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    house.call("exec_background", args)
}

pub fn wait_ended(house: &House, id: &Value) -> Value {
    let begun = Instant::now();
    loop {
        let poll = job(house, "poll", json!({ "job_id": id }));
        if poll["running"] == false {
            return poll;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the job does not end: {poll}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn a_job_is_followed_to_its_end(house: &mut House) {
    let started = job(
        house,
        "start",
        json!({ "command": "echo one; echo err >&2; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo two; exit 5" }),
    );
    let id = &started["job_id"];
    let begun = Instant::now();
    let first = loop {
        let poll = job(house, "poll", json!({ "job_id": id }));
        if poll["stdout"] == "one\n" {
            break poll;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no output while it runs: {poll}");
    };
    assert_eq!((&first["running"], first.get("exit_code")), (&json!(true), None));
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    assert_eq!(info["running_jobs"][0], *id);
    house.exec("w", "touch /tmp/go");
    let last = wait_ended(house, id);
    assert_eq!((&last["exit_code"], &last["stdout"]), (&json!(5), &json!("one\ntwo\n")));
    let rest = job(house, "poll", json!({ "job_id": id, "stdout_from": first["stdout_next"] }));
    assert_eq!(
        (&rest["stdout"], &rest["stderr"], &rest["exit_code"]),
        (&json!("two\n"), &json!("err\n"), &json!(5)),
        "asked again"
    );
    let unknown = house.refused("exec_background", json!({ "workspace_id": "w", "action": "poll", "job_id": "job_00000000000000000000000000000000" }));
    assert_eq!(unknown.code, "unknown_job");
}

pub fn a_job_is_killed(house: &mut House) {
    let started = job(
        house,
        "start",
        json!({ "command": "(setsid sleep 6661 &); trap '' TERM; sleep 6662; sleep 6663" }),
    );
    let id = &started["job_id"];
    let killed = job(house, "kill", json!({ "job_id": id }));
    assert_eq!(killed["status"], "killed", "{killed}");
    let poll = wait_ended(house, id);
    assert_eq!(poll["exit_code"], 137);
    let left = house.exec("w", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep -c '[s]leep 666'; true");
    assert_eq!(left.trim(), "0");
    assert_eq!(job(house, "kill", json!({ "job_id": id }))["status"], "already_ended");
}
