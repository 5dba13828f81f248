//! A source over streamable HTTP that wants a credential, spoken by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::{Value, json};

use super::{error, quick, wait_for};
use crate::wire::Wire;

const TOKEN: &str = "a-token-of-the-test";
/// Lets a client shake hands, and list nothing.
const HALF: &str = "half-a-token";
/// Lets a client list, and call nothing.
const LOOK: &str = "a-token-to-look";

/// A server that takes one bearer token. It answers until the test ends.
fn guarded() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    url
}

/// Answers one request of a connection after another.
fn serve(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Some((first, token, body)) = request(&mut reader) {
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, headers, body) = answer(first.starts_with("POST"), &token, &message);
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}");
        let whole = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(whole.as_bytes()).is_err() {
            return;
        }
    }
}

/// First line, bearer token and body of a request.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String, Vec<u8>)> {
    let (mut length, mut token, mut first) = (0, String::new(), String::new());
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let (name, value) = line.split_once(':').unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "" => break,
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => token = value.trim().trim_start_matches("Bearer ").to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first, token, body))
}

fn answer(post: bool, token: &str, message: &Value) -> (&'static str, String, String) {
    let challenge = |why: &str| {
        ("401 Unauthorized", format!("www-authenticate: Bearer{why}\r\n"), String::new())
    };
    let method = message["method"].as_str();
    match token {
        HALF if method == Some("tools/list") => return challenge(""),
        LOOK if method == Some("tools/call") => return challenge(" error=\"insufficient_scope\""),
        HALF | LOOK => {}
        "" => return challenge(""),
        "over" => {
            return challenge(" error=\"invalid_token\", error_description=\"The token expired\"");
        }
        TOKEN => {}
        _ => return challenge(" error=\"invalid_token\""),
    }
    let ok = |result: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        ("200 OK", String::new(), body.to_string())
    };
    match method {
        _ if !post => ("405 Method Not Allowed", String::new(), String::new()),
        Some("initialize") => ok(json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "guarded", "version": "1" },
        })),
        Some("ping") => ok(json!({})),
        Some("tools/list") => {
            ok(json!({ "tools": [{ "name": "hello", "inputSchema": { "type": "object" } }] }))
        }
        Some("tools/call") => ok(json!({ "content": [{ "type": "text", "text": "let in" }] })),
        Some(_) if !message["id"].is_null() => {
            let error = json!({ "code": -32601, "message": "there is no such method" });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            ("200 OK", String::new(), body.to_string())
        }
        _ => ("202 Accepted", String::new(), String::new()),
    }
}

#[test]
fn a_credential_is_read_from_its_file_and_each_refusal_has_its_own_state() {
    let url = guarded();
    let home = quick();
    let write = |more: &str| {
        let trust = "[policy]\nsource_default = \"allow\"";
        let config = format!("{trust}\n[source.servers.odd]\nurl = \"{url}\"\n{more}");
        std::fs::write(home.path("config.toml"), config).expect("writes");
    };
    write("");
    let daemon = home.daemon();
    wait_for(&home, "auth_required");
    drop(daemon);

    let file = home.path("token");
    write(&format!("token_file = {file:?}"));
    std::fs::write(&file, "wrong\n").expect("writes");
    let _daemon = home.daemon();
    wait_for(&home, "auth_invalid");
    std::fs::write(&file, "over\n").expect("writes");
    wait_for(&home, "auth_expired");
    std::fs::write(&file, HALF).expect("writes");
    wait_for(&home, "auth_invalid");
    // It is read again at each try.
    std::fs::write(&file, format!("{TOKEN}\n")).expect("writes");
    let row = wait_for(&home, "ready");
    assert_eq!((&row["transport"], &row["server"]), (&json!("http"), &json!("guarded 1")));
    let mut wire = Wire::mcp(&home);
    let answer = wire.call(1, "mcp__odd__hello", json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "let in", "{answer}");
    for (what, text) in [
        ("its output", std::fs::read_to_string(home.path("daemon.out")).unwrap_or_default()),
        ("its sources", home.ok(&["call", "source_list", "--json"])),
    ] {
        assert!(!text.contains(TOKEN), "{what} tells the token");
    }
}

#[test]
fn a_call_to_a_source_that_lets_nobody_in_says_who_has_to_do_what() {
    let url = guarded();
    let home = quick();
    let config = format!(
        "[policy]\nsource_default = \"allow\"\n[source.servers.odd]\nurl = \"{url}\"\ntoken_file = {:?}",
        home.path("token"),
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    std::fs::write(home.path("token"), TOKEN).expect("writes");
    let daemon = home.daemon();
    wait_for(&home, "ready");
    drop(daemon);
    // What it listed is kept, and its credential is none any more.
    std::fs::write(home.path("token"), "wrong").expect("writes");
    let _daemon = home.daemon();
    wait_for(&home, "auth_invalid");
    let mut wire = Wire::mcp(&home);
    let refused = error(&wire.call(1, "mcp__odd__hello", json!({})));
    assert_eq!(refused["code"], "source_auth_failed", "{refused}");
    assert_eq!(refused["details"]["outcome"], "nothing_done");
    // One that is let in for less than a call.
    std::fs::write(home.path("token"), LOOK).expect("writes");
    wait_for(&home, "ready");
    let refused = error(&wire.call(2, "mcp__odd__hello", json!({})));
    assert_eq!(refused["code"], "source_auth_failed", "{refused}");
    assert_eq!(refused["details"]["outcome"], "nothing_done");
}
