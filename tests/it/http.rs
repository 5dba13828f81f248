//! MCP over streamable HTTP: who is let in, and who is not.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    home::{Daemon, Home, PATIENCE, wait_until},
    http_api::credential,
};

pub(crate) struct Server {
    pub(crate) home: Home,
    daemon: Daemon,
    address: String,
    token: String,
}

impl Server {
    fn start() -> Self {
        Self::among(256)
    }

    /// With so many places.
    fn among(places: usize) -> Self {
        Self::with(places, &[])
    }

    /// With so many places and more variables.
    pub(crate) fn with(places: usize, more: &[(&str, &str)]) -> Self {
        let home = more.iter().fold(Home::new(), |home, (name, value)| home.with(name, value));
        let home = home
            .with("HIVEKEEP_DAEMON__MAX_CONNECTIONS", &places.to_string())
            .with("HIVEKEEP_HTTP__MCP__ENABLED", "true")
            .with("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0")
            .with("HIVEKEEP_HTTP__MCP__MAX_BODY_MB", "1")
            .with("HIVEKEEP_HTTP__ALLOWED_ORIGINS", r#"["http://friend.example:*"]"#);
        let daemon = home.daemon();
        let status = home.json(&["status", "--json"]);
        let url = status["mcp_http"].as_str().expect("the door is open").to_owned();
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let token = std::fs::read_to_string(home.path("state/mcp-token")).expect("it was made");
        Self { home, daemon, address, token: token.trim().to_owned() }
    }

    /// Posts a message: status and what came back.
    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let (status, mut reader) = self.begin(headers, body);
        let mut rest = Vec::new();
        let _reset_after_the_answer = reader.read_to_end(&mut rest);
        (status, String::from_utf8_lossy(&rest).into_owned())
    }

    /// Posts a message: status and what is about to come back.
    fn begin(&self, headers: &[(&str, &str)], body: &str) -> (u16, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "Accept") {
            request.push_str("Accept: application/json, text/event-stream\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).expect("writes");
        // A server that refuses early need not read all of it.
        let _written = stream.write_all(body.as_bytes());
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, reader)
    }

    /// The daemon is killed, and started again at another port.
    pub(crate) fn killed(self) -> Self {
        let Self { home, daemon, token, .. } = self;
        drop(daemon);
        let daemon = home.daemon();
        let status = home.json(&["status", "--json"]);
        let url = status["mcp_http"].as_str().expect("the door is open").to_owned();
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        Self { home, daemon, address, token }
    }

    /// Sends a request without a body: status and what is about to come back.
    fn send(&self, method: &str, headers: &[(&str, &str)]) -> (u16, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let lines: String = lines.collect();
        let host = &self.address;
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\
             Connection: close\r\n{lines}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("writes");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, reader)
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// The same of another user.
    fn others_bearer(&self) -> String {
        format!("Bearer {}", credential(&self.home, "other", "session"))
    }

    /// Asks as a client of 2026-07-28 with a credential, which can do this.
    pub(crate) fn ask_stateless(
        &self,
        bearer: &str,
        method: &str,
        params: Value,
        capabilities: Value,
    ) -> Value {
        let name = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str());
        let name = name.map(str::to_owned);
        let params = crate::wire::stateless(params, capabilities);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut headers = vec![
            ("Authorization", bearer),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
        message(&self.post(&headers, &body.to_string()).1)
    }
}

fn initialize() -> String {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "wire", "version": "1"},
        },
    })
    .to_string()
}

/// The JSON-RPC message in an event stream or a plain body.
pub(crate) fn message(answer: &str) -> Value {
    let lines = answer.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    lines
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|value| value["jsonrpc"] == "2.0")
        .unwrap_or_else(|| panic!("no message in {answer}"))
}

#[test]
fn each_guard_refuses_and_a_rightful_client_gets_in() {
    let server = Server::start();
    let (good, body) = (server.bearer(), initialize());
    let last = if server.token.ends_with('0') { '1' } else { '0' };
    let wrong = format!("Bearer {}{last}", &server.token[..server.token.len() - 1]);
    assert_eq!(server.post(&[], &body).0, 401, "no token");
    assert_eq!(server.post(&[("Authorization", &wrong)], &body).0, 401, "a near miss");
    assert_eq!(server.post(&[("Authorization", "Basic eDp5")], &body).0, 401, "another scheme");
    let auth = ("Authorization", good.as_str());
    assert_eq!(server.post(&[auth, ("Host", "rebound.example")], &body).0, 403, "another Host");
    assert_eq!(server.post(&[auth, ("Origin", "http://evil.example")], &body).0, 403, "Origin");
    assert_eq!(server.post(&[auth, ("Origin", "null")], &body).0, 403, "an opaque Origin");
    let large = "x".repeat((1 << 20) + 1);
    assert_eq!(server.post(&[auth], &large).0, 413, "a body too large");
    assert_eq!(server.post(&[auth], "{").0 / 100, 4, "no JSON");

    let (status, answer) = server.post(&[auth, ("Origin", "http://friend.example:99")], &body);
    assert_eq!(status, 200, "{answer}");
    let info = message(&answer);
    assert_eq!(info["result"]["serverInfo"]["name"], "hivekeep");
    assert_eq!(
        info["result"]["capabilities"]["tools"].get("listChanged"),
        None,
        "not promised here"
    );

    let session = session_of(&answer);
    let headers =
        [auth, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
    let (status, answer) = server.post(&headers, &call());
    assert_eq!(status, 200, "{answer}");
    assert_eq!(message(&answer)["result"]["isError"], false, "{answer}");
}

#[test]
fn requests_without_a_handshake_share_the_session_of_their_token() {
    let server = Server::start();
    let good = server.bearer();
    for id in 1..=2 {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {
                "name": "workspace_list", "arguments": {},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        });
        let headers = [
            ("Authorization", good.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "workspace_list"),
        ];
        let (status, answer) = server.post(&headers, &call.to_string());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(message(&answer)["result"]["isError"], false, "{answer}");
    }
    let sessions = server.home.json(&["sessions", "--json"]);
    let http: Vec<_> =
        sessions.as_array().expect("rows").iter().filter(|row| row["door"] == "mcp_http").collect();
    assert_eq!(http.len(), 1, "{sessions}");
    assert_eq!(http[0]["calls_total"], 2);
}

#[test]
fn notes_are_resources_here_too() {
    let server = Server::start();
    let write = ["call", "vault", "-a", "action=write", "-a", "path=a.md", "-a", "content=one"];
    server.home.ok(&write);
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let (_, answer) = server.post(&[auth], &initialize());
    let declared = json!({ "subscribe": true, "listChanged": true });
    assert_eq!(message(&answer)["result"]["capabilities"]["resources"], declared, "{answer}");
    let read = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/read",
        "params": {
            "uri": "vault:///a.md",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let headers = [
        auth,
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "resources/read"),
        ("Mcp-Name", "vault:///a.md"),
    ];
    let (status, answer) = server.post(&headers, &read.to_string());
    assert_eq!(status, 200, "{answer}");
    assert_eq!(message(&answer)["result"]["contents"][0]["text"], "one", "{answer}");
}

#[test]
fn a_stream_has_its_place_until_its_client_has_gone() {
    const HALF: usize = 2;
    let server = Server::among(2 * HALF);
    server.home.ok(&[
        "call",
        "vault",
        "-a",
        "action=write",
        "-a",
        "path=a.md",
        "-a",
        "content=one",
    ]);
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let listen = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {
            "notifications": { "resourceSubscriptions": ["vault:///a.md"] },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
    .to_string();
    let headers =
        [auth, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    let mut streams: Vec<_> = (0..HALF)
        .map(|nth| {
            let (status, mut reader) = server.begin(&headers, &listen);
            assert_eq!(status, 200, "stream {nth}");
            let mut line = String::new();
            while !line.contains("subscriptions/acknowledged") {
                line.clear();
                assert_ne!(reader.read_line(&mut line).expect("it goes on"), 0, "it has ended");
            }
            reader
        })
        .collect();
    assert_eq!(server.begin(&headers, &listen).0, 503, "one stream more than half of the places");
    let (status, answer) = server.post(&[auth], &initialize());
    assert_eq!(status, 503, "any request: {answer}");
    assert!(answer.contains("daemon.max_connections"), "{answer}");
    let other = server.others_bearer();
    assert_eq!(server.post(&[("Authorization", &other)], &initialize()).0, 200, "another user's");
    drop(streams.pop());
    wait_until("a place is free", || server.post(&[auth], &initialize()).0 == 200);
}

/// The session that an answer to `initialize` names.
fn session_of(answer: &str) -> String {
    let named = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    named.expect("a session")
}

fn call() -> String {
    json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "workspace_list", "arguments": {}},
    })
    .to_string()
}

#[test]
fn a_handshake_takes_nobodys_place_and_is_forgotten_when_nothing_follows() {
    let server = Server::with(256, &[("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "1")]);
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let followed = session_of(&server.post(&[auth], &initialize()).1);
    let of = |session: &str| {
        let version = ("MCP-Protocol-Version", "2025-11-25");
        server.post(&[auth, ("Mcp-Session-Id", session), version], &call())
    };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let version = ("MCP-Protocol-Version", "2025-11-25");
    let headers = [auth, ("Mcp-Session-Id", followed.as_str()), version];
    assert_eq!(server.post(&headers, &ping).0, 200);
    let silent: Vec<_> =
        (0..300).map(|_| session_of(&server.post(&[auth], &initialize()).1)).collect();
    let sessions = server.home.json(&["sessions", "--json"]);
    assert_eq!(sessions, json!([]), "none before its first call");
    let mut wire = crate::wire::Wire::start(&server.home, &["--no-spawn"]);
    wire.initialize();
    for session in silent.iter().rev().take(3) {
        wait_until("it is forgotten", || {
            // Whatever is asked of it would keep it: so only once.
            std::thread::sleep(std::time::Duration::from_millis(1_500));
            of(session).0 == 404
        });
    }
    let (status, answer) = of(&followed);
    assert_eq!(status, 200, "{answer}");
    let sessions = server.home.json(&["sessions", "--json"]);
    let names: Vec<_> =
        sessions.as_array().expect("rows").iter().map(|row| &row["client"]).collect();
    assert!(names.contains(&&json!("wire 1")), "{sessions}");
}

#[test]
fn a_body_of_too_many_values_is_refused_unread() {
    let server = Server::start();
    let good = server.bearer();
    let many = format!("[{}0]", "0,".repeat(200_000));
    assert_eq!(server.post(&[("Authorization", good.as_str())], &many).0, 413);
}

/// Whether a person's terminal would do anything but show it.
fn acts(text: &str) -> bool {
    text.chars().any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}'))
}

#[test]
fn what_a_client_calls_itself_moves_no_terminal() {
    let server = Server::start();
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let name = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}2J\u{202e}evil";
    let hello = initialize().replace(r#""wire""#, &json!(name).to_string());
    let session = session_of(&server.post(&[auth], &hello).1);
    let headers =
        [auth, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
    for call in [call(), call().replace("workspace_list", "\\u001b[2J\u{9b}2J")] {
        assert_eq!(server.post(&headers, &call).0, 200);
    }
    let sessions = server.home.ok(&["sessions"]);
    assert!(sessions.contains("evil"), "{sessions}");
    for command in [
        &["sessions"][..],
        &["sessions", "--json"],
        &["events"],
        &["events", "--json"],
        &["logs"],
        &["logs", "--json"],
        &["ps"],
        &["ps", "--json"],
    ] {
        let text = server.home.ok(command);
        assert!(!acts(&text), "{command:?}: {text:?}");
    }
    let refused = server.home.run(&["sessions", "--end", "\u{9b}2J"]);
    assert!(!refused.status.success());
}

#[test]
fn the_door_is_shut_unless_it_is_opened() {
    let home = Home::new();
    let _daemon = home.daemon();
    assert_eq!(home.json(&["status", "--json"])["mcp_http"], Value::Null);
    assert!(!home.path("state/mcp-token").exists());
    let outside = home.run(&["config", "--set", "http.mcp.bind=0.0.0.0:7717"]);
    assert_eq!(outside.status.code(), Some(2));
}

/// The next line of a stream that has this at its beginning, without it.
fn next_line(reader: &mut BufReader<TcpStream>, beginning: &str) -> String {
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line).expect("a line");
        assert!(length > 0, "the stream ended without `{beginning}`");
        if let Some(rest) = line.strip_prefix(beginning) {
            return rest.trim().to_owned();
        }
    }
}

#[test]
fn a_session_with_a_handshake_goes_on_after_the_daemon_was_killed() {
    let server = Server::start();
    let bearer = server.bearer();
    let (status, answer) = server.post(&[("Authorization", &bearer)], &initialize());
    assert_eq!(status, 200, "{answer}");
    let session = session_of(&answer);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let (status, answer) = server.post(&headers, &call());
    assert_eq!(status, 200, "{answer}");
    let own = |server: &Server| -> Vec<Value> {
        let rows = server.home.json(&["sessions", "--json"]);
        let rows = rows.as_array().expect("rows").iter();
        rows.filter(|row| row["client"] == "wire 1").map(|row| row["session"].clone()).collect()
    };
    let before = own(&server);
    assert_eq!(before.len(), 1, "one of its own");

    let other = server.others_bearer();
    let server = server.killed();
    let mut others = headers;
    others[0].1 = &other;
    for method in ["GET", "DELETE"] {
        assert_eq!(server.send(method, &others).0, 404, "{method}: it is another's");
    }
    assert_eq!(server.post(&others, &call()).0, 404, "also for whoever comes first");
    let (status, answer) = server.post(&headers, &call());
    assert_eq!(status, 200, "{answer}");
    assert_eq!(message(&answer)["result"]["isError"], false, "{answer}");
    assert_eq!(own(&server), before, "the same one");
    assert_eq!(server.post(&others, &call()).0, 404, "and when it is in use again");
    let mut stranger = headers;
    stranger[1].1 = "00000000-0000-4000-8000-000000000000";
    assert_eq!(server.post(&stranger, &call()).0, 404, "nobody shook hands for it");
    assert_eq!(server.send("DELETE", &headers).0 / 100, 2);
    let server = server.killed();
    assert_eq!(server.post(&headers, &call()).0, 404, "its client ended it");
}

#[test]
fn an_answer_that_was_not_read_is_sent_again_to_whoever_comes_back_for_it() {
    let server = Server::start();
    let bearer = server.bearer();
    let (_, answer) = server.post(&[("Authorization", &bearer)], &initialize());
    let session = session_of(&answer);
    let mut headers = vec![
        ("Authorization", bearer.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let (status, mut stream) = server.begin(&headers, &call());
    assert_eq!(status, 200);
    // The connection breaks before the answer is read.
    let last = next_line(&mut stream, "id:");
    drop(stream);
    headers.push(("Last-Event-ID", &last));
    let (status, mut stream) = server.send("GET", &headers);
    assert_eq!(status, 200);
    let answer = loop {
        let data = next_line(&mut stream, "data:");
        if let Ok(message) = serde_json::from_str::<Value>(&data) {
            break message;
        }
    };
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

/// A question to nobody: a call that takes so many seconds.
fn question(secs: u64) -> String {
    let arguments = json!({ "question": "Which way?", "timeout_secs": secs });
    json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "ask_user", "arguments": arguments },
    })
    .to_string()
}

#[test]
fn an_answer_that_came_while_nobody_listened_waits_for_its_client() {
    let server = Server::start();
    let good = server.bearer();
    let session = session_of(&server.post(&[("Authorization", &good)], &initialize()).1);
    let mut headers = vec![
        ("Authorization", good.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let (_, mut stream) = server.begin(&headers, &question(1));
    let last = next_line(&mut stream, "id:");
    drop(stream);
    wait_until("the call has ended", || {
        let events = server.home.ok(&["events", "--json"]);
        events.lines().any(|it| it.contains("call.finished") && it.contains("ask_user"))
    });
    headers.push(("Last-Event-ID", &last));
    for time in ["first", "second"] {
        let (status, mut stream) = server.send("GET", &headers);
        assert_eq!(status, 200);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("it ends");
        let answer = &message(&rest)["result"]["structuredContent"];
        assert_eq!(answer["status"], "no_answer", "{time}: {rest}");
    }
}

#[test]
fn a_session_is_not_idle_while_its_call_runs() {
    let server = Server::with(256, &[("HIVEKEEP_HTTP__MCP__SESSION_IDLE_SECS", "1")]);
    let good = server.bearer();
    let session = session_of(&server.post(&[("Authorization", &good)], &initialize()).1);
    let headers = [
        ("Authorization", good.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let (_, answer) = server.post(&headers, &question(4));
    let answer = &message(&answer)["result"]["structuredContent"];
    assert_eq!(answer["status"], "no_answer", "{answer}");
}

#[test]
fn clients_that_name_no_stream_get_one_json() {
    let server = Server::start();
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    for accept in ["application/json", "*/*", ""] {
        let accept = ("Accept", accept);
        let (status, answer) = server.post(&[auth, accept], &initialize());
        assert_eq!(status, 200, "{accept:?}: {answer}");
        let session = session_of(&answer);
        let version = ("MCP-Protocol-Version", "2025-11-25");
        let headers = [auth, accept, ("Mcp-Session-Id", session.as_str()), version];
        let (status, answer) = server.post(&headers, &call());
        assert_eq!(status, 200, "{accept:?}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
        assert_eq!(message(body)["result"]["isError"], false, "{body}");
    }
}

#[test]
fn what_is_no_message_gets_an_error_of_the_protocol() {
    let server = Server::start();
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let refused = |headers: &[(&str, &str)], body: &str| message(&server.post(headers, body).1);
    assert_eq!(refused(&[auth], r#"{"jsonrpc":"2.0","id":3"#)["error"]["code"], -32700);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"ping","params":{{"a":{}1{}}}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    let deep = refused(&[auth], &deep);
    assert_eq!((&deep["error"]["code"], &deep["id"]), (&json!(-32700), &json!(3)), "{deep}");
    let nameless = json!({ "jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {} });
    assert_eq!(refused(&[auth], &nameless.to_string())["error"]["code"], -32602);
    let session = session_of(&server.post(&[auth], &initialize()).1);
    let version = ("MCP-Protocol-Version", "2025-11-25");
    let headers = [auth, ("Mcp-Session-Id", session.as_str()), version];
    let text = call().replace(r#""arguments":{}"#, r#""arguments":"{}""#);
    let text = refused(&headers, &text);
    assert_eq!(text["error"]["code"], -32602, "{text}");
    assert!(text["error"]["message"].as_str().is_some_and(|it| it.contains("arguments")), "{text}");
}

#[test]
fn silent_connections_lock_nobody_out_and_end_in_time_and_with_the_daemon() {
    let server = Server::with(
        4,
        &[("HIVEKEEP_HTTP__MAX_CONNECTIONS", "64"), ("HIVEKEEP_HTTP__HEADER_TIMEOUT_SECS", "5")],
    );
    let good = server.bearer();
    let auth = ("Authorization", good.as_str());
    let silent = |begun: &str| {
        let mut stream = TcpStream::connect(&server.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(begun.as_bytes()).expect("writes");
        stream
    };
    // More than there may be connections at once.
    let streams: Vec<_> = (0..200).map(|_| silent("POST /mc")).collect();
    let (status, answer) = server.post(&[auth], &initialize());
    assert_eq!(status, 200, "{answer}");
    for mut stream in streams {
        // Reset or closed.
        let ended = stream.read_to_end(&mut Vec::new());
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "it is kept");
    }
    let session = session_of(&server.post(&[auth], &initialize()).1);
    let version = ("MCP-Protocol-Version", "2025-11-25");
    let headers = [auth, ("Mcp-Session-Id", session.as_str()), version];
    let (status, mut told) = server.send("GET", &headers);
    assert_eq!(status, 200);
    let mut idle = silent("");
    let Server { home, mut daemon, .. } = server;
    home.ok(&["stop"]);
    daemon.wait();
    let _reset_or_closed = idle.read_to_end(&mut Vec::new());
    let _reset_or_closed = told.read_to_end(&mut Vec::new());
}

#[test]
fn one_user_leaves_half_of_the_sessions_to_others() {
    // Four sessions for each place.
    const HALF: usize = 8;
    let server = Server::with(4, &[("HIVEKEEP_DAEMON__HANDSHAKE_TIMEOUT_SECS", "90")]);
    let good = server.bearer();
    let begins = |auth: &str| server.post(&[("Authorization", auth)], &initialize());
    for nth in 0..HALF {
        assert_eq!(begins(&good).0, 200, "session {nth}");
    }
    let (status, answer) = begins(&good);
    assert_eq!(status, 503, "{answer}");
    let other = server.others_bearer();
    assert_eq!(begins(&other).0, 200, "another user's");
}
