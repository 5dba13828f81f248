//! Clients that mean no good, or do not look what they do: what they can take from others.

use std::{
    io::{ErrorKind, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    home::{Home, wait_until},
    http_api::Api,
    wire::Wire,
};

/// Says messages until nobody takes them any more; how many. The last one is finished later.
fn shout(stream: &UnixStream, message: impl Fn(usize) -> Value, most: usize) -> usize {
    stream.set_nonblocking(true).expect("a socket");
    let (mut said, mut refused) = (0, 0);
    let mut rest = Vec::new();
    while said < most && refused < 100 {
        if rest.is_empty() {
            rest = format!("{}\n", message(said)).into_bytes();
        }
        match (&mut &*stream).write(&rest) {
            Ok(written) => {
                (rest, refused) = (rest.split_off(written), 0);
                said += usize::from(rest.is_empty());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("it hung up: {error}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket");
    if rest.is_empty() {
        return said;
    }
    let mut handle = stream.try_clone().expect("a second handle");
    std::thread::spawn(move || handle.write_all(&rest));
    said + 1
}

/// Resident memory of the daemon.
fn rss_mib(home: &Home) -> u64 {
    let status = home.json(&["status", "--json"]);
    status["rss_bytes"].as_u64().expect("a size") / 1024 / 1024
}

#[test]
fn answers_that_nobody_reads_end_the_reading() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut raw = Wire::mcp(&home);
    let before = rss_mib(&home);
    let padding = "x".repeat(2000);
    let ask = |id| {
        let params = json!({"_meta": {"padding": padding}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params})
    };
    let said = shout(&raw.stream, ask, 60_000);
    let after = rss_mib(&home);
    assert!(after < before + 100, "from {before} to {after} MiB by {said} requests");
    assert!(said < 60_000, "it is not read on");
    // Others are served meanwhile, and what was taken is answered once it is read.
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    assert_eq!(wire.ask(1, "ping", json!({}))["result"], json!({}));
    for _ in 0..said {
        assert!(raw.next_answer()["result"]["tools"].is_array());
    }
    raw.send(&json!({"jsonrpc": "2.0", "id": "last", "method": "ping"}));
    assert_eq!(raw.next_answer()["id"], "last");
}

#[test]
fn halves_of_long_messages_take_no_more_than_there_is_room_for() {
    const HALVES: usize = 48;
    let api = Api::with(&[
        ("HIVEKEEP_DAEMON__MAX_MESSAGE_MB", "4"),
        ("HIVEKEEP_HTTP__MCP__MAX_BODY_MB", "4"),
    ]);
    let home = &api.home;
    let ask = |id| json!({"jsonrpc": "2.0", "id": id, "method": "ping", "params": {"x": ""}});
    let long =
        ask("long").to_string().replace(r#""x":"""#, &format!(r#""x":"{}""#, "x".repeat(7 << 19)));
    let half = &long.as_bytes()[..long.len() - 10];
    let mut raws: Vec<_> = (0..HALVES).map(|_| (Wire::mcp(home), 0)).collect();
    let before = rss_mib(home);
    let mut quiet_rounds = 0;
    while quiet_rounds < 20 {
        quiet_rounds += 1;
        for (raw, written) in &mut raws {
            raw.stream.set_nonblocking(true).expect("a socket");
            while let Ok(count @ 1..) = raw.stream.write(&half[*written..]) {
                (*written, quiet_rounds) = (*written + count, 0);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let whole = raws.iter().filter(|(_, written)| *written == half.len()).count();
    let after = rss_mib(home);
    assert!(after < before + 64, "from {before} to {after} MiB by halves, {whole} of them read");
    assert_eq!(whole, 4, "one user has half, and the others wait, unread");
    // The other half is for others.
    let padding = "x".repeat(100_000);
    api.invoke(&api.session, "workspace_list", &json!({ "input": {}, "padding": padding })).of(200);
    // What is short passes all the same, also of those who wait for nothing else.
    let mut wire = Wire::start(home, &["--no-spawn"]);
    wire.initialize();
    assert_eq!(wire.ask(1, "ping", json!({}))["result"], json!({}));
    // Whoever goes makes room.
    drop(raws);
    let mut raw = Wire::mcp(home);
    raw.stream.write_all(long.as_bytes()).expect("it is read");
    raw.stream.write_all(b"\n").expect("it is read");
    assert_eq!(raw.next_answer()["id"], "long");
}

/// A request that is in work until it is cancelled.
fn listen(id: usize) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen",
        "params": {
            "notifications": {"toolsListChanged": true},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
}

fn cancel(id: usize) -> Value {
    let method = "notifications/cancelled";
    json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": id}})
}

#[test]
fn a_cancellation_is_heard_when_every_place_is_taken() {
    const PLACES: usize = 256;
    let home = Home::new();
    let _daemon = home.daemon();
    let (mut raw, _) = Wire::greet(&home);
    for id in 0..PLACES {
        raw.send(&listen(id));
        assert_eq!(raw.receive()["method"], "notifications/subscriptions/acknowledged");
    }
    for id in [PLACES, PLACES + 1] {
        raw.send(&listen(id));
        let refused = raw.receive();
        assert_eq!(refused["id"], id, "{refused}");
        assert_eq!(refused["error"]["data"]["error"]["code"], "too_many_requests", "{refused}");
        assert_eq!(refused["error"]["data"]["error"]["retryable"], true, "{refused}");
    }
    raw.send(&cancel(7));
    wait_until("its place is free", || {
        raw.send(&listen(PLACES + 2));
        raw.receive()["method"] == "notifications/subscriptions/acknowledged"
    });
    // However many are cancelled, each gives its place back, though none is answered.
    for id in 0..=PLACES + 2 {
        raw.send(&cancel(id));
    }
    for id in 1_000..1_000 + 2 * PLACES {
        raw.send(&listen(id));
        assert_eq!(raw.receive()["method"], "notifications/subscriptions/acknowledged", "{id}");
        raw.send(&cancel(id));
    }
}

#[test]
fn a_message_of_a_million_values_is_refused_before_it_costs_anything() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut raw = Wire::mcp(&home);
    let before = rss_mib(&home);
    let keys: String = (0..1_000_000).map(|n| format!(r#""k{n:06}":0,"#)).collect();
    for id in 0..3 {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":"#);
        let call = format!(r#"{head}{{"name":"workspace_list","arguments":{{{keys}"last":0}}}}}}"#);
        raw.stream.write_all(call.as_bytes()).expect("it reads");
        raw.stream.write_all(b"\n").expect("it reads");
        // The operator is answered in between.
        home.ok(&["ps"]);
    }
    for id in 0..3 {
        let refused = raw.next_answer();
        assert_eq!(refused["id"], id, "{refused}");
        assert_eq!(refused["error"]["data"]["error"]["code"], "too_many_values", "{refused}");
    }
    let after = rss_mib(&home);
    assert!(after < before + 100, "from {before} to {after} MiB");
    raw.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}));
    assert_eq!(raw.next_answer()["id"], 9);
}

#[test]
fn more_than_the_bucket_holds_waits_and_is_not_refused() {
    let home = Home::new().with("HIVEKEEP_DAEMON__MESSAGES_PER_SEC", "20");
    let _daemon = home.daemon();
    let mut raw = Wire::mcp(&home);
    let begun = std::time::Instant::now();
    for id in 0..60 {
        raw.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
    }
    let mut answered: Vec<_> = (0..60).map(|_| raw.next_answer()["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..60).map(Some).collect::<Vec<_>>());
    // A machine that is slow makes it longer, and none makes it shorter.
    assert!(begun.elapsed() > Duration::from_secs(1), "forty of them had to wait");
}

#[test]
fn the_operator_gets_in_past_any_number_of_silent_clients() {
    let home = Home::new().with("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "600");
    let mut daemon = home.daemon();
    let strangers: Vec<_> = (0..300).map(|_| Wire::connect(&home)).collect();
    home.ok(&["ps"]);
    let idle: Vec<_> = (0..300)
        .map(|nth| {
            let head = "POST /control/ps HTTP/1.1\r\nHost: localhost";
            let (raw, status) = Wire::request(&home, head, "");
            assert_eq!(status, 200, "{nth}");
            raw
        })
        .collect();
    home.ok(&["ps"]);
    home.ok(&["sessions"]);
    let clients: Vec<_> = (0..200).map(|_| Wire::greet(&home).0).collect();
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    assert!(daemon.wait().success());
    drop((strangers, idle, clients));
}

#[test]
fn a_client_that_does_not_begin_loses_its_place() {
    let home = Home::new()
        .with("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "1")
        .with("HIVEKEEP_DAEMON__MAX_CONNECTIONS", "2");
    let _daemon = home.daemon();
    let mut begun = Wire::mcp(&home);
    let (mut silent, welcome) = Wire::greet(&home);
    assert!(welcome["welcome"].is_object(), "{welcome}");
    let (_, refused) = Wire::greet(&home);
    // One so slow that the silent one is gone already is let in.
    if refused["welcome"].is_null() {
        assert_eq!(refused["refused"]["code"], "too_many_connections", "{refused}");
    }
    assert!(silent.closed());
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    begun.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert_eq!(begun.next_answer()["id"], 1, "whoever has begun may be silent");
}

#[test]
fn a_program_whose_client_is_silent_comes_back_for_its_first_word() {
    let home = Home::new().with("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "1");
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    let state = || home.json(&["sessions", "--json"])[0]["state"].clone();
    wait_until("it is attached", || state() == "attached");
    wait_until("it has lost its place", || state() == "detached");
    let session = home.json(&["sessions", "--json"])[0]["session"].clone();
    wire.initialize();
    let rows = home.json(&["sessions", "--json"]);
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!((&rows[0]["session"], &rows[0]["state"]), (&session, &json!("attached")));
}
