//! Inputs as models and programs spell them: one answer at every door.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::{
    http_api::{Api, bearer},
    wire::Wire,
};

/// Tool, arguments as text, a member of the result or the whole of it, and what that has.
const ASKED: [(&str, &str, &str, &str); 6] = [
    ("lang_detect", r#"{"path":"a\ud83d.rs"}"#, "path", "a\u{fffd}.rs"),
    ("lang_detect", r#"{"path":"\ude00a.rs"}"#, "path", "\u{fffd}a.rs"),
    ("lang_detect", r#"{"path":"a\ud83d\ude00.rs"}"#, "path", "a\u{1f600}.rs"),
    ("aegis.script.list", r#"{"limit":5.0,"after":null,"tag":null}"#, "total", "0"),
    ("aegis.script.list", r#"{"limit":null}"#, "total", "0"),
    ("aegis.script.list", r#"{"limit":5.5}"#, "", "invalid_input"),
];

/// The member of an answer, wherever it is in it.
fn member(answer: &Value, name: &str) -> String {
    fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
        match value {
            Value::Object(fields) => {
                fields.get(name).or_else(|| fields.values().find_map(|it| find(it, name)))
            }
            Value::Array(items) => items.iter().find_map(|it| find(it, name)),
            _ => None,
        }
    }
    if name.is_empty() {
        return answer.to_string();
    }
    match find(answer, name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => panic!("{answer} has no {name}"),
    }
}

#[test]
fn an_odd_input_gets_one_answer_at_every_door() {
    let mut api = Api::with(&[
        ("HIVEKEEP_HTTP__MCP__ENABLED", "true"),
        ("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0"),
    ]);
    let mut wire = Wire::mcp(&api.home);
    let url = api.home.json(&["status", "--json"])["mcp_http"].as_str().expect("open").to_owned();
    let mut mcp = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let auth = bearer(&api.session);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "odd", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (id, (tool, arguments, name, wanted)) in (10..).zip(ASKED) {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{meta},"name":"{tool}","arguments":{arguments}}}}}"#
        );
        writeln!(wire.stream, "{message}").expect("it reads");
        let over_stdio = wire.answer(id);
        let headers = [("Authorization", auth.as_str())];
        let body = format!(r#"{{"input":{arguments},"sensitive_input_fields":null}}"#);
        let over_api = api
            .raw(
                "POST",
                &format!("/api/tools/{}/invoke", tool.replace('.', "_")),
                &headers,
                Some(&body),
            )
            .json();
        let version = ("MCP-Protocol-Version", "2026-07-28");
        let headers = [headers[0], version, ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)];
        std::mem::swap(&mut api.address, &mut mcp);
        let over_mcp = api.raw("POST", "/mcp", &headers, Some(&message)).json();
        std::mem::swap(&mut api.address, &mut mcp);
        let told = api.home.run(&["call", tool, "--json", arguments]);
        let told = String::from_utf8([told.stdout, told.stderr].concat()).expect("UTF-8");
        assert!(told.contains(wanted), "the command line, {arguments}: {told}");
        for (door, answer) in
            [("mcp", over_stdio), ("mcp over http", over_mcp), ("http api", over_api)]
        {
            assert!(member(&answer, name).contains(wanted), "{door}, {arguments}: {answer}");
        }
    }
}
