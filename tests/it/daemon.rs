//! The daemon's own life.

use std::{io::Write, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

#[test]
fn a_second_daemon_is_refused_and_told_who_is_first() {
    let home = Home::new();
    let _daemon = home.daemon();
    let second = home.run(&["daemon"]);
    assert_eq!(second.status.code(), Some(4), "{}", show(&second));
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains(&format!("pid {}", home.pid().expect("a pid"))), "{text}");
    home.ok(&["status"]);
}

/// With an nft that is not there no bridge is ever made, so this may run anywhere.
#[test]
fn a_bridge_that_has_to_be_and_cannot_is_named_and_one_that_may_be_is_done_without() {
    let home = |mode| {
        let home = Home::new().with("HIVEKEEP_NETWORK__MODE", mode);
        home.with("HIVEKEEP_NETWORK__NFT_PATH", "/no/such/nft")
    };
    let strict = home("bridge");
    let refused = strict.run(&["daemon"]);
    assert_eq!(refused.status.code(), Some(1), "{}", show(&refused));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("network.mode") && text.contains("install nftables"), "{text}");

    let relaxed = home("auto");
    let _daemon = relaxed.daemon();
    wait_until("the network says what it does without", || {
        let rows = relaxed.json(&["ps", "--json"]);
        let rows = rows.as_array().expect("rows");
        let network = rows.iter().find(|row| row["path"] == "root/network").expect("a network");
        let state = network["state"].as_str().expect("a state");
        state.starts_with("degraded, user mode") && state.contains("install nftables")
    });
}

#[test]
fn it_may_open_as_many_files_as_the_hard_limit_allows() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(517), maximum: hard }).expect("lowered");
    let home = Home::new();
    let _daemon = home.daemon();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", home.pid().expect("a pid")));
    let limits = limits.expect("readable");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let words: Vec<_> = files.split_ascii_whitespace().collect();
    assert_ne!(words[3], "517", "{files}");
    assert_eq!(words[3], words[4], "{files}");
}

#[test]
fn what_grows_is_shown_with_its_bound() {
    let home = Home::new();
    let _daemon = home.daemon();
    let status = home.json(&["status", "--json"]);
    let number = |at: &str| status.pointer(at).and_then(Value::as_u64);
    for at in ["/journal/live_bytes", "/journal/dead_bytes", "/journal/events_kept", "/logs/bytes"]
    {
        assert!(number(at).is_some_and(|value| value > 0), "{at}: {status:#}");
    }
    assert_eq!(
        number("/journal/disk_bytes"),
        Some(
            ["live", "dead"]
                .iter()
                .filter_map(|part| number(&format!("/journal/{part}_bytes")))
                .sum::<u64>()
        )
    );
    assert!(number("/logs/bytes") < number("/logs/most_bytes"), "{status:#}");
    let shown = home.run(&["status"]);
    let text = String::from_utf8_lossy(&shown.stdout);
    for part in [" live, ", " dead, ", " streams", " kept of at most 100000", "(", " of at most "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn only_its_user_gets_to_the_socket() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&home.socket()), 0o600);
    for folder in ["state", "logs"] {
        assert_eq!(mode(&home.path(folder)), 0o700, "{folder}");
    }
    // Machines of other users pass here on the way to their own sockets.
    let run = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    assert_eq!(mode(&home.path("run")), run, "run");
}

#[test]
fn signals_stop_it_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new();
        let mut daemon = home.daemon();
        daemon.signal(signal);
        let status = daemon.wait();
        assert!(status.success(), "{signal:?}: {status}");
        assert!(!home.socket().exists());
        let log = home.ok(&["logs"]);
        assert!(log.contains("the journal is closed") && log.contains("stopped"), "{log}");
    }
}

#[test]
fn stop_waits_for_the_end_and_the_next_start_goes_on() {
    let home = Home::new();
    let mut daemon = home.daemon();
    home.ok(&["call", "workspace_list"]);
    home.ok(&["stop"]);
    assert!(daemon.wait().success());
    let _daemon = home.daemon();
    let sessions = home.json(&["sessions", "--json"]);
    assert_eq!(sessions[0]["door"], "cli", "it is still known: {sessions}");
    home.ok(&["call", "workspace_list"]);
    assert_eq!(home.json(&["sessions", "--json"]).as_array().map(Vec::len), Some(1));
}

/// Every file below a folder with its content.
fn content(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("reads") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(content(&path)),
            false => files.push((path.clone(), std::fs::read(&path).expect("reads"))),
        }
    }
    files.sort();
    files
}

#[test]
fn unreadable_state_stops_the_start_and_is_left_alone() {
    let home = Home::new();
    let mut daemon = home.daemon();
    home.ok(&["stop"]);
    daemon.wait();
    let journal = home.path("state/journal");
    let head = journal.join("HEAD");
    std::fs::write(&head, b"not what was here").expect("writes");
    let before = content(&journal);
    let output = home.run(&["daemon"]);
    assert_eq!(output.status.code(), Some(3), "{}", show(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("unreadable") && text.contains("nothing was changed"), "{text}");
    assert_eq!(content(&journal), before);
    // A client that would start one hears the same.
    let output = home.run(&["mcp"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("nothing was changed"), "{text}");
    assert!(output.stdout.is_empty());
}

/// What the daemon answers to a first line.
fn greeted_with(home: &Home, line: &[u8]) -> Value {
    let mut wire = Wire::connect(home);
    // A daemon that has heard enough may close before it is all written.
    let _written = wire.stream.write_all(line);
    wire.value()
}

#[test]
fn strangers_at_the_door_are_told_why_they_stay_outside() {
    let home = Home::new()
        .with("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "1")
        .with("HIVEKEEP_DAEMON__MAX_MESSAGE_MB", "1");
    let _daemon = home.daemon();
    let code = |answer: &Value| answer["refused"]["code"].clone();
    assert_eq!(code(&greeted_with(&home, b"hello\n")), "invalid_hello");
    assert_eq!(code(&greeted_with(&home, b"{\"door\":\"cellar\"}\n")), "invalid_hello");
    let long = [vec![b'x'; 2 << 20], b"\n".to_vec()].concat();
    assert_eq!(code(&greeted_with(&home, &long)), "invalid_hello");
    assert_eq!(code(&greeted_with(&home, b"{\"door\":")), "handshake_timeout");
    // The command line of an older version tells its user so.
    let older = greeted_with(&home, b"{\"door\":\"control\"}\n");
    assert_eq!(code(&older), "invalid_hello");
    let next = older["refused"]["next_step"].as_str().expect("a next step");
    assert!(next.contains("the daemon's own version"), "{next}");
    let welcome = greeted_with(&home, b"{\"door\":\"mcp\"}\n");
    assert_eq!(welcome["welcome"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let home = Home::new();
    let home = home.with("HIVEKEEP_DAEMON__MAX_CONNECTIONS", "2");
    let _daemon = home.daemon();
    let greet = || Wire::greet(&home);
    let inside = [greet(), greet()];
    assert!(inside.iter().all(|(_, answer)| answer["welcome"].is_object()));
    assert_eq!(greet().1["refused"]["code"], "too_many_connections");
    home.ok(&["status"]);
    drop(inside);
    wait_until("there is room again", || greet().1["welcome"].is_object());
}

#[test]
fn a_control_request_nobody_knows_or_that_is_too_long_is_answered() {
    let home = Home::new().with("HIVEKEEP_DAEMON__MAX_MESSAGE_MB", "1");
    let _daemon = home.daemon();
    let long = "x".repeat(2 << 20);
    for (method, body, status, code) in [
        ("dance", "{}", 400, "invalid_request"),
        ("call", "{", 400, "invalid_request"),
        ("ps", long.as_str(), 413, "request_too_long"),
    ] {
        let head = format!("POST /control/{method} HTTP/1.0");
        let (mut wire, got) = Wire::request(&home, &head, body);
        let answer = wire.value();
        assert_eq!((got, &answer["error"]["code"]), (status, &code.into()), "{answer}");
    }
    let (mut wire, status) = Wire::request(&home, "POST /control/ps HTTP/1.0", "");
    assert!(status == 200 && wire.value()["result"].is_array());
}

#[test]
fn the_api_and_the_hub_are_the_users_own_at_the_socket_while_no_http_door_is_open() {
    let home = Home::new();
    let _daemon = home.daemon();
    let told = home.json(&["status", "--json"]);
    for door in ["mcp_http", "http_api", "e2b", "port_urls"] {
        assert_eq!(told[door], Value::Null, "{door} is closed");
    }
    assert!(home.ok(&["ps"]).contains("registry"));
    // Nobody is known to it by a name: this is no address of the daemon's.
    let head = "GET /api/sessions HTTP/1.0\r\nHost: elsewhere.example";
    let (mut wire, status) = Wire::request(&home, head, "");
    assert!(status == 200 && wire.value()["sessions"].is_array());
    let invoke = "POST /api/tools/workspace_list/invoke HTTP/1.0";
    let (mut wire, status) = Wire::request(&home, invoke, r#"{"input":{}}"#);
    let called = wire.value();
    assert_eq!((status, &called["status"]), (200, &"completed".into()), "{called}");
    let sessions = home.json(&["sessions", "--json"]);
    let row = sessions.as_array().expect("rows").iter().find(|row| row["door"] == "http_api");
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    assert_eq!(row.expect("the API's session")["user"], uid.as_str(), "{sessions}");
    for shown in ["Bearer unknown", "Basic unknown"] {
        let stranger = format!("GET /api/sessions HTTP/1.0\r\nAuthorization: {shown}");
        assert_eq!(Wire::request(&home, &stranger, "").1, 401, "{shown}");
    }
    let hub = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    assert_eq!(Wire::request(&home, hub, "").1, 101);
}

#[test]
fn a_stream_ends_with_its_client_and_a_stop_is_answered_before_it_ends_the_others() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let follow = || {
        let head = "POST /control/events HTTP/1.0";
        let (wire, status) = Wire::request(&home, head, r#"{"from":1,"follow":true}"#);
        assert_eq!(status, 200);
        wire
    };
    let clients = || home.json(&["status", "--json"])["connections"].clone();
    let (left, mut stays) = (follow(), follow());
    // The command line's own is one.
    wait_until("both follow", || clients() == 3);
    drop(left);
    wait_until("the daemon sees that it left", || clients() == 2);
    let (mut wire, status) = Wire::request(&home, "POST /control/stop HTTP/1.0", "");
    assert_eq!((status, wire.value()), (200, json!({ "result": { "stopping": true } })));
    assert!(wire.closed());
    while !stays.closed() {
        stays.value();
    }
    assert!(daemon.wait().success());
}

#[test]
fn a_service_manager_is_told_of_the_start_of_life_and_of_the_end() {
    let home = Home::new();
    let path = home.path("notify.sock");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("binds");
    manager.set_read_timeout(Some(crate::home::PATIENCE)).expect("a socket");
    let home =
        home.with("NOTIFY_SOCKET", path.to_str().expect("UTF-8")).with("WATCHDOG_USEC", "400000");
    let mut daemon = home.daemon();
    let heard = |state: &str| {
        let mut buffer = [0; 1024];
        loop {
            let length = manager.recv(&mut buffer).expect("it is told");
            let told = String::from_utf8_lossy(&buffer[..length]);
            if told.lines().any(|line| line == state) {
                return;
            }
        }
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    heard("WATCHDOG=1");
    daemon.signal(Signal::TERM);
    heard("STOPPING=1");
    assert!(daemon.wait().success());
}
