//! The hub of a running daemon: who is let in, what channels tell, and what a slow client is told.

mod socket;

use serde_json::{Value, json};

use crate::{
    home::{Daemon, Home},
    http_api::{Api, bearer, credential, opened},
    knowledge::counter::Counter,
    wire::Wire,
};
use socket::{Socket, handshake};

/// A daemon whose hub listens, and its clients.
struct Stage {
    home: Home,
    _daemon: Daemon,
    wire: Wire,
    address: String,
    operator: String,
    worker: String,
}

impl Stage {
    fn new(more: &[(&str, &str)]) -> Self {
        let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
        Self::of(more.iter().fold(home, |home, (name, value)| home.with(name, value)))
    }

    fn of(home: Home) -> Self {
        let home = home.with("HIVEKEEP_HUB__BIND", "127.0.0.1:0");
        let daemon = home.daemon();
        let (operator, worker) =
            (credential(&home, "ops", "operator"), credential(&home, "worker", "session"));
        let mut wire = Wire::start(&home, &["--no-spawn"]);
        wire.initialize();
        let started = wire.call(1, "ws_start", json!({}));
        let started = &started["result"]["structuredContent"];
        assert_eq!(started["success"], true, "{started}");
        let address = started["addr"].as_str().expect("an address").to_owned();
        assert!(
            started["message"]
                .as_str()
                .is_some_and(|it| it.contains(&format!("ws://{address}/ws")))
        );
        Self { home, _daemon: daemon, wire, address, operator, worker }
    }

    /// Makes calls, each of which is an event.
    fn calls(&mut self, many: i64) {
        for id in 0..many {
            let answer = self.wire.call(100 + id, "workspace_list", json!({}));
            assert_eq!(answer["result"]["isError"], false, "{answer}");
        }
    }

    fn info(&mut self) -> (u64, u64) {
        let info = self.wire.call(2, "ws_info", json!({}));
        let info = &info["result"]["structuredContent"];
        (info["clients"].as_u64().expect("clients"), info["channels"].as_u64().expect("channels"))
    }
}

#[test]
fn a_listener_is_started_once_and_elsewhere_by_the_operator_alone() {
    let mut stage = Stage::new(&[]);
    let again = stage.wire.call(3, "ws_start", json!({ "addr": ":8080" }));
    let again = &again["result"]["structuredContent"];
    assert_eq!(again["addr"], json!(stage.address));
    let elsewhere = stage.wire.call(4, "ws_start", json!({ "addr": "127.0.0.1:1" }));
    assert_eq!(elsewhere["result"]["isError"], true);
    assert!(elsewhere.to_string().contains("hub_address_refused"), "{elsewhere}");
    let operators = stage.home.json(&["call", "ws_start", "-a", "addr=127.0.0.1:1", "--json"]);
    assert_eq!(operators["addr"], json!(stage.address));
    assert!(operators["message"].as_str().is_some_and(|it| it.contains("was not opened")));
    let all = stage.home.run(&["call", "ws_start", "-a", "addr=0.0.0.0:1"]);
    assert!(String::from_utf8_lossy(&all.stderr).contains("hub_address_refused"), "no TLS");
}

#[test]
fn nobody_is_let_in_without_a_credential_or_from_a_foreign_page() {
    let stage = Stage::new(&[]);
    let auth = bearer(&stage.operator);
    let auth = ("Authorization", auth.as_str());
    let status = |headers: &[(&str, &str)]| handshake(&stage.address, headers).0;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("Authorization", "Bearer wrong")]), 401);
    assert_eq!(status(&[auth, ("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[auth, ("Host", "evil.example")]), 403);
    assert_eq!(status(&[auth, ("Upgrade", "none")]), 400);
    assert_eq!(status(&[auth]), 101);
}

#[test]
fn the_address_of_the_api_has_the_hub_too() {
    let api = Api::start();
    let auth = bearer(&api.operator);
    assert_eq!(handshake(&api.address, &[]).0, 401);
    assert_eq!(handshake(&api.address, &[("Authorization", &auth)]).0, 101);
}

#[test]
fn subscriptions_are_acknowledged_or_refused_and_replayed_from_a_cursor() {
    let mut stage = Stage::new(&[("HIVEKEEP_HUB__MAX_CHANNELS", "3")]);
    let mut socket = Socket::open(&stage.address, &stage.operator);
    socket.send(&json!({ "type": "ping", "id": 1 }));
    let pong = socket.next();
    assert_eq!((&pong["type"], &pong["id"]), (&json!("pong"), &json!(1)));
    socket.text(r#"{"type":"ping","id":"a\ud83d"}"#);
    assert_eq!(socket.next()["id"], "a\u{fffd}");
    socket.send(&json!({ "type": "subscribe", "id": "a", "data": "events", "kinds": ["call.*"] }));
    let ack = socket.next();
    assert_eq!(
        (&ack["type"], &ack["id"], &ack["channel"]),
        (&json!("subscribed"), &json!("a"), &json!("events"))
    );
    let from = ack["data"]["from"].as_u64().expect("a position");
    assert_eq!(stage.info(), (1, 1));
    stage.calls(3);
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let told = socket.next();
        assert_eq!((&told["type"], &told["channel"]), (&json!("event"), &json!("events")));
        assert_eq!(told["data"]["kind"], "call.finished");
        assert!(told["cursor"].as_u64() > told["data"]["seq"].as_u64());
        seen.push(told["data"]["seq"].clone());
    }
    for (frame, code) in [
        (json!({ "type": "subscribe", "id": 5, "channel": "events" }), "hub_channel_refused"),
        (json!({ "type": "subscribe", "id": 5, "channel": "chat:x" }), "hub_channel_refused"),
        (json!({ "type": "subscribe", "id": 5 }), "invalid_input"),
        (json!({ "type": "shout", "id": 5 }), "invalid_input"),
        (
            json!({ "type": "subscribe", "id": 5, "channel": "team:x", "from": { "stdout": 1 } }),
            "invalid_input",
        ),
    ] {
        socket.send(&frame);
        let refused = socket.next_but_events();
        assert_eq!((&refused["type"], &refused["id"]), (&json!("error"), &json!(5)), "{frame}");
        assert_eq!(refused["data"]["code"], code, "{frame}");
    }
    socket.text("no JSON");
    assert_eq!(socket.next_but_events()["data"]["code"], "invalid_input");
    let nobodys = format!("process:job_{}", "0".repeat(32));
    socket.send(&json!({ "type": "subscribe", "id": 6, "channel": nobodys }));
    assert_eq!(socket.next_but_events()["data"]["code"], "hub_channel_refused");

    socket.send(&json!({ "type": "unsubscribe", "id": 7, "data": "events" }));
    assert_eq!(socket.next_but_events()["type"], "unsubscribed");
    let mut again = Socket::open(&stage.address, &stage.operator);
    again.send(&json!({ "type": "subscribe", "channel": "events", "kinds": ["call.finished"], "from": from }));
    assert_eq!(again.next()["data"]["from"], json!(from));
    for seq in &seen {
        assert_eq!(again.next()["data"]["seq"], *seq, "the same again");
    }
    drop((socket, again));
    crate::home::wait_until("they are gone", || stage.info() == (0, 0));
}

#[test]
fn a_session_sees_its_own_events_alone_until_its_credential_is_revoked() {
    let mut stage = Stage::new(&[]);
    let mut socket = Socket::open(&stage.address, &stage.worker);
    for channel in ["events", "ingestions", "team:team_x"] {
        socket.follow(channel, &json!(1));
    }
    stage.calls(5);
    socket.send(&json!({ "type": "ping", "id": 3 }));
    assert_eq!(socket.next()["type"], "pong", "nothing of another's before it");
    stage.home.ok(&["credential", "revoke", "worker"]);
    assert_eq!(socket.until_closed(), Vec::<Value>::new());
}

#[test]
fn a_credential_leaves_half_of_the_places_to_others() {
    let mut stage = Stage::new(&[("HIVEKEEP_HUB__MAX_CLIENTS", "2")]);
    let first = Socket::open(&stage.address, &stage.operator);
    let (operator, worker) = (bearer(&stage.operator), bearer(&stage.worker));
    let status = |auth: &str| handshake(&stage.address, &[("Authorization", auth)]);
    assert_eq!(status(&operator).0, 503, "a second one");
    let other = status(&worker);
    assert_eq!(other.0, 101, "another's");
    drop((first, other));
    crate::home::wait_until("they are gone", || stage.info() == (0, 0));
}

#[test]
fn a_read_only_credential_hears_events_and_no_output() {
    let stage = Stage::new(&[]);
    let reader = credential(&stage.home, "dashboard", "read-only");
    let mut socket = Socket::open(&stage.address, &reader);
    socket.follow("events", &Value::Null);
    let process = format!("process:job_{}", "0".repeat(32));
    socket.send(&json!({ "type": "subscribe", "id": 6, "channel": process }));
    let refused = socket.next_but_events();
    assert_eq!(refused["data"]["code"], "hub_channel_refused", "{refused}");
    assert!(refused.to_string().contains("read-only"), "{refused}");
}

#[test]
fn a_slow_client_is_told_what_it_missed_and_slows_nobody() {
    let mut stage = Stage::new(&[("HIVEKEEP_HUB__MAX_BEHIND", "8")]);
    let mut slow = Socket::open_small(&stage.address, &stage.operator);
    slow.send(&json!({ "type": "subscribe", "channel": "events", "kinds": ["call.finished"] }));
    assert_eq!(slow.next()["type"], "subscribed");
    // Far more than lies between the two: it reads none of them meanwhile.
    stage.calls(1_500);
    slow.widen();
    let (mut last, mut missed) = (None::<u64>, 0);
    while missed == 0 {
        let told = slow.next();
        match told["type"].as_str() {
            Some("event") => last = told["data"]["seq"].as_u64(),
            Some("missed") => {
                let number = |key: &str| told["data"][key].as_u64().expect("a number");
                assert!(last.is_none_or(|last| number("first") > last), "{told}");
                missed = number("last");
            }
            _ => panic!("{told}"),
        }
    }
    let next = slow.next();
    assert!(next["data"]["seq"].as_u64() > Some(missed), "and on behind the gap: {next}");
}

#[test]
fn a_page_is_sent_where_its_user_says_and_nobody_elses() {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let mut stage = Stage::of(opened(home));
    let mut page = Socket::open(&stage.address, &stage.worker);
    page.send(&json!({ "type": "subscribe", "id": 1, "channel": "pages", "from": 3 }));
    assert_eq!(page.next()["data"]["code"], "invalid_input");
    page.follow("pages", &Value::Null);
    let to = json!({ "path": "/runs/exec_1" });
    let refused = stage.wire.call(3, "navigate", to.clone());
    assert!(refused.to_string().contains("no_page_open"), "the page is another's: {refused}");
    let mut api = Api {
        home: stage.home,
        daemon: None,
        address: String::new(),
        operator: stage.operator,
        session: stage.worker,
        reader: String::new(),
    };
    api.find();
    api.invoke(&api.session, "navigate", &json!({ "input": to })).of(200);
    let told = page.next();
    assert_eq!((&told["type"], &told["data"]), (&json!("navigate"), &to));
    let overview =
        api.invoke(&api.session, "ide_dashboard_overview", &json!({ "input": {} })).of(200);
    assert!(overview.to_string().contains("\"bridgeOnline\":true"), "{overview}");
}

#[test]
fn what_becomes_of_ingestions_is_told_to_whose_they_are() {
    let embedder = Counter::start();
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    std::fs::create_dir(home.path("notes")).expect("made");
    std::fs::write(home.path("notes/a.md"), "# One\n\nA passage.\n").expect("written");
    let config = format!(
        "[session.places.notes]\nfolder = {:?}\nread_only = true\n\
         {}",
        home.path("notes"),
        embedder.config()
    );
    std::fs::write(home.path("config.toml"), config).expect("written");
    let mut stage = Stage::of(opened(home));
    let mut all = Socket::open(&stage.address, &stage.operator);
    all.follow("ingestions", &Value::Null);
    let mut one = Socket::open(&stage.address, &stage.operator);
    one.follow("ingestion:notes", &Value::Null);
    let mut worker = Socket::open(&stage.address, &stage.worker);
    worker.follow("ingestions", &Value::Null);
    let ingest = |collection: &str| json!({ "path": ".", "collection": collection });
    for (id, collection) in [(10, "other"), (11, "notes")] {
        let answer = stage.wire.call(id, "rag_ingest", ingest(collection));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    for collection in ["other", "notes"] {
        let told = all.next();
        assert_eq!(told["channel"], "ingestions");
        let data = &told["data"];
        assert_eq!(
            (&data["kind"], &data["data"]["collection"]),
            (&json!("ingestion.finished"), &json!(collection))
        );
        assert_eq!(data["data"]["chunks"], 1, "{told}");
    }
    let told = one.next();
    assert_eq!(told["data"]["data"]["collection"], "notes", "the other one's are not told");
    let mut again = Socket::open(&stage.address, &stage.operator);
    again.follow("ingestion:notes", &json!(1));
    assert_eq!(again.next()["data"]["seq"], told["data"]["seq"], "from a cursor");
    // One of its own is the first that a session is told.
    let mut api = Api {
        home: stage.home,
        daemon: None,
        address: String::new(),
        operator: stage.operator,
        session: stage.worker,
        reader: String::new(),
    };
    api.find();
    api.invoke(&api.session, "rag_ingest", &json!({ "input": ingest("mine") })).of(200);
    assert_eq!(worker.next()["data"]["data"]["collection"], "mine");
}
