use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    house::{House, Kind},
    leaks,
};

pub fn create_run_stop_start_destroy(mut house: House) {
    create_run_stop_start(&mut house);
    destroy(&mut house);
}

/// Makes `w`, and `other` beside it.
pub fn create_run_stop_start(house: &mut House) {
    let made = house.create("w");
    assert_eq!(made["state"], "running");
    assert_eq!(made["name"], "w");
    assert!(made["boot_time_ms"].as_u64().is_some_and(|ms| ms > 0));
    assert_eq!(house.exec("w", "echo hello; hostname").trim(), "hello\nw");
    let machine_id = house.exec("w", "cat /etc/machine-id");
    assert_eq!(machine_id.trim().len(), 32, "no machine id of its own: {machine_id:?}");
    // By id too, and the disk has the size that was asked for.
    let id = made["workspace_id"].as_str().expect("an id");
    house.exec(id, "echo kept > /root/kept; sync");
    if house.kind == Kind::Vm {
        let info = house.call("workspace_info", json!({ "workspace_id": id }));
        let size = info["disk_volsize_bytes"].as_u64().expect("a size");
        assert!(size > 1_900_000_000, "2 GiB were asked for, the file system has {size} bytes");
    }
    let stopped = house.call("workspace_stop", json!({ "workspace_id": "w" }));
    assert_eq!((&stopped["state"], &stopped["how"]), (&json!("stopped"), &json!("guest")));
    leaks::check(house);
    assert_eq!(
        house.refused("exec", json!({ "workspace_id": "w", "command": "true" })).code,
        "workspace_state"
    );
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "cat /root/kept").trim(), "kept");
    assert_eq!(house.exec("w", "cat /etc/machine-id"), machine_id);
    house.create("other");
    assert_ne!(house.exec("other", "cat /etc/machine-id"), machine_id);
}

/// Of both nothing is left.
pub fn destroy(house: &mut House) {
    house.call("workspace_destroy", json!({ "workspace_id": "other" }));
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    assert_eq!(
        house.refused("workspace_info", json!({ "workspace_id": "w" })).code,
        "workspace_not_found"
    );
    assert!(house.list().is_empty());
    leaks::check(house);
}

pub fn names_and_sizes_are_checked(house: House) {
    house.create("taken");
    let again = house.refused("workspace_create", json!({ "name": "taken" }));
    assert_eq!(again.code, "name_taken");
    for (args, code) in [
        (json!({ "name": "Upper" }), "invalid_input"),
        (json!({ "name": "../x" }), "invalid_input"),
        (json!({ "vcpus": 99 }), "invalid_input"),
        (json!({ "memory_mb": 1 }), "invalid_input"),
        (json!({ "disk_gb": 0 }), "invalid_input"),
        (json!({ "disk_gb": 100_000 }), "invalid_input"),
        (json!({ "base_image": "no-such" }), "image_unknown"),
        (json!({ "allow_internet": true }), "network_unavailable"),
        (json!({ "colour": "red" }), "invalid_input"),
    ] {
        assert_eq!(house.refused("workspace_create", args.clone()).code, code, "{args}");
    }
    assert_eq!(house.list().len(), 1, "a refusal made something");
    leaks::check(&house);
}

/// Leaves it stopped.
pub fn logs_stay_after_a_stop(house: &mut House) {
    // A VM's guest talks on its console, a sandbox's on stderr.
    let logs = |house: &House| {
        let logs = house.call("workspace_logs", json!({ "workspace_id": "w" }));
        let text = |key: &str| logs[key].as_str().expect("text").len();
        text("console") + text("stderr")
    };
    let before = logs(house);
    assert!(before > 0, "the logs are empty");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    assert!(logs(house) >= before);
    let one = house.call(
        "workspace_logs",
        json!({ "workspace_id": "w", "log_type": "console", "max_lines": 1 }),
    );
    assert!(
        one["console"].as_str().is_some_and(|text| text.lines().count() <= 1)
            && one["stderr"].is_null()
    );
}

pub fn a_killed_machine_is_a_crash(house: &mut House) {
    house.exec("w", "echo survives > /root/x; sync");
    let pid = machine(house, "w");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    house.wait_state("w", "crashed");
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    assert!(info["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{info}");
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "cat /root/x").trim(), "survives");
    leaks::check(house);
}

pub fn a_crashed_machine_restarts_by_policy(house: House) {
    house.create("victim");
    house.exec("victim", "echo survives > /root/x; sync");
    let pid = machine(&house, "victim");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    let begun = Instant::now();
    // Both of one answer: the end may be noticed between two.
    let restarted = || {
        let info = house.call("workspace_info", json!({ "workspace_id": "victim" }));
        info["state"] == "running" && info["machine"]["pid"] != json!(pid.as_raw_nonzero().get())
    };
    while !restarted() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it was not restarted: {}",
            house.state("victim")
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(house.exec("victim", "cat /root/x").trim(), "survives");
}

/// The process behind a running workspace.
pub fn machine(house: &House, workspace: &str) -> rustix::process::Pid {
    let info = house.call("workspace_info", json!({ "workspace_id": workspace }));
    let pid = info["machine"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(rustix::process::Pid::from_raw).unwrap_or_else(|| panic!("no machine: {info}"))
}

/// By a command that kills what runs it.
pub fn kill_guest_daemon(house: &House, workspace: &str) {
    let kill = "for p in /proc/[0-9]*; do if tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q 'hivekeep-gues[t] agent'; then kill -9 ${p#/proc/}; fi; done; sleep 60";
    let args = json!({ "workspace_id": workspace, "command": kill, "timeout_secs": 40 });
    let lost = house.refused("exec", args);
    assert!(["link_lost", "deadline_exceeded"].contains(&lost.code.as_str()), "{}", lost.text);
}

/// What became of links, an event a line.
fn links(house: &House) -> Vec<String> {
    let told = house.command().args(["events", "--json"]).output().expect("runs").stdout;
    let told = String::from_utf8(told).expect("text");
    let links = told.lines().filter(|event| event.contains("\"workspace.link\""));
    links.map(str::to_owned).collect()
}

pub fn a_killed_guest_daemon_comes_back(house: &mut House) {
    let before = links(house).len();
    let started = house.call("exec_background", json!({ "workspace_id": "w", "action": "start", "command": "echo before; sleep 3; echo after; exit 4" }));
    kill_guest_daemon(house, "w");
    assert_eq!(house.exec("w", "echo again").trim(), "again");
    let ended = super::jobs::wait_ended(house, &started["job_id"]);
    assert_eq!((&ended["stdout"], &ended["exit_code"]), (&json!("before\nafter\n"), &json!(4)));
    assert_eq!(house.state("w"), "running");
    // What the link became is told: the state alone says nothing of it.
    let begun = Instant::now();
    loop {
        let told = links(house).split_off(before);
        if told.iter().any(|event| event.contains("\"connecting"))
            && told.last().is_some_and(|event| event.contains("\"up\""))
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Of machines: a stopped process 1 does not stop the others of a sandbox. Leaves it stopped.
pub fn a_hung_guest_is_reported_and_can_be_stopped(house: &mut House) {
    let pid = machine(house, "w");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let refused =
        house.refused("exec", json!({ "workspace_id": "w", "command": "true", "timeout_secs": 1 }));
    assert_eq!(refused.code, "deadline_exceeded", "{}", refused.text);
    let begun = Instant::now();
    loop {
        let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
        if info["machine"]["link"] == "unresponsive" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{info}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let stopped = house.call("workspace_stop", json!({ "workspace_id": "w" }));
    assert_eq!(stopped["how"], "killed");
    leaks::check(house);
}

/// Leaves it stopped.
pub fn a_graceful_daemon_stop_leaves_machines(house: &mut House) {
    let boot = house.exec("w", "cat /proc/sys/kernel/random/boot_id; cat /proc/uptime >/dev/null");
    house.exec("w", "echo here > /dev/shm/volatile");
    house.stop(false);
    house.start();
    house.wait_state("w", "running");
    assert_eq!(house.exec("w", "cat /dev/shm/volatile").trim(), "here", "it was rebooted");
    assert_eq!(house.exec("w", "cat /proc/sys/kernel/random/boot_id"), boot);
    house.stop(true);
    house.start();
    assert_eq!(house.state("w"), "stopped");
    leaks::check(house);
}

pub fn env_is_the_workspaces_own(house: &mut House) {
    let set = |vars| house.call("set_env", json!({ "workspace_id": "w", "vars": vars }));
    assert_eq!(set(json!({ "A": "1", "B": "two words" }))["count"], 2);
    assert_eq!(house.exec("w", "echo $A $B").trim(), "1 two words");
    let own = house
        .call("exec", json!({ "workspace_id": "w", "command": "echo $A", "env": { "A": "9" } }));
    assert_eq!(own["stdout"], "9\n");
    let refused = house.refused(
        "set_env",
        json!({ "workspace_id": "w", "vars": { "LD_PRELOAD": "x", "C": "1" } }),
    );
    assert_eq!(refused.code, "invalid_input");
    house.kill();
    house.start();
    house.wait_state("w", "running");
    assert_eq!(house.exec("w", "echo $A$C").trim(), "1");
    house.call("set_env", json!({ "workspace_id": "w", "vars": { "A": null } }));
    assert_eq!(house.exec("w", "echo [$A]").trim(), "[]");
    let begun = Instant::now();
    let job = house.call(
        "exec_background",
        json!({ "workspace_id": "w", "action": "start", "command": "echo $B" }),
    );
    loop {
        let poll = house.call(
            "exec_background",
            json!({ "workspace_id": "w", "action": "poll", "job_id": job["job_id"] }),
        );
        if poll["running"] == false {
            assert_eq!(poll["stdout"], "two words\n");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{poll}");
    }
}
