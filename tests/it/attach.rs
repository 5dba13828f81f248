//! The attachment outlives the daemon.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    home::{Home, wait_until},
    wire::Wire,
};

fn kill(home: &Home, signal: Signal) {
    let pid = home.pid().and_then(Pid::from_raw).expect("a daemon runs");
    kill_process(pid, signal).expect("it runs");
}

/// Whether each thread of the daemon has really stopped: the signal returns
/// before they have.
fn stands_still(home: &Home) -> bool {
    let tasks = format!("/proc/{}/task", home.pid().expect("a daemon runs"));
    std::fs::read_dir(tasks).expect("it runs").all(|task| {
        let stat = std::fs::read_to_string(task.expect("an entry").path().join("stat"));
        // The state follows the name, which is in parentheses.
        stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    })
}

/// The sessions of MCP clients: id and state.
fn sessions(home: &Home) -> Vec<(String, String)> {
    let rows = home.json(&["sessions", "--json"]);
    let rows = rows.as_array().expect("rows").iter().filter(|row| row["door"] == "mcp_stdio");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    rows.map(|row| (text(&row["session"]), text(&row["state"]))).collect()
}

#[test]
fn a_killed_daemon_is_replaced_and_the_session_goes_on() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    let (before, first) = (sessions(&home), home.pid());
    assert_eq!(before.len(), 1);
    kill(&home, Signal::KILL);
    wait_until("nobody listens", || home.run(&["status"]).status.code() == Some(5));
    // The next request finds a new daemon; the client notices nothing.
    let called = wire.call(1, "workspace_list", json!({}));
    assert_eq!(called["result"]["isError"], false, "{called}");
    assert_ne!(home.pid(), first);
    assert_eq!(sessions(&home), before, "the same session, attached");
}

#[test]
fn a_call_that_was_running_is_answered_with_what_is_known() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    // A stopped daemon answers nothing: the requests are surely in flight.
    kill(&home, Signal::STOP);
    wait_until("every thread stands still", || stands_still(&home));
    let params = json!({"name": "workspace_list", "arguments": {}});
    wire.send(&json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": params}));
    wire.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}));
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill(&home, Signal::KILL);
    let lost = wire.receive();
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!("a"), &json!(-32000)), "{lost}");
    assert_eq!(lost["error"]["data"]["code"], "daemon_restarted");
    assert_eq!(lost["error"]["data"]["retryable"], true);
    // Listing changes nothing, so it is asked again by itself.
    assert!(wire.answer(7)["result"]["tools"].is_array());
}

#[test]
fn a_stopped_daemon_stays_stopped_until_somebody_wants_it() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    home.ok(&["stop"]);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(home.run(&["status"]).status.code(), Some(5), "an idle client revives nothing");
    assert_eq!(wire.ask(1, "ping", json!({}))["result"], json!({}));
    home.ok(&["status"]);
}

#[test]
fn a_client_without_leave_to_start_one_waits_for_the_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    daemon.signal(Signal::KILL);
    daemon.wait();
    wire.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    let _daemon = home.daemon();
    assert_eq!(wire.answer(1)["result"], json!({}));
}

#[test]
fn a_client_that_waits_in_vain_gets_answers_and_an_end() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn", "--reconnect-secs", "1"]);
    wire.initialize();
    daemon.signal(Signal::KILL);
    daemon.wait();
    wire.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    let (status, _) = wire.finish();
    assert!(!status.success());
}

#[test]
fn a_client_that_left_detaches_its_session_and_can_resume_it() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    let session = sessions(&home)[0].0.clone();
    drop(wire);
    wait_until("it is detached", || sessions(&home)[0].1 == "detached");
    let mut wire = Wire::start(&home, &["--resume", &session]);
    wire.initialize();
    assert_eq!(sessions(&home), [(session, "attached".to_owned())]);
}
