//! The audit log, from outside: what a killed daemon had acknowledged is in it, and nothing of inputs.

use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

/// Number of calls, of which half are before the kill.
const CALLS_VARIABLE: &str = "TEST_HIVEKEEP_AUDIT_CALLS";
const CALLS: u64 = 4_000;
/// Calls under way at a time.
const IN_FLIGHT: u64 = 16;

fn calls(home: &Home, filter: &[&str]) -> Vec<Value> {
    let listed = home.ok(&[&["audit", "list", "--json"], filter].concat());
    listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A home whose daemon keeps the log.
fn home() -> Home {
    Home::new().with("HIVEKEEP_AUDIT__ENABLED", "true")
}

fn request(id: u64) -> Value {
    let params = json!({ "name": "workspace_list", "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[test]
fn no_acknowledged_call_is_missing_after_a_kill() {
    let wanted = std::env::var(CALLS_VARIABLE).ok().map(|text| text.parse().expect("a number"));
    let each = wanted.unwrap_or(CALLS) / 2;
    let home = Home::new();
    let config = "[audit]\nenabled = true\n[daemon]\nmessages_per_sec = 1000000\n[registry.rate]\nenabled = false\n\
                  [registry.admission]\nin_flight = 64\nqueued = 2048\n";
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let mut acknowledged = 0;
    for _ in 0..2 {
        let mut daemon = home.daemon();
        let mut wire = Wire::mcp(&home);
        (1..=IN_FLIGHT).for_each(|id| wire.send(&request(id)));
        for id in IN_FLIGHT + 1..=each {
            let answer = wire.value();
            assert_eq!(answer["result"]["isError"], false, "{answer}");
            acknowledged += 1;
            wire.send(&request(id));
        }
        // With as many under way as there may be.
        daemon.signal(Signal::KILL);
        daemon.wait();
        let verified = home.json(&["audit", "verify", "--json"]);
        assert!(verified["entries"].as_u64().is_some(), "{verified}");
    }
    let _daemon = home.daemon();
    let verified = home.json(&["audit", "verify", "--json"]);
    assert_eq!(verified["first"], 1, "{verified}");
    let listed = calls(&home, &["--tool", "workspace_list", "--outcome", "ok"]);
    assert!(listed.len() as u64 >= acknowledged, "{} of {acknowledged}", listed.len());
    let starts = calls(&home, &[]);
    let starts = starts.iter().filter(|entry| entry["kind"] == "daemon.started").count();
    assert_eq!(starts, 3);
}

#[test]
fn an_entry_says_who_and_what_became_of_it_and_nothing_of_the_input() {
    let home = home();
    let mut daemon = home.daemon();
    let secret = "correct-horse-battery-staple";
    let mut wire = Wire::mcp(&home);
    wire.call(1, "workspace_info", json!({ "workspace_id": secret }));
    wire.call(2, "cmd.run", json!({ "command": "echo", "args": [secret], "nonsense": secret }));
    wire.call(3, "workspace_list", json!({}));
    drop(wire);
    home.ok(&["stop"]);
    daemon.wait();
    let entries = calls(&home, &[]);
    let found: Vec<_> = entries
        .iter()
        .filter(|entry| entry["kind"] == "call")
        .map(|entry| (entry["data"]["tool"].clone(), entry["data"]["outcome"].clone()))
        .collect();
    let named = [
        ("workspace_info", "workspace_not_found"),
        ("cmd.run", "invalid_input"),
        ("workspace_list", "ok"),
    ];
    assert_eq!(found, named.map(|(tool, outcome)| (json!(tool), json!(outcome))));
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    let data = &entries.last().map(|_| &entries[3]["data"]).expect("the call");
    assert_eq!(
        (&data["user"], &data["door"], &data["decision"]),
        (&json!(uid), &json!("mcp_stdio"), &json!("allow"))
    );
    assert_eq!(entries.last().expect("one")["kind"], "daemon.stopped");
    let whole = home.ok(&["audit", "list", "--json"]);
    assert!(!whole.contains(secret), "the input is in the log");
    let one = calls(&home, &["--outcome", "ok"]);
    assert_eq!(one.len(), 1);
}

#[test]
fn a_changed_log_fails_verification_and_says_where() {
    let home = home();
    let mut daemon = home.daemon();
    home.ok(&["call", "workspace_list"]);
    home.ok(&["stop"]);
    daemon.wait();
    home.ok(&["audit", "verify"]);
    let path = home.path("state/audit/audit-00000000000000000001.log");
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, text.replace("\"ok\"", "\"no\"")).expect("written");
    let output = home.run(&["audit", "verify"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("entry 2 was changed"), "{said}");
}

#[test]
fn nothing_is_done_that_cannot_be_recorded() {
    let home = home();
    let tails = home.path("run/audit");
    std::fs::create_dir_all(&tails).expect("made");
    for name in ["tail.a", "tail.b"] {
        symlink("/dev/full", tails.join(name)).expect("linked");
    }
    let mut daemon = home.daemon();
    let mut wire = Wire::mcp(&home);
    let save = json!({ "name": "s", "code": "true", "description": "d" });
    let refused = wire.call(1, "aegis.script.save", save.clone());
    let text = refused["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("audit_unavailable"), "{refused}");
    drop(wire);
    home.ok(&["stop"]);
    daemon.wait();
    for name in ["tail.a", "tail.b"] {
        std::fs::remove_file(tails.join(name)).expect("removed");
    }
    let _daemon = home.daemon();
    let mut wire = Wire::mcp(&home);
    let listed = wire.call(1, "aegis.script.list", json!({}));
    assert_eq!(listed["result"]["structuredContent"]["scripts"], json!([]), "{listed}");
    let saved = wire.call(2, "aegis.script.save", save);
    assert_eq!(saved["result"]["isError"], false, "{saved}");
}
