//! Rules and remembered approvals over HTTP, beside the command line's.

use serde_json::{Value, json};

use super::{Answer, Api, bearer, note};

fn delete(api: &Api, token: &str, path: &str) -> Answer {
    api.raw("DELETE", path, &[("Authorization", &bearer(token))], None)
}

fn rule(name: &str, effect: &str, tool: &str, when: Option<&str>) -> Value {
    json!({ "name": name, "effect": effect, "tools": [tool], "when": when, "why": "tests say so" })
}

fn names(api: &Api) -> Vec<String> {
    let listed = api.get(&api.operator, "/api/policy/rules").of(200);
    let rules = listed["rules"].as_array().expect("rules");
    rules.iter().map(|rule| rule["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_rule_holds_when_it_was_added_after_a_kill_and_no_longer_when_it_was_removed() {
    let configured = json!([{ "name": "fixed", "effect": "deny", "tools": ["zaru.mode"] }]);
    let mut api = Api::with(&[("HIVEKEEP_POLICY__RULES", &configured.to_string())]);
    let add = |api: &Api, rule: &Value| api.post(&api.operator, "/api/policy/rules", rule);
    let when = "args.path == \"private.md\"";
    let added = add(&api, &rule("no-private", "deny", "vault", Some(when))).of(201);
    assert_eq!(
        (&added["name"], &added["added"], &added["when"]),
        (&json!("no-private"), &json!(true), &json!(when))
    );
    assert_eq!(names(&api), ["no-private", "fixed"], "before those of the configuration");
    let denied = api.invoke(&api.session, "vault", &note("private.md", "x")).of(403);
    assert_eq!(denied["error"]["layer"], "registry_policy");
    assert!(
        denied["error"]["message"].as_str().expect("text").contains("tests say so"),
        "{denied}"
    );
    api.invoke(&api.session, "vault", &note("open.md", "x")).of(200);

    api.daemon.as_mut().expect("it runs").signal(rustix::process::Signal::KILL);
    api.daemon.as_mut().expect("it ran").wait();
    api.daemon = Some(api.home.daemon());
    api.find();
    api.invoke(&api.session, "vault", &note("private.md", "x")).of(403);
    // The command line has the same list, and the events say who.
    let listed = api.home.json(&["policy", "rules", "--json"]);
    assert_eq!(listed[0]["name"], "no-private");
    assert!(api.home.ok(&["events", "--json"]).contains("(http_api)"));
    let removed = delete(&api, &api.operator, "/api/policy/rules/no-private");
    assert_eq!((removed.status, removed.text.as_str()), (204, ""));
    api.invoke(&api.session, "vault", &note("private.md", "x")).of(200);
    delete(&api, &api.operator, "/api/policy/rules/no-private").plain(404);
    delete(&api, &api.operator, "/api/policy/rules/fixed").plain(404);
    assert_eq!(names(&api), ["fixed"]);

    for wrong in [
        rule("fixed", "deny", "vault", None),
        rule("", "deny", "vault", None),
        rule("x", "perhaps", "vault", None),
        rule("x", "deny", "Vault!", None),
        rule("x", "deny", "vault", Some("args.path ==")),
        json!({ "name": "x", "effect": "deny", "tools": [] }),
        json!({ "name": "x", "effect": "deny" }),
        json!({ "name": "x", "effect": "deny", "tools": ["vault"], "why": "x".repeat(4_001) }),
    ] {
        assert_eq!(add(&api, &wrong).code(400), "tool_invalid_input", "{wrong}");
    }
    assert_eq!(names(&api), ["fixed"], "nothing of it was added");
}

#[test]
fn explain_shows_each_layer_and_makes_no_call() {
    let api = Api::with(&[("HIVEKEEP_POLICY__PERMISSION_MODE", "approve-reads")]);
    let session = api.open(&api.session, &json!({}));
    let when = "args.path == \"private.md\"";
    api.post(&api.operator, "/api/policy/rules", &rule("no-private", "deny", "vault", Some(when)))
        .of(201);
    let explain = |body: Value| api.post(&api.operator, "/api/policy/explain", &body);
    let call = |path: &str| json!({ "tool_id": "vault", "session_id": session, "input": note(path, "x")["input"] });
    let denied = explain(call("private.md")).of(200);
    assert_eq!(denied["outcome"], "denied");
    let last = denied["verdicts"].as_array().and_then(|all| all.last()).expect("one");
    assert_eq!(
        (&last["layer"], &last["ruling"], &last["rule"]),
        (&json!("rules"), &json!("deny"), &json!("no-private"))
    );
    let asks = explain(call("open.md")).of(200);
    assert_eq!(
        (&asks["outcome"], &asks["permission_mode"]),
        (&json!("asks"), &json!("approve-reads"))
    );
    // As the command line has it.
    let input = note("private.md", "x")["input"].to_string();
    let cli = api.home.json(&[
        "policy",
        "explain",
        "vault",
        "--session",
        &session,
        "--json",
        &input,
        "--as-json",
    ]);
    let layers = |found: &Value| {
        let verdicts = found["verdicts"].as_array().expect("verdicts").iter();
        verdicts.map(|one| (one["layer"].clone(), one["ruling"].clone())).collect::<Vec<_>>()
    };
    assert_eq!((layers(&cli), &cli["outcome"]), (layers(&denied), &denied["outcome"]));
    assert_eq!(
        api.get(&api.operator, "/api/approvals").of(200)["approvals"],
        json!([]),
        "nobody is asked"
    );
    assert_eq!(explain(json!({ "tool_id": "nope" })).code(404), "tool_not_found");
    let nobody =
        json!({ "tool_id": "vault", "session_id": "ses_0192f0c1a2b37c4d8e5f60718293a4b5" });
    explain(nobody).plain(404);
    assert_eq!(explain(json!({ "tool_id": "vault", "input": [] })).code(400), "tool_invalid_input");
}

#[test]
fn a_remembered_approval_is_listed_and_revoked() {
    let api = Api::with(&[("HIVEKEEP_POLICY__PERMISSION_MODE", "approve-reads")]);
    let session = api.open(&api.session, &json!({}));
    let write = |path: &str| {
        let mut body = note(path, "x");
        body["session_id"] = json!(session);
        api.invoke(&api.session, "vault", &body)
    };
    let asked = write("a.md").of(202);
    let id = asked["error"]["details"]["approval"].as_str().expect("an id");
    let path = format!("/api/approvals/{id}/approve");
    api.post(&api.operator, &path, &json!({ "remember": "session" })).of(200);
    write("a.md").of(200);
    write("b.md").of(200);
    let grants = api.get(&api.operator, "/api/grants").of(200);
    let grant = &grants["grants"][0];
    assert_eq!((&grant["tools"], &grant["session_id"]), (&json!("vault"), &json!(session)));
    assert!(grant["granted_by"].as_str().expect("who").contains("http_api"), "{grant}");
    let id = grant["id"].as_str().expect("an id");
    assert_eq!(api.home.json(&["approvals", "grants", "--json"])[0]["id"], id);
    assert_eq!(delete(&api, &api.operator, &format!("/api/grants/{id}")).status, 204);
    write("c.md").of(202);
    delete(&api, &api.operator, &format!("/api/grants/{id}")).plain(404);
    delete(&api, &api.operator, "/api/grants/..%2f..").plain(404);
    assert_eq!(api.get(&api.operator, "/api/grants").of(200), json!({ "grants": [] }));
}

#[test]
fn rules_and_grants_are_the_operators() {
    let api = Api::start();
    let grant = "/api/grants/grant_0192f0c1a2b37c4d8e5f60718293a4b5";
    for token in [&api.session, &api.reader] {
        for path in ["/api/policy/rules", "/api/grants"] {
            api.get(token, path).plain(403);
        }
        let deny = rule("mine", "allow", "*", None);
        api.post(token, "/api/policy/rules", &deny).plain(403);
        api.post(token, "/api/policy/explain", &json!({ "tool_id": "vault" })).plain(403);
        delete(&api, token, "/api/policy/rules/mine").plain(403);
        delete(&api, token, grant).plain(403);
    }
    for (method, path) in [
        ("GET", "/api/policy/rules"),
        ("POST", "/api/policy/rules"),
        ("DELETE", "/api/policy/rules/mine"),
        ("POST", "/api/policy/explain"),
        ("GET", "/api/grants"),
        ("DELETE", grant),
    ] {
        api.raw(method, path, &[], (method == "POST").then_some("{}")).plain(401);
    }
    assert_eq!(names(&api), [""; 0]);
}
