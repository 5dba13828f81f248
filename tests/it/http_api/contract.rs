//! The published routes: fields, statuses and closed lists.

use serde_json::{Value, json};

use super::{Api, note};
use crate::home::wait_until;

/// The document that the daemon serves.
fn document(api: &Api) -> Value {
    api.raw("GET", "/api/openapi.json", &[], None).of(200)
}

fn values(document: &Value, schema: &str) -> Vec<String> {
    let schema = &document["components"]["schemas"][schema];
    let listed = match schema["enum"].as_array() {
        Some(list) => list.clone(),
        // Variants with a comment of their own stand one by one.
        None => {
            let each = schema["oneOf"].as_array().unwrap_or_else(|| panic!("no list: {schema}"));
            each.iter()
                .flat_map(|one| one["enum"].as_array().cloned().unwrap_or_default())
                .collect()
        }
    };
    listed.iter().map(|value| value.as_str().expect("text").to_owned()).collect()
}

#[test]
fn the_closed_lists_are_the_published_ones_and_ours_are_marked() {
    let api = Api::start();
    let document = document(&api);
    let of = |schema: &str| values(&document, schema);
    assert_eq!(of("ToolSourceKind"), ["builtin", "mcp", "extension", "dynamic"]);
    assert_eq!(of("ToolRisk"), ["read", "mutating", "open_world", "destructive"]);
    assert_eq!(of("ToolVisibility"), ["internal", "operator", "session", "model"]);
    assert_eq!(of("SystemPermissionMode"), ["deny-all", "approve-reads", "approve-all"]);
    assert_eq!(of("ToolBackendKind"), ["native", "guest", "mcp"]);
    assert_eq!(
        of("ToolErrorCode"),
        [
            "tool_invalid_input",
            "tool_not_found",
            "tool_denied",
            "tool_approval_required",
            "tool_conflict",
            "tool_unavailable",
            "tool_result_too_large",
            "tool_backend_failed",
            "tool_canceled",
            "tool_timed_out",
        ]
    );
    assert_eq!(
        of("ToolEventKind"),
        [
            "tool.call_started",
            "tool.call_completed",
            "tool.call_failed",
            "tool.call_denied",
            "tool.result_truncated",
        ]
    );
    let reasons = of("ReasonCode");
    assert_eq!(reasons.len(), 44, "{reasons:?}");
    for (path, method) in [
        ("/api/sessions/{id}/tools", "get"),
        ("/api/sessions/{id}/tools/search", "post"),
        ("/api/tools", "get"),
        ("/api/tools/search", "post"),
        ("/api/tools/{id}", "get"),
        ("/api/tools/{id}/approvals", "post"),
        ("/api/tools/{id}/invoke", "post"),
    ] {
        assert_eq!(document["paths"][path][method]["tags"], json!(["tools"]), "{path}");
    }
    for path in document["paths"].as_object().expect("paths").keys() {
        let item = &document["paths"][path];
        for operation in item.as_object().expect("operations").values() {
            let published = path.contains("/tools/") || path.ends_with("/tools");
            let tag = if published { "tools" } else { "hivekeep" };
            assert_eq!(operation["tags"], json!([tag]), "{path}");
        }
    }
}

/// Required members of a schema.
fn required(document: &Value, schema: &str) -> Vec<String> {
    let list = document["components"]["schemas"][schema]["required"].as_array();
    let list = list.unwrap_or_else(|| panic!("{schema} requires nothing"));
    list.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

#[test]
fn what_is_required_is_what_the_published_page_requires() {
    let api = Api::start();
    let document = document(&api);
    for (schema, members) in [
        (
            "ToolDescriptor",
            &[
                "tool_id",
                "backend",
                "description",
                "input_schema",
                "source",
                "visibility",
                "risk",
                "read_only",
                "destructive",
                "open_world",
                "requires_interaction",
                "concurrency_safe",
            ][..],
        ),
        (
            "ToolAvailability",
            &["registered", "enabled", "available", "authorized", "executable", "conflicted"],
        ),
        (
            "ToolDecision",
            &["visible_to_operator", "visible_to_session", "callable", "approval_required"],
        ),
        ("InvokeResponse", &["tool_id", "status", "result", "truncated", "duration_ms", "events"]),
        ("ToolResult", &["truncated", "bytes", "duration_ms"]),
        ("ToolEvent", &["kind", "tool_id", "read_only", "destructive", "open_world", "truncated"]),
        ("ToolErrorPayload", &["code", "message"]),
        ("ApprovalToken", &["approval_token", "expires_at", "tool_id", "input_digest"]),
        ("SearchRequest", &["query"]),
        ("InvokeRequest", &["input"]),
        ("ApprovalRequest", &["session_id"]),
    ] {
        let required = required(&document, schema);
        for member in members {
            assert!(required.contains(&(*member).to_owned()), "{schema}.{member}: {required:?}");
        }
    }
}

fn tool<'a>(list: &'a Value, id: &str) -> &'a Value {
    let tools = list["tools"].as_array().expect("tools");
    let found = tools.iter().find(|tool| tool["descriptor"]["tool_id"] == id);
    found.unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn an_operator_sees_all_tools_with_reasons_and_a_session_those_that_it_may_call() {
    let api = Api::start();
    let all = api.get(&api.operator, "/api/tools").of(200);
    let count = api.home.json(&["status", "--json"])["tools"].as_u64().expect("a count");
    let tools = all["tools"].as_array().expect("tools");
    // Two declared names that differ in a dot alone are one tool here.
    assert!(tools.len() as u64 <= count && tools.len() as u64 + 10 > count, "{}", tools.len());
    let ids: Vec<_> =
        tools.iter().map(|tool| tool["descriptor"]["tool_id"].as_str().expect("an id")).collect();
    assert!(ids.is_sorted(), "by id");

    let list = tool(&all, "workspace_list");
    assert_eq!(list["descriptor"]["backend"]["kind"], "native");
    assert_eq!(list["descriptor"]["source"], json!({ "kind": "builtin", "owner": "hivekeep" }));
    assert_eq!(list["descriptor"]["risk"], "read");
    assert_eq!(list["descriptor"]["read_only"], true);
    assert_eq!(list["descriptor"]["toolsets"], json!(["workspace_lifecycle"]));
    assert_eq!(tool(&all, "workspace_destroy")["descriptor"]["risk"], "destructive");
    assert_eq!(
        tool(&all, "aegis_tools_list")["descriptor"]["backend"]["native_name"],
        "aegis.tools.list"
    );
    for key in ["registered", "enabled", "available", "authorized", "executable"] {
        assert_eq!(list["availability"][key], true, "{key}");
    }
    assert_eq!(list["availability"]["conflicted"], false);
    for (key, value) in [
        ("registry_policy_result", "allowed"),
        ("source_policy_result", "allowed"),
        ("agent_policy_result", "unrestricted"),
        ("session_policy_result", "unrestricted"),
        ("availability_result", "allowed"),
        ("hook_result", "allowed"),
        ("system_permission_mode", "approve-all"),
    ] {
        assert_eq!(list["decision"][key], value, "{key}");
    }

    let denied = api.get(&api.session, "/api/tools").of(200);
    let hidden: Vec<_> = denied["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter(|tool| tool["decision"]["callable"] == false)
        .collect();
    assert_eq!(denied["tools"].as_array().map(Vec::len), Some(tools.len()), "denied ones included");
    for tool in &hidden {
        assert_eq!(tool["decision"]["reason_codes"], json!(["visibility_denied"]), "{tool}");
        assert_eq!(tool["decision"]["registry_policy_result"], "denied");
        assert_eq!(tool["decision"]["visible_to_operator"], true);
    }
    let session = api.open(&api.session, &json!({}));
    let own = api.get(&api.session, &format!("/api/sessions/{session}/tools")).of(200);
    let may = own["tools"].as_array().expect("tools").len();
    assert_eq!(may, tools.len() - hidden.len());
}

#[test]
fn a_tool_is_found_by_words_and_by_its_id_and_told_apart_from_none() {
    let api = Api::start();
    let search = |body: Value| api.post(&api.reader, "/api/tools/search", &body);
    let found = search(json!({ "query": "clone a repository", "limit": 3 })).of(200);
    let found = found["tools"].as_array().expect("tools");
    assert!(found.len() <= 3 && !found.is_empty());
    assert!(
        found
            .iter()
            .any(|tool| tool["descriptor"]["tool_id"].as_str().expect("an id").contains("clone")),
        "{found:?}"
    );
    let all = search(json!({ "query": "", "limit": -1 })).of(200);
    assert!(all["tools"].as_array().expect("tools").len() > 50);
    assert_eq!(search(json!({ "query": "x".repeat(501) })).code(400), "tool_invalid_input");
    assert_eq!(search(json!({ "query": 7 })).code(400), "tool_invalid_input");
    let empty = api.raw(
        "POST",
        "/api/tools/search",
        &[("Authorization", &super::bearer(&api.reader))],
        Some(""),
    );
    assert_eq!(empty.code(400), "tool_invalid_input");

    let one = api.get(&api.reader, "/api/tools/workspace_list").of(200);
    assert_eq!(one["tool"]["descriptor"]["display_title"], "List workspaces");
    let layers: Vec<_> = one["tool"]["decision"]["verdicts"]
        .as_array()
        .expect("verdicts")
        .iter()
        .map(|verdict| verdict["layer"].as_str().expect("a layer").to_owned())
        .collect();
    assert_eq!(layers.first().map(String::as_str), Some("switch"), "{layers:?}");
    let none = api.get(&api.reader, "/api/tools/workspace_lisp").of(404);
    assert_eq!(none["error"]["code"], "tool_not_found");
    assert_eq!(none["error"]["reason_codes"], json!(["tool_unknown"]));
    assert_eq!(none["error"]["details"]["code"], "unknown_tool");
    assert!(none["error"]["details"]["nearest"].to_string().contains("workspace_list"), "{none}");
    for (id, reason) in [
        ("aegis.tools.list", "id_invalid_format"),
        ("__x", "id_empty_segment"),
        (&"a".repeat(65), "id_too_long"),
        ("..%2F..%2Fetc%2Fpasswd", "id_invalid_format"),
        ("%00", "id_invalid_format"),
        ("a%0d%0aX-Y:%20z", "id_invalid_format"),
    ] {
        let refused = api.get(&api.reader, &format!("/api/tools/{id}")).of(400);
        assert_eq!(refused["error"]["reason_codes"], json!([reason]), "{id}");
    }
    let nobody =
        api.get(&api.operator, "/api/tools?session_id=ses_0192f0c1a2b37c4d8e5f60718293a4b5");
    assert!(nobody.plain(404).contains("session"));
}

#[test]
fn a_call_is_answered_with_its_result_and_its_events() {
    let api = Api::start();
    let session = api.open(&api.session, &json!({ "name": "one" }));
    let mut body = note("a.md", "one");
    body["session_id"] = json!(session);
    body["correlation_id"] = json!("trace-7");
    body["tool_call_id"] = json!("call-1");
    body["sensitive_input_fields"] = json!(["content", "nothing"]);
    let done = api.invoke(&api.session, "vault", &body).of(200);
    assert_eq!((&done["status"], &done["truncated"]), (&json!("completed"), &json!(false)));
    assert!(done["duration_ms"].as_u64().is_some_and(|ms| ms > 0), "{done}");
    let result = &done["result"];
    assert_eq!(result["content"][0]["type"], "text");
    let bytes = serde_json::to_string(&result["structured"]).expect("JSON").len();
    assert_eq!(result["bytes"], json!(bytes));
    assert_eq!(result["metadata"]["tool_call_id"], "call-1");
    let events = done["events"].as_array().expect("events");
    let kinds: Vec<_> =
        events.iter().map(|event| event["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["tool.call_started", "tool.call_completed"]);
    for event in events {
        assert_eq!(
            (&event["correlation_id"], &event["session_id"]),
            (&json!("trace-7"), &json!(session))
        );
        assert_eq!(event["decision"], "allowed");
        assert_eq!(event["redacted_input_fields"], json!(["content"]));
        assert!(event["input_digest"].as_str().expect("a digest").starts_with("sha256:"));
    }
    assert_eq!(events[1]["result_bytes"], json!(bytes));
    assert_eq!(events[0]["duration_ms"], Value::Null);
    // Another secret has the same digest: it is left out.
    body["input"]["content"] = json!("two");
    let again = api.invoke(&api.session, "vault", &body).of(200);
    assert_eq!(again["events"][0]["input_digest"], events[0]["input_digest"]);

    let bare = api.invoke(&api.operator, "workspace_list", &json!({})).of(200);
    let made = bare["events"][0]["correlation_id"].as_str().expect("made").to_owned();
    assert!(made.starts_with("call_"), "{made}");
    wait_until("it is the same call as in the journal", || {
        api.home.ok(&["events", "--json"]).contains(&made)
    });
}

#[test]
fn a_call_that_does_not_succeed_says_which_way() {
    let api = Api::start();
    let operator = &api.operator;
    let bad = api.invoke(operator, "vault", &json!({ "input": { "action": "dance" } })).of(400);
    assert_eq!(bad["error"]["code"], "tool_invalid_input");
    assert_eq!(bad["error"]["reason_codes"], json!(["schema_invalid"]));
    let events = &bad["error"]["details"]["events"];
    assert_eq!(events[0]["kind"], "tool.call_started", "{bad}");
    assert_eq!(events[1]["kind"], "tool.call_failed");
    assert_eq!(events[1]["error_code"], "tool_invalid_input");
    for input in [json!(null), json!([]), json!("x")] {
        let refused = api.invoke(operator, "workspace_list", &json!({ "input": input }));
        assert_eq!(refused.code(400), "tool_invalid_input");
    }
    assert_eq!(api.invoke(operator, "no_such_tool", &json!({})).code(404), "tool_not_found");
    let missing = json!({ "input": { "action": "read", "path": "none.md" } });
    let failed = api.invoke(operator, "vault", &missing).of(502);
    assert_eq!(failed["error"]["code"], "tool_backend_failed", "{failed}");
    assert!(failed["error"]["message"].as_str().expect("text").contains("none.md"), "{failed}");
    let unknown = json!({ "session_id": "ses_0192f0c1a2b37c4d8e5f60718293a4b5" });
    assert!(api.invoke(operator, "workspace_list", &unknown).plain(404).contains("session"));
    let agent = json!({ "agent_name": "ada" });
    assert_eq!(api.invoke(operator, "workspace_list", &agent).code(400), "tool_invalid_input");
    let hidden = api.get(&api.session, "/api/tools").of(200);
    let hidden = hidden["tools"].as_array().expect("tools").iter();
    let hidden = hidden.filter(|tool| tool["decision"]["callable"] == false);
    for tool in hidden.take(1) {
        let id = tool["descriptor"]["tool_id"].as_str().expect("an id");
        let denied = api.invoke(&api.session, id, &json!({})).of(403);
        assert_eq!(denied["error"]["code"], "tool_denied");
        assert_eq!(denied["error"]["layer"], "registry_policy", "{denied}");
        let events = denied["error"]["details"]["events"].as_array().expect("events");
        assert_eq!(events.len(), 1, "it did not begin");
        assert_eq!(events[0]["kind"], "tool.call_denied");
        assert_eq!(events[0]["decision"], "denied");
    }
}

#[test]
fn toolsets_of_the_configuration_are_expanded_and_say_what_is_wrong_with_them() {
    let toolsets = json!({
        "notes": { "tools": ["vault"], "toolsets": ["tools"] },
        "broken": { "tools": ["nothing_*"], "toolsets": ["nobody", "broken"] },
    });
    let api = Api::with(&[("HIVEKEEP_POLICY__TOOLSETS", &toolsets.to_string())]);
    let of =
        |id: &str| api.get(&api.reader, &format!("/api/toolsets/{id}")).of(200)["toolset"].clone();
    let notes = of("notes");
    assert_eq!((&notes["status"], &notes["tools"]), (&json!("expanded"), &json!(["vault"])));
    let expanded = notes["expanded_tools"].as_array().expect("tools");
    assert!(
        expanded.contains(&json!("vault")) && expanded.contains(&json!("tool_describe")),
        "{notes}"
    );
    let broken = of("broken");
    assert_eq!(broken["status"], "degraded");
    assert_eq!(broken["reason_codes"], json!(["tool_unknown", "toolset_unknown", "toolset_cycle"]));
}

#[test]
fn toolsets_actors_health_and_pages_are_there() {
    let api = Api::start();
    let sets = api.get(&api.reader, "/api/toolsets").of(200);
    let sets = sets["toolsets"].as_array().expect("toolsets");
    let files = sets.iter().find(|set| set["id"] == "file_operations").expect("a family");
    assert_eq!((&files["status"], &files["name"]), (&json!("expanded"), &json!("file operations")));
    let one = api.get(&api.reader, "/api/toolsets/file_operations").of(200);
    assert_eq!(&one["toolset"], files);
    assert!(api.get(&api.reader, "/api/toolsets/nothing").plain(404).contains("toolset"));
    assert_eq!(api.get(&api.reader, "/api/toolsets/No.Id").code(400), "tool_invalid_input");

    let actors = api.get(&api.reader, "/api/actors").of(200);
    let paths = actors["actors"].to_string();
    assert!(paths.contains("root/registry") && paths.contains("root/sessions"), "{paths}");
    assert!(api.get(&api.session, "/api/actors").plain(403).contains("scope"));

    assert_eq!(api.raw("GET", "/api/health", &[], None).of(200), json!({ "status": "ok" }));
    let page = api.raw("GET", "/api/docs", &[], None);
    assert_eq!(page.status, 200);
    let policy = &page.headers["content-security-policy"];
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(!page.text.contains("http://") && !page.text.contains("https://"), "it works offline");
    for file in ["/api/docs.js", "/api/docs.css"] {
        let answer = api.raw("GET", file, &[], None);
        assert_eq!(answer.status, 200, "{file}");
        assert!(!answer.text.contains("://"), "{file} loads nothing from elsewhere");
    }
    assert_eq!(document(&api)["openapi"], "3.1.0");
    assert!(api.get(&api.reader, "/api/nothing").plain(404).contains("openapi.json"));
    let other =
        api.raw("DELETE", "/api/tools", &[("Authorization", &super::bearer(&api.reader))], None);
    assert_eq!(other.headers["allow"], "GET,HEAD", "{other:?}");
    other.plain(405);
}
