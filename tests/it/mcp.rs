//! MCP over standard input and output.

use std::io::Write as _;

use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

use crate::{
    home::{Home, show},
    wire::Wire,
};

/// What a request of 2026-07-28 carries instead of a handshake.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[test]
fn a_client_of_2025_attaches_lists_and_calls_and_hears_nothing_but_the_protocol() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    let info = wire.initialize();
    assert_eq!(info["protocolVersion"], "2025-11-25");
    assert_eq!(info["serverInfo"]["name"], "hivekeep");
    assert_eq!(info["capabilities"]["tools"]["listChanged"], true);
    assert!(info["instructions"].as_str().expect("instructions").contains("workspace_create"));

    let listed = wire.ask(1, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("tools").clone();
    let mut whole = home.json(&["tools", "--json"]);
    // The command line is an operator's.
    let operators = [
        "source_list",
        "aegis.agent.create",
        "aegis.agent.update",
        "aegis.agent.delete",
        "aegis.agent.generate",
        "aegis.task.remove",
        "aegis.workflow.create",
        "aegis.workflow.update",
        "aegis.workflow.delete",
        "aegis.workflow.promote",
        "aegis.workflow.demote",
        "aegis.workflow.remove",
    ];
    let theirs = |tool: &Value| operators.iter().any(|name| tool["name"] == *name);
    whole.as_array_mut().expect("a list").retain(|tool| !theirs(tool));
    for tool in whole.as_array_mut().expect("a list") {
        let output = tool.as_object_mut().expect("a tool").remove("outputSchema");
        assert_eq!(output.expect("an output schema")["type"], "object");
    }
    assert_eq!(Value::from(tools.clone()), whole);
    let exec = tools.iter().find(|tool| tool["name"] == "exec").expect("exec");
    assert_eq!(exec["inputSchema"]["type"], "object");
    assert!(exec["title"].is_string() && exec["annotations"]["readOnlyHint"] == false);

    let called = wire.call(2, "workspace_list", json!({}));
    let result = &called["result"];
    assert_eq!(result["isError"], false, "{called}");
    let text = result["content"][0]["text"].as_str().expect("text");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), result["structuredContent"]);

    let (status, rest) = wire.finish();
    assert!(status.success() && rest.is_empty(), "{status}: {rest:?}");
}

/// The error of a tool result: its second text.
fn error_of(answer: &Value) -> Value {
    let text = answer["result"]["content"][1]["text"].as_str().expect("the error as JSON");
    let whole: Value = serde_json::from_str(text).expect("JSON");
    whole["error"].clone()
}

#[test]
fn errors_go_where_their_readers_are() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    let unknown = wire.call(1, "exce", json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(unknown["error"]["data"]["error"]["code"], "unknown_tool");

    let invalid = wire.call(2, "exec", json!({"workspace_id": "x", "comand": "true"}));
    let error = error_of(&invalid);
    assert_eq!(invalid["result"]["isError"], true, "{invalid}");
    assert_eq!((&error["code"], &error["layer"]), (&json!("invalid_input"), &json!("schema")));

    let missing = wire.call(3, "exec", json!({"workspace_id": "nobody", "command": "true"}));
    let error = error_of(&missing);
    assert_eq!(error["code"], "workspace_not_found", "{missing}");
    assert!(error["next_step"].as_str().expect("a step").contains("workspace_list"));

    let nonsense = wire.ask(4, "tools/list", json!({"cursor": "made up"}));
    assert_eq!(nonsense["error"]["code"], -32602, "{nonsense}");
    let unknown = wire.ask(5, "no/such/method", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
}

#[test]
fn a_request_that_makes_no_sense_is_told_why() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    let nobody = wire.ask(7, "initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!(nobody["error"]["code"], -32602, "{nobody}");
    wire.initialize();
    for (id, method, params, why) in [
        (
            1,
            "tools/call",
            json!({ "name": "exec", "arguments": "{}" }),
            "`arguments`: invalid type",
        ),
        (2, "tools/call", json!({ "arguments": {} }), "missing field `name`"),
        (3, "tools/call", json!(null), "`params` are missing"),
        (4, "tools/call", json!([]), "`params` should be an object"),
        (5, "prompts/get", json!({ "arguments": {} }), "missing field `name`"),
        (6, "resources/read", json!({ "uri": 1 }), "`uri`: invalid type"),
    ] {
        let refused = wire.ask(id, method, params);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let told = refused["error"]["message"].as_str().expect("a text");
        assert!(told.contains(why), "{told}");
    }
    let deep = format!(r#","params":{{"a":{}1{}}}}}"#, "[".repeat(500), "]".repeat(500));
    for (line, id) in [
        ("nonsense".to_owned(), json!(null)),
        (r#"{"jsonrpc":"2.0","id":8,"method":"ping""#.to_owned(), json!(null)),
        (format!(r#"{{"jsonrpc":"2.0","id":8,"method":"ping"{deep}"#), json!(8)),
    ] {
        writeln!(wire.stream, "{line}").expect("it reads");
        let refused = wire.receive();
        assert_eq!(refused["error"]["code"], -32700, "{line}: {refused}");
        assert_eq!(refused["id"], id, "{line}: {refused}");
    }
    let halves = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"lang_detect","arguments":{"path":"a\ud83d.rs"}}}"#;
    writeln!(wire.stream, "{halves}").expect("it reads");
    let told = wire.receive();
    assert_eq!(told["result"]["structuredContent"]["path"], "a\u{fffd}.rs", "{told}");
    assert_eq!(wire.ask(10, "ping", json!({}))["result"], json!({}), "it goes on");
}

#[test]
fn a_client_of_2026_needs_no_handshake() {
    let home = Home::new();
    let mut wire = Wire::start(&home, &[]);
    let discovered = wire.ask(1, "server/discover", json!({"_meta": meta()}));
    let versions = discovered["result"]["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    let listed = wire.ask(2, "tools/list", json!({"_meta": meta()}));
    assert!(!listed["result"]["tools"].as_array().expect("tools").is_empty(), "{listed}");
    let called = wire.ask(
        3,
        "tools/call",
        json!({"name": "workspace_list", "arguments": {}, "_meta": meta()}),
    );
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    assert_eq!(called["result"]["isError"], false, "{called}");
}

#[test]
fn a_toolset_is_all_that_is_shown_and_called() {
    let home = Home::new();
    let _daemon = home.daemon();
    let all = home.json(&["tools", "--json"]);
    let some = home.json(&["tools", "--json", "--family", "execution"]);
    assert!(some.as_array().expect("tools").len() < all.as_array().expect("tools").len());
    let args = ["--no-spawn", "--output-schemas", "--toolset", "execution"];
    let mut wire = Wire::start(&home, &args);
    wire.initialize();
    assert_eq!(wire.ask(1, "tools/list", json!({}))["result"]["tools"], some);
    let refused = wire.call(2, "workspace_list", json!({}));
    assert_eq!(error_of(&refused)["layer"], "policy", "{refused}");

    let output = home.run(&["mcp", "--no-spawn", "--toolset", "cooking"]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", show(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("unknown_toolset") && text.contains("cooking"), "{text}");
}

#[test]
fn without_a_daemon_and_without_leave_to_start_one_it_says_so() {
    let home = Home::new();
    let output = home.run(&["mcp", "--no-spawn"]);
    assert_eq!(output.status.code(), Some(5), "{}", show(&output));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("hivekeep daemon"));
}

#[test]
fn two_clients_at_once_start_one_daemon() {
    let home = Home::new();
    let mut wires: Vec<_> = (0..4).map(|_| Wire::start(&home, &[])).collect();
    for wire in &mut wires {
        wire.initialize();
    }
    let sessions = home.json(&["sessions", "--json"]);
    let attached =
        sessions.as_array().expect("rows").iter().filter(|row| row["state"] == "attached");
    assert_eq!(attached.count(), 4, "all in one daemon: {sessions}");
}

#[test]
fn answers_on_their_way_are_written_after_the_end_of_the_input() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    for id in 1..=20 {
        let params = json!({"name": "workspace_list", "arguments": {}});
        wire.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    let (status, rest) = wire.finish();
    assert!(status.success());
    assert_eq!(rest.len(), 20, "{rest:?}");
}

#[test]
fn a_message_too_long_is_refused_and_the_next_one_served() {
    let home = Home::new().with("HIVEKEEP_DAEMON__MAX_MESSAGE_MB", "1");
    let mut wire = Wire::start(&home, &[]);
    wire.initialize();
    wire.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y".repeat(1 << 20)}}),
    );
    let refused = wire.receive();
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(wire.ask(2, "ping", json!({}))["result"], json!({}));
}

#[test]
fn a_client_of_the_official_library_gets_along() {
    let home = Home::new();
    let client = Client::spawn("library", home.command(&["mcp"])).expect("it attaches");
    let tools = client.tools().expect("lists");
    assert!(tools.iter().any(|tool| tool.name == "workspace_create"));
    assert_eq!(client.call("workspace_list", json!({})).expect("calls")["count"], 0);
    client.leave().expect("its server ends well");
}
