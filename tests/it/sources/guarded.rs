//! MCP server over streamable HTTP that wants a credential, spoken by hand: also for daemons in tests/vm.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "a-token-of-the-test";
/// Lets a client shake hands, and list nothing.
pub(crate) const HALF: &str = "half-a-token";
/// Lets a client list, and call nothing.
pub(crate) const LOOK: &str = "a-token-to-look";

/// Address of a server that takes one bearer token. It answers until the test ends.
pub(crate) fn start() -> String {
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
