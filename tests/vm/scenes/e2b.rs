//! The door for E2B's SDKs, by its wire: what a sandbox takes and says, and what a SIGKILL leaves of a fork.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{crash, http_api::Caller};
use crate::house::{House, PATIENCE};

pub const CONFIG: &str = "[http.api]\nenabled = true\nbind = \"127.0.0.1:0\"\n\
                          [http.e2b]\nenabled = true\nbind = \"127.0.0.1:0\"\n";

/// A program that is written for E2B.
pub struct Sdk {
    address: String,
    key: String,
}

impl Sdk {
    pub fn new(house: &House, credential: &str) -> Self {
        let output = house.command().args(["status", "--json"]).output().expect("the program runs");
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let url = status["e2b"].as_str().expect("the door is open");
        let address = url.trim_start_matches("http://").to_owned();
        Self { address, key: credential.replacen("hivekeep_", "e2b_", 1) }
    }

    /// Status and body; `None` where the daemon has died.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        self.send(method, path, headers, "application/json", body.to_string().as_bytes())
    }

    /// Sends bytes of a kind. The body of an answer that is not JSON is its text.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        kind: &str,
        body: &[u8],
    ) -> Option<(u16, Value)> {
        let Self { address, key } = self;
        let mut stream = TcpStream::connect(address).ok()?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-API-KEY: {key}\r\n\
             {headers}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[request.as_bytes(), body].concat()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Some((status, serde_json::from_str(body).unwrap_or_else(|_| body.into())))
    }

    pub fn ok(&self, method: &str, path: &str, headers: &str, body: &Value) -> Value {
        let (status, body) = self.ask(method, path, headers, body).expect("an answer");
        assert!((200..300).contains(&status), "{method} {path}: {status} {body}");
        body
    }

    pub fn get(&self, path: &str) -> Value {
        self.ok("GET", path, "", &Value::Null)
    }

    /// A sandbox, by its id and its token. Its ports are public, which takes no network.
    pub fn create(&self) -> (String, String) {
        let wanted = json!({
            "templateID": "base", "timeout": 600, "network": { "allowPublicTraffic": true },
        });
        let made = self.ok("POST", "/v2/sandboxes", "", &wanted);
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        (text("sandboxID"), text("envdAccessToken"))
    }
}

pub fn a_sandbox_tells_what_it_takes_and_says(house: House) {
    let caller = Caller::new(&house, "sdk");
    let sdk = Sdk::new(&house, &caller.credential);
    let (id, token) = sdk.create();
    let rows = sdk.get(&format!("/sandboxes/{id}/metrics"));
    let row = &rows[0];
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!(number("cpuCount"), 1.0);
    assert!((0.0..=100.0).contains(&number("cpuUsedPct")), "{row}");
    for kind in ["mem", "disk"] {
        let (used, total) = (number(&format!("{kind}Used")), number(&format!("{kind}Total")));
        assert!(used > 0.0 && used <= total, "{kind}: {row}");
    }
    assert!(number("memTotal") <= f64::from(256 << 20), "its own memory: {row}");
    let past = sdk.get(&format!("/sandboxes/{id}/metrics?start=1000&end=2000"));
    assert_eq!(past, json!([]), "nothing is made up of times that are over");

    // A loop takes the processor, which shows.
    let work = "i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done";
    let job = json!({ "workspace_id": id, "action": "start", "command": work });
    caller.ok("exec_background", &job);
    let begun = Instant::now();
    loop {
        let told = sdk.get(&format!("/sandboxes/metrics?sandbox_ids={id},i0"));
        let all = told["sandboxes"].as_object().expect("rows");
        assert_eq!(all.len(), 1, "one that is not there has no row: {told}");
        let used = all[&id]["cpuUsedPct"].as_f64().expect("a number");
        if used > 20.0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{told}");
    }
    let headers = format!("E2b-Sandbox-Id: {id}\r\nX-Access-Token: {token}\r\n");
    let within = sdk.ok("GET", "/metrics", &headers, &Value::Null);
    assert_eq!(within["mem_total"], row["memTotal"]);

    let logs = sdk.get(&format!("/v2/sandboxes/{id}/logs?limit=1000"));
    let entries = logs["logs"].as_array().expect("entries");
    let old = sdk.get(&format!("/sandboxes/{id}/logs"));
    assert_eq!(old["logs"].as_array().map(Vec::len), Some(entries.len()));
    let said = caller.ok("workspace_logs", &json!({ "workspace_id": id, "max_lines": 1000 }));
    for entry in entries {
        let (message, level) = (entry["message"].as_str().expect("text"), &entry["level"]);
        let log = if level == "info" { "console" } else { "stderr" };
        let text = said[log].as_str().expect("text");
        assert!(text.lines().any(|line| line == message), "{message} is not in {log}");
    }
    let of_another = sdk.ask("GET", "/sandboxes/i0/logs", "", &Value::Null).expect("an answer");
    assert_eq!(of_another.0, 404);
}

pub fn what_is_shown_opens_one_sandbox_and_nothing_is_lost(house: House) {
    let caller = Caller::new(&house, "sdk");
    let sdk = Sdk::new(&house, &caller.credential);
    let key = "Idempotency-Key: a\r\n";
    let wanted = |note: &str| {
        json!({
            "templateID": "base", "timeout": 600, "metadata": { "note": note },
            "network": { "allowPublicTraffic": true },
        })
    };
    let create = || {
        let made = sdk.ok("POST", "/sandboxes", key, &wanted("for ann@x"));
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        (text("sandboxID"), text("envdAccessToken"))
    };
    let (id, token) = create();
    assert_eq!(create(), (id.clone(), token.clone()), "it was made before");
    let other = sdk.ask("POST", "/sandboxes", key, &wanted("another")).expect("an answer");
    assert_eq!(other.0, 409, "{}", other.1);
    // As the SDKs encode it: each part, the pairs, and the query.
    let listed = sdk.get("/v2/sandboxes?metadata=note%3Dfor%252520ann%252540x");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    for (port, status) in [(8123, 502), (49_999, 403)] {
        let headers = format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: {port}\r\n");
        let answer = sdk.ask("GET", "/", &headers, &Value::Null).expect("an answer");
        assert_eq!(answer.0, status, "without a token, {port}: {}", answer.1);
    }

    let message = json!({ "process": {
        "cmd": "/bin/bash", "args": ["-c", "head -c 6000000 /dev/zero"],
    } })
    .to_string();
    let length = u32::try_from(message.len()).expect("short");
    let envelope = [&[0], &length.to_be_bytes()[..], message.as_bytes()].concat();
    let shown = |token: &str| format!("E2b-Sandbox-Id: {id}\r\nX-Access-Token: {token}\r\n");
    let kind = "application/connect+json";
    let said = sdk.send("POST", "/process.Process/Start", &shown(&token), kind, &envelope);
    let (_, events) = said.expect("an answer");
    let events = events.as_str().expect("a stream");
    let pieces = events.split("\"stdout\":\"").skip(1).filter_map(|it| it.split('"').next());
    let bytes: usize =
        pieces.map(|it| it.len() / 4 * 3 - it.bytes().filter(|byte| *byte == b'=').count()).sum();
    assert!(bytes == 6_000_000 && events.contains("\"exitCode\":0"), "{bytes}");

    sdk.ok("DELETE", &format!("/sandboxes/{id}"), "", &Value::Null);
    let (again, new) = create();
    assert_eq!(again, id);
    for (token, status) in [(&token, 401), (&new, 204)] {
        let answer = sdk.ask("GET", "/health", &shown(token), &Value::Null).expect("an answer");
        assert_eq!(answer.0, status, "{}", answer.1);
    }
}

pub fn a_fork_that_was_killed_leaves_no_snapshot(mut house: House) {
    let caller = Caller::new(&house, "sdk");
    let credential = caller.credential.clone();
    let (id, _) = Sdk::new(&house, &credential).create();
    crash::die_at(&mut house, "e2b.fork.after_snapshot", |house| {
        let sdk = Sdk::new(house, &credential);
        let answer = sdk.ask("POST", &format!("/sandboxes/{id}/fork"), "", &json!({}));
        assert_eq!(answer, None, "it was answered");
    });
    let caller = Caller::again(&house, credential);
    let list = json!({ "workspace_id": id, "action": "list" });
    let begun = Instant::now();
    loop {
        let listed = caller.ok("snapshot", &list);
        if listed["snapshots"].as_array().is_none_or(Vec::is_empty) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it stays: {listed}\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    let sdk = Sdk::new(&house, &caller.credential);
    // What a fork lives on is kept for it, and goes with the next one when it has ended.
    let mut kept = Vec::new();
    for _ in 0..2 {
        let forked = sdk.ok("POST", &format!("/sandboxes/{id}/fork"), "", &json!({}));
        let fork = forked[0]["sandbox"]["sandboxID"].as_str().expect("a fork");
        let listed = caller.ok("snapshot", &list)["snapshots"].clone();
        kept.push(listed.as_array().map_or(0, Vec::len));
        sdk.ok("DELETE", &format!("/sandboxes/{fork}"), "", &Value::Null);
    }
    assert_eq!(kept[0], kept[1], "each fork leaves one more");
}
