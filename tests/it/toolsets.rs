//! A client with room for few tools: what it is listed, what it finds, and what it loads.

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

fn names(listed: &Value) -> Vec<String> {
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// Sends a request; its answer, and that the list was told to have changed beside it.
fn changes(wire: &mut Wire, request: &Value) -> Value {
    wire.send(request);
    let (mut told, mut answer) = (false, None);
    while !told || answer.is_none() {
        let message = wire.receive();
        told |= message["method"] == "notifications/tools/list_changed";
        if message["id"] == request["id"] {
            answer = Some(message);
        }
    }
    answer.expect("it was answered")
}

fn load(id: i64, meta: Option<&Value>) -> Value {
    let mut params = json!({ "name": "toolset_load", "arguments": { "toolsets": ["Web"] } });
    if let Some(meta) = meta {
        params["_meta"] = meta.clone();
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[test]
fn a_small_listing_grows_by_what_is_loaded_and_stays_so_after_a_crash() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn", "--toolset", "auto,vault"]);
    wire.initialize();
    let few = names(&wire.ask(1, "tools/list", json!({})));
    assert!(few.len() < 30 && few.contains(&"exec".to_owned()), "{few:?}");
    assert!(few.contains(&"vault".to_owned()), "it was asked for: {few:?}");

    let query = json!({ "query": "fetch a page of the web", "limit": 3 });
    let found = wire.call(2, "aegis.tools.search", query);
    let found = &found["result"]["structuredContent"]["tools"];
    assert_eq!((&found[0]["name"], &found[0]["listed"]), (&json!("web.fetch"), &json!(false)));
    let described = wire.call(3, "tool_describe", json!({ "name": "web.fetch" }));
    let schema = &described["result"]["structuredContent"]["input_schema"];
    assert!(schema["properties"]["url"].is_object(), "{described}");
    // What is found can be called, listed or not.
    let called = wire.call(4, "aegis.runtime.list", json!({}));
    assert_eq!(called["result"]["isError"], false, "{called}");

    let loaded = changes(&mut wire, &load(5, None));
    assert_eq!(loaded["result"]["structuredContent"]["loaded"], json!(["web"]), "{loaded}");
    let more = names(&wire.ask(6, "tools/list", json!({})));
    assert!(more.contains(&"web.fetch".to_owned()) && more.len() > few.len(), "{more:?}");
    let again = wire.call(7, "toolset_load", json!({ "toolsets": ["web"] }));
    assert_eq!(again["result"]["structuredContent"]["list_changed"], false, "{again}");

    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    assert_eq!(names(&wire.ask(8, "tools/list", json!({}))), more);
}

#[test]
fn a_client_of_2026_hears_of_the_change_that_it_listens_for() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn", "--toolset", "auto"]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": meta });
    wire.send(&json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params,
    }));
    let accepted = wire.receive();
    assert_eq!(accepted["params"]["notifications"]["toolsListChanged"], true, "{accepted}");
    let loaded = changes(&mut wire, &load(2, Some(&meta)));
    assert_eq!(loaded["result"]["structuredContent"]["list_changed"], true, "{loaded}");
}

#[test]
fn a_restricted_client_finds_and_loads_nothing_beyond() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn", "--toolset", "tools,execution"]);
    wire.initialize();
    let found = wire.call(1, "aegis.tools.search", json!({ "query": "fetch a page of the web" }));
    let found = found["result"]["structuredContent"]["tools"].to_string();
    assert!(!found.contains("web.fetch"), "{found}");
    for (id, tool, args) in [
        (2, "tool_describe", json!({ "name": "web.fetch" })),
        (3, "toolset_load", json!({ "toolsets": ["web"] })),
        (4, "web.fetch", json!({ "url": "http://127.0.0.1:1/" })),
    ] {
        let refused = wire.call(id, tool, args);
        assert_eq!(refused["result"]["isError"], true, "{refused}");
    }
    let whole = wire.call(5, "aegis.tools.list", json!({}));
    let whole = &whole["result"]["structuredContent"];
    let listed = names(&wire.ask(6, "tools/list", json!({})));
    assert_eq!(whole["total"], listed.len(), "{whole}");
}

#[test]
fn output_schemas_are_listed_to_whoever_asks_for_them() {
    let home = Home::new();
    let _daemon = home.daemon();
    for (args, expected) in
        [(&["--no-spawn"][..], false), (&["--no-spawn", "--output-schemas"], true)]
    {
        let mut wire = Wire::start(&home, args);
        wire.initialize();
        let listed = wire.ask(1, "tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().expect("tools").clone();
        let has = |tool: &Value| tool["outputSchema"]["type"] == "object";
        assert!(tools.iter().all(|tool| has(tool) == expected), "{args:?}");
        let called = wire.call(2, "workspace_list", json!({}));
        assert!(called["result"]["structuredContent"].is_object(), "{called}");
    }
}
