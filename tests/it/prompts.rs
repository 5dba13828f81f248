//! Prompts, and completions of what a person types.

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

const ALL: [&str; 5] =
    ["run_swarm", "review_merge", "prepare_workspace", "look_into_job", "lead_team"];

fn names(listed: &Value) -> Vec<&str> {
    let prompts = listed["result"]["prompts"].as_array().unwrap_or_else(|| panic!("{listed}"));
    prompts.iter().map(|prompt| prompt["name"].as_str().expect("a name")).collect()
}

#[test]
fn prompts_are_listed_to_whoever_is_shown_their_tools_and_filled_in() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    let info = wire.initialize();
    assert_eq!(info["capabilities"]["prompts"], json!({}));
    let listed = wire.ask(1, "prompts/list", json!({}));
    assert_eq!(names(&listed), ALL);
    let arguments = &listed["result"]["prompts"][4]["arguments"];
    assert_eq!((&arguments[0]["name"], &arguments[0]["required"]), (&json!("team"), &json!(true)));

    let arguments = json!({ "workspace": "dev", "job": "job_1" });
    let got =
        wire.ask(2, "prompts/get", json!({ "name": "look_into_job", "arguments": arguments }));
    let message = &got["result"]["messages"][0];
    assert_eq!(message["role"], "user");
    let text = message["content"]["text"].as_str().expect("a text");
    assert!(text.contains("`dev`") && text.contains("The job: job_1"), "{text}");
    for (id, params) in (3..).zip([
        json!({ "name": "look_into_job" }),
        json!({ "name": "no_such_prompt" }),
        json!({ "name": "look_into_job", "arguments": { "workspace": "dev", "other": "x" } }),
    ]) {
        let refused = wire.ask(id, "prompts/get", params);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }

    let mut small = Wire::start(&home, &["--no-spawn", "--toolset", "teams,git"]);
    small.initialize();
    assert_eq!(names(&small.ask(1, "prompts/list", json!({}))), ["lead_team"]);
    let hidden = json!({ "name": "run_swarm", "arguments": { "tasks": "x", "repository": "y" } });
    assert_eq!(small.ask(2, "prompts/get", hidden)["error"]["code"], -32602);
    let mut none = Wire::start(&home, &["--no-spawn", "--toolset", "web"]);
    let info = none.initialize();
    assert_eq!(info["capabilities"].get("prompts"), None);
    assert_eq!(none.ask(1, "prompts/get", json!({ "name": "run_swarm" }))["error"]["code"], -32601);
}

#[test]
fn a_note_that_a_prompt_names_comes_with_it() {
    let home = Home::new();
    let _daemon = home.daemon();
    let args = ["-a", "action=write", "-a", "path=the plan.md", "-a", "content=Be careful."];
    home.ok(&[&["call", "vault"], &args[..]].concat());
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let mut got = |id, note: Value| {
        let arguments = json!({ "tasks": "x", "repository": "y", "note": note });
        wire.ask(id, "prompts/get", json!({ "name": "run_swarm", "arguments": arguments }))
    };
    let with = got(1, json!("the plan.md"));
    let messages = with["result"]["messages"].as_array().unwrap_or_else(|| panic!("{with}"));
    let resource = &messages[0]["content"]["resource"];
    assert_eq!(
        (&resource["uri"], &resource["text"], &resource["mimeType"]),
        (&json!("vault:///the%20plan.md"), &json!("Be careful."), &json!("text/markdown")),
    );
    assert!(messages[1]["content"]["text"].as_str().is_some_and(|it| it.contains("the plan.md")));
    let without = got(2, Value::Null);
    assert_eq!(without["result"]["messages"].as_array().map(Vec::len), Some(1), "{without}");
    let missing = got(3, json!("no such note.md"));
    assert_eq!(missing["error"]["code"], -32002, "{missing}");
}

#[test]
fn what_is_typed_is_completed_by_names_of_the_session() {
    let home = Home::new();
    let _daemon = home.daemon();
    for note in ["plan.md", "ideas/plan-b.md", "other.md"] {
        let path = format!("path={note}");
        home.ok(&["call", "vault", "-a", "action=write", "-a", &path, "-a", "content=x"]);
    }
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    let info = wire.initialize();
    assert_eq!(info["capabilities"]["completions"], json!({}));
    let mut id = 0;
    let mut complete = |reference: Value, name: &str, value: &str| {
        id += 1;
        let argument = json!({ "name": name, "value": value });
        wire.ask(id, "completion/complete", json!({ "ref": reference, "argument": argument }))
    };
    let prompt = |name: &str| json!({ "type": "ref/prompt", "name": name });
    let template = |uri: &str| json!({ "type": "ref/resource", "uri": uri });
    let notes = complete(prompt("run_swarm"), "note", "plan");
    let expected =
        json!({ "values": ["plan.md", "ideas/plan-b.md"], "total": 2, "hasMore": false });
    assert_eq!(notes["result"]["completion"], expected, "{notes}");
    let notes = complete(template("vault:///{+path}"), "path", "OTHER");
    assert_eq!(notes["result"]["completion"]["values"], json!(["other.md"]), "{notes}");
    let tools = complete(template("hivekeep://tools/{name}"), "name", "artifact_");
    let all = json!(["artifact_delete", "artifact_list", "artifact_read"]);
    assert_eq!(tools["result"]["completion"]["values"], all);
    let many = complete(template("hivekeep://tools/{name}"), "name", "");
    let completion = &many["result"]["completion"];
    assert_eq!(
        (completion["values"].as_array().map(Vec::len), &completion["hasMore"]),
        (Some(100), &json!(true))
    );
    assert!(completion["total"].as_u64().is_some_and(|total| total > 100), "{completion}");
    // Nobody has any, and a text of one's own is completed by nothing.
    for (reference, name) in [
        (prompt("look_into_job"), "workspace"),
        (prompt("lead_team"), "team"),
        (prompt("run_swarm"), "tasks"),
        (template("hivekeep://workspaces/{name}/files{+path}"), "path"),
        (template("hivekeep://artifacts/{id}{?offset,length}"), "id"),
        (template("hivekeep://artifacts/{id}{?offset,length}"), "length"),
    ] {
        let none = complete(reference, name, "");
        let expected = json!({ "values": [], "total": 0, "hasMore": false });
        assert_eq!(none["result"]["completion"], expected, "{name}: {none}");
    }
    for (reference, name) in [
        (prompt("no_such_prompt"), "x"),
        (prompt("run_swarm"), "no_such_argument"),
        (template("file:///{path}"), "path"),
        (template("hivekeep://tools/{name}"), "no_such_variable"),
    ] {
        let refused = complete(reference, name, "");
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[test]
fn a_tool_is_a_resource_and_what_is_not_there_says_so() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let read = wire.ask(1, "resources/read", json!({ "uri": "hivekeep://tools/exec" }));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    let tool: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!((&tool["name"], &tool["input_schema"]["type"]), (&json!("exec"), &json!("object")));
    for (id, (uri, code)) in (2..).zip([
        ("hivekeep://tools/no_such_tool", -32002),
        ("hivekeep://tools/a/b", -32602),
        ("hivekeep://workspaces/dev/files/etc/passwd", -32002),
        ("hivekeep://workspaces/dev/logs", -32002),
        ("hivekeep://workspaces/dev/files", -32602),
        ("hivekeep://workspaces/dev/files/a%ff", -32602),
        ("hivekeep://artifacts/art_00000000000000000000000000000000", -32002),
    ]) {
        let refused = wire.ask(id, "resources/read", json!({ "uri": uri }));
        assert_eq!(refused["error"]["code"], code, "{uri}: {refused}");
    }
}

#[test]
fn a_session_sees_its_own_events_page_by_page_and_nobody_elses() {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let _daemon = home.daemon();
    let (mut wire, mut other) =
        (Wire::start(&home, &["--no-spawn"]), Wire::start(&home, &["--no-spawn"]));
    wire.initialize();
    other.initialize();
    for id in 1..=12 {
        wire.call(id, "workspace_list", json!({}));
        other.call(id, "vault", json!({ "action": "stats" }));
    }
    let mut list = |arguments: Value| wire.call(50, "event_list", arguments)["result"].clone();
    let calls = |listed: &Value| -> Vec<Value> {
        let events = listed["structuredContent"]["events"].as_array().expect("events");
        events.iter().filter(|event| event["kind"] == "call.finished").cloned().collect()
    };
    // Each listing is a call, too: newest first, and before a position nothing new comes in.
    let mut before = u64::MAX >> 1;
    let mut own = Vec::new();
    loop {
        let listed = list(json!({ "limit": 5, "before": before }));
        own.extend(calls(&listed));
        match listed["structuredContent"]["next"].as_u64() {
            Some(next) => before = next,
            None => break,
        }
    }
    let of = |tool: &str| own.iter().filter(|event| event["data"]["tool"] == tool).count();
    assert_eq!((of("workspace_list"), of("vault")), (12, 0));
    assert!(own.windows(2).all(|two| two[0]["seq"].as_u64() > two[1]["seq"].as_u64()));
    let one = own.iter().find(|event| event["data"]["tool"] == "workspace_list").expect("one");
    let found = list(json!({ "subject": one["subject"] }));
    assert_eq!(calls(&found), std::slice::from_ref(one));
    let theirs = other.call(60, "event_list", json!({ "subject": one["subject"] }));
    assert_eq!(theirs["result"]["structuredContent"]["events"], json!([]), "{theirs}");
    let unknown = list(json!({ "subject": "no-such-workspace" }));
    assert_eq!(unknown["isError"], true, "{unknown}");
    let read = wire.ask(70, "resources/read", json!({ "uri": "hivekeep://events/session" }));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    assert!(text.contains("workspace_list") && !text.contains("\"vault\""), "{text}");
    let missing = wire.ask(71, "resources/read", json!({ "uri": "hivekeep://events/no-such" }));
    assert_eq!(missing["error"]["code"], -32002, "{missing}");
}
