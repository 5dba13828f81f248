//! Processes of a session's place, over everything that may die.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::life::kill_guest_daemon;
use crate::house::House;

/// What a process wrote from a cursor on, once it is what was awaited.
fn until(house: &House, id: &Value, from: u64, wanted: &str) -> Value {
    let begun = Instant::now();
    loop {
        let read = house.call("process_output", json!({ "id": id, "stdout_from": from }));
        if read["output"] == wanted {
            return read;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not {wanted:?}: {read}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn send(house: &House, id: &Value, input: &str) {
    let sent = house.call("process_input", json!({ "id": id, "input": input }));
    assert_eq!((&sent["success"], &sent["written_bytes"]), (&json!(true), &json!(input.len())));
}

/// Input and output go on after a SIGKILL of the daemon, and of the guest's daemon; a stop is the end of
/// all of it.
pub fn a_process_is_written_to_after_the_daemon_was_killed(mut house: House) {
    let started = house.call("process_start", json!({ "command": "cat" }));
    let id = started["id"].clone();
    assert!(started["pid"].as_u64() > Some(0) && started["place"].is_string(), "{started}");
    send(&house, &id, "one\n");
    let read = until(&house, &id, 0, "one\n");
    let cursor = read["stdout_next"].as_u64().expect("a cursor");
    // Written and not waited for: it is the process's whether or not a daemon lives.
    send(&house, &id, "two\n");
    house.kill();
    house.start();
    send(&house, &id, "three\n");
    let read = until(&house, &id, cursor, "two\nthree\n");
    assert_eq!((&read["status"], &read["stdout_lost"]), (&json!("running"), &json!(0)));

    let workspace = started["workspace_id"].as_str().expect("an id").to_owned();
    kill_guest_daemon(&house, &workspace);
    send(&house, &id, "four\n");
    until(&house, &id, cursor, "two\nthree\nfour\n");

    let listed = house.call("process_list", json!({ "running_only": true }));
    assert_eq!((&listed["total"], &listed["processes"][0]["id"]), (&json!(1), &id));
    let stopped = house.call("process_stop", json!({ "id": id, "grace_secs": 30 }));
    assert_eq!((&stopped["success"], &stopped["signal"]), (&json!(true), &json!(15)), "{stopped}");
    let listed = house.call("process_list", json!({}));
    assert_eq!(listed["processes"][0]["status"], "killed", "{listed}");
    let late = house.refused("process_input", json!({ "id": id, "input": "x" }));
    assert_eq!(late.code, "input_closed");
}

/// What ignores SIGTERM is killed with its children, in sessions of their own too.
pub fn who_does_not_listen_is_killed_with_its_children(house: House) {
    let line = "trap '' TERM; (setsid sleep 7771 &); sleep 7772; sleep 7773";
    let args = json!({ "command": "sh", "args": ["-c", line] });
    let id = house.call("process_start", args)["id"].clone();
    let stopped = house.call("process_stop", json!({ "id": id, "grace_secs": 1 }));
    assert_eq!((&stopped["success"], &stopped["signal"]), (&json!(true), &json!(9)), "{stopped}");
    let left = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep -c '[s]leep 777'; true";
    let ran = house.call("bash", json!({ "command": left }));
    assert_eq!((&ran["output"], &ran["is_error"]), (&json!("0\n"), &json!(false)), "{ran}");
}

/// One program, its folder and the end of its output.
pub fn a_program_runs_in_the_place(house: House) {
    let args =
        json!({ "command": "sh", "args": ["-c", "pwd; printf 0123456789"], "max_output_bytes": 4 });
    let ran = house.call("cmd.run", args);
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("6789"), &json!(0)), "{ran}");
    assert!(ran["stdout_omitted_bytes"].as_u64() > Some(6), "{ran}");
    for tool in ["cmd.run", "process_start"] {
        let refused = house.refused(tool, json!({ "command": "", "entrypoint": true }));
        assert_eq!(refused.code, "no_entry_point", "{}", refused.text);
    }
    let failed = house.call("bash", json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert_eq!((&failed["exit_code"], &failed["is_error"]), (&json!(3), &json!(true)));
    assert_eq!(failed["output"], "out\nSTDERR:\nerr\n");
}
