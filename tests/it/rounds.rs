//! Questions to the person at a client of 2026-07-28: the answer to a call is a form, and the call comes
//! again with what the person said.

use serde_json::{Value, json};

use crate::{
    home::{Home, wait_until},
    http::Server,
    wire::Wire,
};

const SAVE: &str = "aegis.script.save";

fn elicits() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// A home whose operator lets the person at a client approve.
fn approving(home: &Home) {
    let config = "[policy]\npermission_mode = \"approve-reads\"\n\
                  [policy.approvals]\nelicitation = true\n";
    std::fs::write(home.path("config.toml"), config).expect("writes");
}

fn script(name: &str) -> Value {
    json!({ "name": SAVE, "arguments": { "name": name, "code": "console.log(1)" } })
}

fn question() -> Value {
    let arguments = json!({ "question": "Which way?", "options": ["left", "right"],
        "allow_free_text": true, "timeout_secs": 300 });
    json!({ "name": "ask_user", "arguments": arguments })
}

/// The call again, with what the person said to its form.
fn answered(call: &Value, form: &Value, said: Value) -> Value {
    let mut call = call.clone();
    assert_eq!(form["resultType"], "input_required", "{form}");
    call["requestState"] = form["requestState"].clone();
    let requests = form["inputRequests"].as_object().expect("forms");
    let responses = requests.keys().map(|key| (key.clone(), said.clone()));
    call["inputResponses"] = Value::Object(responses.collect());
    call
}

fn accepted(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// Calls a tool as a client that can show forms.
fn call(wire: &mut Wire, id: i64, params: Value) -> Value {
    wire.ask_stateless(id, "tools/call", params, elicits())["result"].clone()
}

#[test]
fn an_approval_is_asked_by_a_form_and_is_good_for_its_session_and_its_call() {
    let home = Home::new();
    approving(&home);
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let form = call(&mut wire, 1, script("one"));
    let request = form["inputRequests"].as_object().expect("forms").values().next().expect("one");
    assert_eq!(request["method"], "elicitation/create", "{form}");
    let schema = &request["params"]["requestedSchema"]["properties"]["choice"];
    let once = accepted(json!({ "choice": schema["enum"][0] }));

    let (mut stranger, _) = Wire::greet(&home);
    let mut forged = answered(&script("one"), &form, once.clone());
    for (wire, id) in [(&mut stranger, 1), (&mut wire, 2)] {
        let refused = wire.ask_stateless(id, "tools/call", forged.clone(), elicits());
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(refused["error"]["data"]["error"]["code"], "approval_not_found");
        forged["requestState"] = json!("apr_00000000000000000000000000000000");
    }

    let other = call(&mut wire, 3, answered(&script("two"), &form, once.clone()));
    assert_eq!(other["resultType"], "input_required", "another call needs its own: {other}");
    let made = call(&mut wire, 4, script("one"));
    assert_eq!(made["isError"], false, "the person has approved it: {made}");
    let replayed = call(&mut wire, 5, answered(&script("one"), &form, once));
    assert_eq!(replayed["resultType"], "input_required", "it was used up: {replayed}");

    let deny = accepted(json!({ "choice": schema["enum"][2] }));
    let denied = call(&mut wire, 6, answered(&script("two"), &other, deny));
    assert!(denied.to_string().contains("approval_denied"), "{denied}");
    let listed = home.json(&["approvals", "--all", "--json"]);
    assert!(listed.to_string().contains("elicitation"), "{listed}");
}

#[test]
fn without_leave_of_the_operator_a_client_approves_nothing() {
    let home = Home::new();
    let config = "[policy]\npermission_mode = \"approve-reads\"\n";
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let params = crate::wire::stateless(script("one"), elicits());
    wire.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let mut asked = Value::Null;
    wait_until("a person is asked", || {
        asked = home.json(&["approvals", "--json"])[0].clone();
        !asked.is_null()
    });
    // It knows what waits, from its progress, and was given no form.
    for choice in ["Allow once", "Deny"] {
        let form = json!({ "resultType": "input_required", "requestState": asked["id"],
            "inputRequests": { "answer": {} } });
        let forged = answered(&script("one"), &form, accepted(json!({ "choice": choice })));
        let refused = wire.ask_stateless(2, "tools/call", forged, elicits());
        assert_eq!(refused["error"]["data"]["error"]["code"], "approval_not_found", "{refused}");
    }
    let waits = home.json(&["approvals", "--json"]);
    assert_eq!((&waits[0]["id"], &waits[0]["state"]), (&asked["id"], &json!("pending")), "{waits}");
    home.ok(&["approvals", "deny", asked["id"].as_str().expect("an id")]);
    assert!(wire.answer(1).to_string().contains("approval_denied"));
}

#[test]
fn a_question_is_a_form_and_its_reply_is_given_once() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let form = call(&mut wire, 1, question());
    let request = form["inputRequests"].as_object().expect("forms").values().next().expect("one");
    assert_eq!(request["params"]["message"], "Which way?", "{form}");
    let wrong = accepted(json!({ "choice": "up" }));
    let again = call(&mut wire, 2, answered(&question(), &form, wrong));
    assert_eq!(again["requestState"], form["requestState"], "it waits still: {again}");
    let right = accepted(json!({ "choice": "right" }));
    let replied = call(&mut wire, 3, answered(&question(), &form, right));
    assert_eq!(replied["structuredContent"]["selected"], json!(["right"]), "{replied}");
    let next = call(&mut wire, 4, question());
    assert_ne!(next["requestState"], form["requestState"], "a new question: {next}");

    // Somebody at the command line is quicker than the person at the client.
    let id = next["requestState"].as_str().expect("an id");
    home.ok(&["approvals", "answer", id, "--text", "straight on"]);
    let left = accepted(json!({ "choice": "left" }));
    let replied = call(&mut wire, 5, answered(&question(), &next, left));
    assert_eq!(replied["structuredContent"]["text"], "straight on", "{replied}");

    // Whoever closes the form is not shown it again: the call waits for the other ways.
    let last = call(&mut wire, 6, question());
    let mut closed = answered(&question(), &last, json!({ "action": "cancel" }));
    closed["arguments"]["timeout_secs"] = json!(300);
    let id = last["requestState"].as_str().expect("an id").to_owned();
    let params = crate::wire::stateless(closed, elicits());
    wire.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }));
    home.ok(&["approvals", "answer", &id, "--select", "1"]);
    let replied = wire.answer(7);
    assert_eq!(replied["result"]["structuredContent"]["selected"], json!(["left"]), "{replied}");
}

#[test]
fn a_wider_mode_is_asked_by_a_form_of_its_own() {
    let home = Home::new();
    approving(&home);
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let once = || accepted(json!({ "choice": "Allow once" }));
    let begin = json!({ "name": "zaru.init", "arguments": {} });
    let form = call(&mut wire, 1, begin.clone());
    let begun = call(&mut wire, 2, answered(&begin, &form, once()));
    assert_eq!(begun["structuredContent"]["mode"], "chat", "{begun}");
    let switch = json!({ "target_mode": "operator", "reason": "to look" });
    let switch = json!({ "name": "zaru.mode", "arguments": switch });
    // The call needs an approval, and so does what it asks for.
    let first = call(&mut wire, 3, switch.clone());
    let second = call(&mut wire, 4, answered(&switch, &first, once()));
    assert_ne!(second["requestState"], first["requestState"], "{second}");
    assert!(second.to_string().contains("to look"), "{second}");
    let switched = call(&mut wire, 5, answered(&switch, &second, once()));
    assert_eq!(switched["structuredContent"]["target_mode"], "operator", "{switched}");
    // Both are used up.
    let back = json!({ "target_mode": "chat", "reason": "done" });
    let back = json!({ "name": "zaru.mode", "arguments": back });
    let form = call(&mut wire, 6, back.clone());
    let switched = call(&mut wire, 7, answered(&back, &form, once()));
    assert_eq!(switched["structuredContent"]["target_mode"], "chat", "{switched}");
    assert_eq!(call(&mut wire, 8, switch)["resultType"], "input_required");
}

#[test]
fn over_http_a_question_outlives_the_daemon() {
    let server = Server::with(256, &[]);
    let (owner, params) = (server.bearer(), question());
    let takes_both = json!({
        "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    let form = server.ask_stateless(&owner, "tools/call", params.clone(), takes_both.clone());
    let form = form["result"].clone();
    assert_eq!(form["resultType"], "input_required", "asked before there is a task: {form}");
    let other = server.home.ok(&["credential", "create", "other", "--scope", "session"]);
    let other = format!("Bearer {}", other.trim());
    let reply = answered(&params, &form, accepted(json!({ "text": "up" })));
    let stolen = server.ask_stateless(&other, "tools/call", reply.clone(), elicits());
    assert!(stolen.to_string().contains("approval_not_found"), "{stolen}");
    let server = server.killed();
    let replied = server.ask_stateless(&owner, "tools/call", reply, takes_both);
    assert_eq!(replied["result"]["structuredContent"]["text"], "up", "{replied}");
}

fn deployment() -> Value {
    let fields = json!([
        { "name": "region", "kind": "choice", "default": "eu",
          "options": [{ "value": "eu", "title": "Europe" }, { "value": "us", "title": "America" }] },
        { "name": "replicas", "kind": "integer", "default": 2 },
        { "name": "note", "optional": true },
    ]);
    let arguments = json!({ "question": "How to deploy?", "fields": fields, "timeout_secs": 300 });
    json!({ "name": "ask_user", "arguments": arguments })
}

#[test]
fn fields_are_a_form_with_its_defaults_and_titles_and_their_values_are_checked() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let form = call(&mut wire, 1, deployment());
    let schema = &form["inputRequests"]["answer"]["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["region", "replicas"]), "{form}");
    let region = &schema["properties"]["region"];
    assert_eq!(
        (&region["default"], &region["oneOf"][1]["title"]),
        (&json!("eu"), &json!("America"))
    );
    for (id, wrong) in (2..).zip([
        json!({ "region": "eu" }),
        json!({ "region": "moon", "replicas": 1 }),
        json!({ "region": "eu", "replicas": "many" }),
        json!({ "region": "eu", "replicas": 1, "other": true }),
    ]) {
        let again = call(&mut wire, id, answered(&deployment(), &form, accepted(wrong)));
        assert_eq!(again["requestState"], form["requestState"], "it waits still: {again}");
    }
    let right = json!({ "region": "us", "replicas": 3 });
    let replied = call(&mut wire, 10, answered(&deployment(), &form, accepted(right.clone())));
    assert_eq!(replied["structuredContent"]["values"], right, "{replied}");

    // At the command line the fields are shown with the way to fill them in.
    let next = call(&mut wire, 11, deployment());
    let id = next["requestState"].as_str().expect("an id");
    let shown = home.ok(&["approvals"]);
    assert!(shown.contains("--value replicas=<integer>  default 2"), "{shown}");
    assert!(!home.run(&["approvals", "answer", id, "--value", "region=eu"]).status.success());
    home.ok(&["approvals", "answer", id, "--value", "region=eu", "--value", "replicas=1"]);
    let replied = call(&mut wire, 12, deployment());
    assert_eq!(replied["structuredContent"]["values"]["replicas"], 1, "{replied}");

    for (id, wrong) in (13..).zip([
        json!([{ "name": "a", "kind": "choice" }]),
        json!([{ "name": "a" }, { "name": "a" }]),
        json!([{ "name": "a", "kind": "integer", "default": "x" }]),
    ]) {
        let arguments = json!({ "question": "How?", "fields": wrong });
        let refused = call(&mut wire, id, json!({ "name": "ask_user", "arguments": arguments }));
        assert!(refused.to_string().contains("invalid_input"), "{refused}");
    }
}

#[test]
fn a_call_that_asks_after_it_was_approved_is_approved_once() {
    let home = Home::new();
    approving(&home);
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let approval = call(&mut wire, 1, question());
    let once = accepted(json!({ "choice": "Allow once" }));
    let form = call(&mut wire, 2, answered(&question(), &approval, once));
    assert_ne!(form["requestState"], approval["requestState"], "{form}");
    assert!(form.to_string().contains("Which way?"), "{form}");
    let left = accepted(json!({ "choice": "left" }));
    let replied = call(&mut wire, 3, answered(&question(), &form, left));
    assert_eq!(replied["structuredContent"]["selected"], json!(["left"]), "{replied}");
    let next = call(&mut wire, 4, question());
    assert!(!next.to_string().contains("Which way?\""), "it is used up: {next}");
    let states = home.json(&["approvals", "--all", "--json"]);
    let approved = |one: &&Value| one["state"] == "approved";
    assert_eq!(states.as_array().expect("a list").iter().filter(approved).count(), 0, "{states}");
}

#[test]
fn a_prompt_asks_for_what_it_needs() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (mut wire, _) = Wire::greet(&home);
    let params = json!({ "name": "prepare_workspace", "arguments": { "name": "dev" } });
    let form = wire.ask_stateless(1, "prompts/get", params.clone(), elicits())["result"].clone();
    let schema = &form["inputRequests"]["answer"]["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["repository"]), "{form}");
    let mut filled = params.clone();
    let said = accepted(json!({ "repository": "https://example.org/a.git" }));
    filled["inputResponses"] = json!({ "answer": said });
    let got = wire.ask_stateless(2, "prompts/get", filled.clone(), elicits())["result"].clone();
    let text = got["messages"][0]["content"]["text"].as_str().unwrap_or_else(|| panic!("{got}"));
    assert!(text.contains("https://example.org/a.git") && text.contains("dev"), "{text}");
    filled["inputResponses"] = json!({ "answer": { "action": "decline" } });
    let refused = wire.ask_stateless(3, "prompts/get", filled, elicits());
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // A client that shows no forms hears what is missing.
    let refused = wire.ask_stateless(4, "prompts/get", params, json!({}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}
