//! An MCP server over standard streams whose tools misbehave: a source for the tests of sources.
//!
//! It speaks the protocol by hand, line by line, so that it can break it.

use std::{
    io::{self, BufRead, Write},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn tool(name: &str, description: &str, more: Value) -> Value {
    let mut tool = json!({
        "name": name, "description": description,
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
    });
    if let (Some(tool), Value::Object(more)) = (tool.as_object_mut(), more) {
        tool.extend(more);
    }
    tool
}

fn tools(grown: bool) -> Vec<Value> {
    let structured = json!({ "outputSchema": {
        "type": "object", "properties": { "count": { "type": "integer" } }, "required": ["count"],
    } });
    let reads = json!({ "annotations": { "readOnlyHint": true, "openWorldHint": false } });
    let mut tools = vec![
        tool("echo", "Say a text again.", reads),
        tool("count", "Count the characters of a text.", structured.clone()),
        tool("picture", "A picture, a sound and a file.", json!({})),
        tool("wait", "Report progress, then wait for `text` milliseconds.", json!({})),
        tool("lie", "Answer otherwise than declared.", structured),
        tool("fail", "Fail.", json!({})),
        tool("look", "What it sees of the host.", json!({})),
        tool("leave", "Leave a process behind and end.", json!({})),
        tool("hang", "Answer nothing any more.", json!({})),
        tool("grow", "Have one tool more.", json!({})),
        tool("strange", "Parts that nobody knows, and half a letter.", json!({})),
        tool("two-names", "One of two.", json!({})),
        tool("two.names", "The other of two.", json!({})),
        tool("Not A Name", "Nobody can call it.", json!({})),
        tool("wide", &"x".repeat(20_000), json!({})),
        tool("untyped", "No object.", json!({ "inputSchema": { "type": "string" } })),
        tool(
            "afar",
            "Its schema is elsewhere.",
            json!({ "inputSchema": {
            "type": "object", "properties": { "x": { "$ref": "http://127.0.0.1:1/schema" } },
        } }),
        ),
    ];
    // What the protocol does not have.
    tools.extend([
        json!(null),
        json!({ "name": "schemaless" }),
        json!({ "name": 7, "inputSchema": { "type": "object" } }),
        tool(
            "hinting",
            "A hint that is none.",
            json!({ "annotations": { "readOnlyHint": "yes" } }),
        ),
    ]);
    if grown {
        tools.push(tool("grown", "It was not there before.", json!({})));
    }
    tools
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

fn send(message: &Value) {
    let mut out = io::stdout().lock();
    // A client that is gone hears nothing.
    let _gone = writeln!(out, "{message}").and_then(|()| out.flush());
}

/// What it sees of the host, and what it was given.
fn look() -> String {
    let there = |path: &str| std::fs::metadata(path).is_ok();
    let mut seen: Vec<_> = ["/root/.profile", "/etc/shadow", "/var", "/srv/source"]
        .into_iter()
        .filter(|path| there(path))
        .collect();
    seen.sort_unstable();
    let kept = std::fs::read_to_string("kept").unwrap_or_default();
    // For the next life.
    let written = std::fs::write("kept", "yes").is_ok();
    let variables: Vec<_> =
        std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let interfaces: Vec<_> = interfaces
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    // What is there already.
    let setting = "/proc/sys/kernel/core_pattern";
    let set = std::fs::read(setting).and_then(|now| std::fs::write(setting, now)).is_ok();
    json!({
        "seen": seen, "kept": kept, "written": written, "variables": variables, "sets_the_kernel": set,
        "interfaces": interfaces, "processes": std::process::id(),
    })
    .to_string()
}

fn main() {
    let mark = std::env::args().nth(1).unwrap_or_default();
    let mut grown = false;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let (id, params) = (&message["id"], &message["params"]);
        let answer = |result: Value| send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        let given = params["arguments"]["text"].as_str().unwrap_or_default();
        match (message["method"].as_str(), params["name"].as_str()) {
            (Some("initialize"), _) => answer(json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "odd", "version": "1" },
            })),
            (Some("ping"), _) => answer(json!({})),
            // Its list has no end.
            (Some("tools/list"), _) => {
                answer(json!({ "tools": tools(grown), "nextCursor": "again" }));
            }
            (Some("tools/call"), Some("echo")) => answer(text(given)),
            (Some("tools/call"), Some("count")) => {
                let count = json!({ "count": given.chars().count() });
                answer(json!({ "content": [], "structuredContent": count }));
            }
            (Some("tools/call"), Some("picture")) => answer(json!({ "content": [
                { "type": "image", "data": PIXEL, "mimeType": "image/png" },
                { "type": "audio", "data": "AAAA", "mimeType": "audio/wav" },
                { "type": "resource", "resource": {
                    "uri": "odd://file", "mimeType": "text/plain", "text": "whole" } },
            ] })),
            (Some("tools/call"), Some("strange")) => {
                let content = json!([
                    { "type": "text", "text": "cut HALF here" }, { "type": "hologram", "data": "x" },
                ]);
                let result =
                    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } });
                let mut out = io::stdout().lock();
                let _gone = writeln!(out, "{}", result.to_string().replace("HALF", "\\ud83d"));
            }
            (Some("tools/call"), Some("wait")) => {
                let token = &params["_meta"]["progressToken"];
                let told =
                    json!({ "progressToken": token, "progress": 1, "total": 2, "message": "half" });
                send(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": told }),
                );
                std::thread::sleep(Duration::from_millis(given.parse().unwrap_or(100)));
                answer(text(params["_meta"].to_string()));
            }
            (Some("tools/call"), Some("lie")) => {
                answer(json!({ "content": [], "structuredContent": { "count": "many" } }));
            }
            (Some("tools/call"), Some("fail")) => {
                let mut failure = text(format!("it failed because of {given}"));
                failure["isError"] = true.into();
                answer(failure);
            }
            (Some("tools/call"), Some("look")) => answer(text(look())),
            (Some("tools/call"), Some("leave")) => {
                // Its argument is what the test looks for among the host's processes.
                let _left = Command::new("sh").args(["-c", "sleep 600; true", &mark]).spawn();
                std::process::exit(7);
            }
            (Some("tools/call"), Some("hang")) => loop {
                std::thread::park();
            },
            (Some("tools/call"), Some("grow")) => {
                grown = true;
                send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
                answer(text("grown"));
            }
            (Some(_), _) if !id.is_null() => {
                let error = json!({ "code": -32601, "message": "there is no such method" });
                send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            _ => {}
        }
    }
}
