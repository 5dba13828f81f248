//! Sessions without a connection: opened, left, resumed, stopped, narrowed.

use serde_json::{Value, json};

use super::{Api, note};
use crate::home::wait_until;

fn state(api: &Api, id: &str) -> Value {
    api.get(&api.operator, &format!("/api/sessions/{id}")).of(200)["session"]["state"].clone()
}

#[test]
fn a_session_is_left_resumed_and_ends_by_the_grace_time() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__API__SESSION_IDLE_SECS", "1"),
        ("HIVEKEEP_REGISTRY__SESSIONS__GRACE_SECS", "1"),
    ]);
    let id = api.open(&api.session, &json!({ "name": "\u{1b}[2Jnight\u{202e}ly" }));
    let shown = api.get(&api.session, &format!("/api/sessions/{id}")).of(200);
    assert_eq!(shown["session"]["name"], "[2Jnightly");
    assert_eq!(
        (&shown["session"]["door"], &shown["session"]["state"]),
        (&json!("http_api"), &json!("attached"))
    );
    wait_until("it is left and over", || state(&api, &id) == "ended");
    let over = api.post(&api.session, &format!("/api/sessions/{id}/resume"), &json!({}));
    assert!(over.plain(409).contains("over"));
    let call = json!({ "session_id": id });
    api.invoke(&api.session, "workspace_list", &call).plain(404);
}

#[test]
fn a_session_goes_on_after_the_daemon_and_keeps_what_it_has() {
    let mut api = Api::start();
    let id = api.open(&api.session, &json!({}));
    let mut body = note("a.md", "kept");
    body["session_id"] = json!(id);
    api.invoke(&api.session, "vault", &body).of(200);
    api.home.ok(&["stop"]);
    api.daemon.as_mut().expect("it ran").wait();
    api.daemon = Some(api.home.daemon());
    api.find();
    assert_eq!(state(&api, &id), "detached");
    api.post(&api.session, &format!("/api/sessions/{id}/resume"), &json!({})).of(200);
    assert_eq!(state(&api, &id), "attached");
    let stopped = api.post(&api.session, &format!("/api/sessions/{id}/stop"), &json!({})).of(200);
    assert_eq!(stopped["session"]["end_reason"], "told");
    api.post(&api.session, &format!("/api/sessions/{id}/stop"), &json!({})).of(200);
    let listed = api.get(&api.session, "/api/sessions").of(200);
    assert_eq!(listed["sessions"][0]["id"], json!(id));
}

#[test]
fn a_child_has_no_tool_that_its_parent_has_not() {
    let api = Api::start();
    let tools = |id: &str| {
        let listed = api.get(&api.session, &format!("/api/sessions/{id}/tools")).of(200);
        let listed = listed["tools"].as_array().expect("tools").clone();
        listed.iter().map(|tool| tool["descriptor"]["tool_id"].clone()).collect::<Vec<_>>()
    };
    let parent = api.open(&api.session, &json!({ "tools": ["vault", "aegis_tools_list"] }));
    assert_eq!(tools(&parent), [json!("aegis_tools_list"), json!("vault")]);
    let child = |list: Value| json!({ "parent_session_id": parent, "tools": list });
    let small = api.open(&api.session, &child(json!(["vault"])));
    assert_eq!(tools(&small), [json!("vault")]);
    let nothing = api.open(&api.session, &json!({ "parent_session_id": parent }));
    assert_eq!(tools(&nothing), [] as [Value; 0]);
    let wide = api.post(&api.session, "/api/sessions", &child(json!(["exec"]))).of(403);
    assert_eq!(wide["error"]["reason_codes"], json!(["session_denied"]));
    let grandchild = json!({ "parent_session_id": small, "tools": ["aegis_tools_list"] });
    assert_eq!(api.post(&api.session, "/api/sessions", &grandchild).code(403), "tool_denied");
    assert_eq!(
        api.post(&api.session, "/api/sessions", &child(json!(["nope"]))).code(404),
        "tool_not_found"
    );
    let denied =
        api.invoke(&api.session, "workspace_list", &json!({ "session_id": small })).of(403);
    assert_eq!(denied["error"]["layer"], "session_lineage", "{denied}");
    let whole = api.get(&api.session, &format!("/api/tools/exec?session_id={small}")).of(200);
    let decision = &whole["tool"]["decision"];
    assert_eq!(decision["session_policy_result"], "denied");
    assert_eq!(decision["registry_policy_result"], "allowed");
    let listed = api.get(&api.session, &format!("/api/tools/vault?session_id={small}")).of(200);
    assert_eq!(listed["tool"]["decision"]["session_policy_result"], "allowed");
    let shown = api.get(&api.session, &format!("/api/sessions/{small}")).of(200);
    assert_eq!(shown["session"]["parent_session_id"], json!(parent));
    assert_eq!(shown["session"]["tools"], json!(["vault"]));
    api.post(&api.session, &format!("/api/sessions/{parent}/stop"), &json!({})).of(200);
    api.post(&api.session, "/api/sessions", &child(json!(["vault"]))).plain(409);
}

#[test]
fn an_operator_opens_a_session_for_an_agent_and_for_another_credential() {
    let api = Api::with(&[("HIVEKEEP_POLICY__AGENTS", r#"{"ada": {"deny_tools": ["vault"]}}"#)]);
    let body = json!({ "agent_name": "ada", "credential": "worker" });
    let id = api.open(&api.operator, &body);
    let shown = api.get(&api.session, &format!("/api/sessions/{id}")).of(200);
    assert_eq!(shown["session"]["agent_name"], "ada");
    let mut call = note("a.md", "x");
    call["session_id"] = json!(id);
    let denied = api.invoke(&api.session, "vault", &call).of(403);
    assert_eq!(denied["error"]["details"]["policy"], "agent");
    let seen = api.get(&api.session, &format!("/api/tools/vault?session_id={id}")).of(200);
    assert_eq!(seen["tool"]["decision"]["agent_policy_result"], "denied");
    let without = api.get(&api.session, "/api/tools/vault?agent_name=ada").of(200);
    assert_eq!(without["tool"]["decision"]["agent_policy_result"], "denied", "for an agent alone");
    let other = format!("/api/tools/vault?session_id={id}&agent_name=bob");
    assert_eq!(api.get(&api.session, &other).code(400), "tool_invalid_input");
    let nobody = json!({ "credential": "nobody" });
    api.post(&api.operator, "/api/sessions", &nobody).plain(404);
    let context = json!({ "context": "none" });
    assert_eq!(api.post(&api.operator, "/api/sessions", &context).code(400), "tool_invalid_input");
}
