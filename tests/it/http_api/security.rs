//! Who tries to get in, and does not.

use serde_json::json;

use super::{Api, bearer, credential, note};

#[test]
fn without_a_credential_or_with_a_wrong_or_revoked_one_nobody_gets_in() {
    let api = Api::start();
    let routes = [
        ("GET", "/api/tools"),
        ("POST", "/api/tools/search"),
        ("GET", "/api/tools/vault"),
        ("POST", "/api/tools/vault/invoke"),
        ("POST", "/api/tools/vault/approvals"),
        ("GET", "/api/sessions"),
        ("POST", "/api/sessions"),
        ("GET", "/api/approvals"),
        ("GET", "/api/toolsets"),
        ("GET", "/api/actors"),
        ("GET", "/api/events"),
        ("GET", "/api/events/ws"),
        ("GET", "/api/chats"),
        ("POST", "/api/chats"),
        ("GET", "/api/chats/x/messages"),
        ("POST", "/api/chats/x/messages"),
        ("GET", "/api/chats/x/events"),
        ("GET", "/api/runs/x/events"),
        ("GET", "/api/nothing"),
        ("GET", "/api/health/../tools"),
        ("GET", "/api/docs/../tools"),
        ("GET", "//api/health"),
    ];
    let near = format!("{}0", &api.operator[..api.operator.len() - 1]);
    let near = if near == api.operator { format!("{near}1") } else { near };
    let wrong = bearer(&near);
    let twice = [("Authorization", bearer(&api.operator)), ("Authorization", wrong.clone())];
    let twice: Vec<_> = twice.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (method, path) in routes {
        let body = (method == "POST").then_some("{}");
        let none = api.raw(method, path, &[], body);
        assert_eq!(none.headers["www-authenticate"], r#"Bearer realm="hivekeep""#);
        none.plain(401);
        let other = api.raw(method, path, &[("Authorization", "Basic eDp5")], body);
        other.plain(401);
        let wrong = api.raw(method, path, &[("Authorization", &wrong)], body);
        assert!(wrong.headers["www-authenticate"].contains("invalid_token"));
        wrong.plain(401);
        api.raw(method, path, &twice, body).plain(401);
    }
    api.get(&api.reader, "/api/tools").of(200);
    api.home.ok(&["credential", "revoke", "dashboard"]);
    api.get(&api.reader, "/api/tools").plain(401);
    api.invoke(&api.session, "workspace_list", &json!({})).of(200);
    api.home.ok(&["credential", "revoke", "worker"]);
    let sessions = api.home.json(&["sessions", "--json"]);
    assert_eq!(sessions[0]["state"], "ended", "its sessions are over: {sessions}");
    let list = api.home.ok(&["credential", "list"]);
    assert!(!list.contains("dashboard") && list.contains("ops"), "{list}");
    let unknown = api.home.run(&["credential", "revoke", "dashboard"]);
    assert!(!unknown.status.success());
}

#[test]
fn a_credential_outlives_the_daemon_and_its_secret_is_written_nowhere() {
    let mut api = Api::start();
    api.invoke(&api.session, "workspace_list", &json!({})).of(200);
    api.home.ok(&["stop"]);
    api.daemon.as_mut().expect("it ran").wait();
    api.daemon = Some(api.home.daemon());
    api.find();
    api.invoke(&api.session, "workspace_list", &json!({})).of(200);
    let told: String = [
        &["credential", "list", "--json"][..],
        &["events", "--json"],
        &["logs", "--json"],
        &["sessions", "--json"],
        &["config"],
    ]
    .iter()
    .map(|args| api.home.ok(args))
    .collect();
    for secret in [&api.operator, &api.session, &api.reader] {
        let random = secret.strip_prefix("hivekeep_").expect("its prefix");
        assert!(!told.contains(random));
        for file in files(&api.home.path("")) {
            let bytes = std::fs::read(&file).unwrap_or_default();
            let found = bytes.windows(random.len()).any(|window| window == random.as_bytes());
            assert!(!found, "{} has it", file.display());
        }
    }
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("reads");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_scope_reaches_no_further_than_it_says() {
    let api = Api::start();
    let session = api.open(&api.session, &json!({}));
    let own = |tail: &str| format!("/api/sessions/{session}{tail}");
    for (path, body) in [
        ("/api/tools/vault/invoke".to_owned(), note("a.md", "x")),
        ("/api/sessions".to_owned(), json!({})),
        (own("/stop"), json!({})),
        (own("/resume"), json!({})),
        ("/api/tools/vault/approvals".to_owned(), json!({ "session_id": session })),
    ] {
        let refused = api.post(&api.reader, &path, &body);
        assert!(refused.headers["www-authenticate"].contains("insufficient_scope"), "{path}");
        refused.plain(403);
    }
    api.post(&api.reader, "/api/tools/search", &json!({ "query": "note" })).of(200);
    api.get(&api.reader, &own("")).of(200);
    for body in [
        json!({ "agent_name": "ada" }),
        json!({ "context": "careful" }),
        json!({ "credential": "ops" }),
    ] {
        api.post(&api.session, "/api/sessions", &body).plain(403);
    }
    for action in ["approve", "deny"] {
        let path = format!("/api/approvals/apr_0192f0c1a2b37c4d8e5f60718293a4b5/{action}");
        api.post(&api.session, &path, &json!({})).plain(403);
        api.post(&api.operator, &path, &json!({})).plain(404);
    }
}

#[test]
fn anothers_session_is_as_one_that_is_not_there() {
    let api = Api::start();
    let other = credential(&api.home, "other", "session");
    let session = api.open(&api.session, &json!({}));
    let nobody = "ses_0192f0c1a2b37c4d8e5f60718293a4b5";
    let told = |id: &str, text: String| text.replace(id, "ID");
    for (path, body) in [
        ("/api/sessions/ID", None),
        ("/api/sessions/ID/tools", None),
        ("/api/sessions/ID/tools/search", Some(json!({ "query": "" }))),
        ("/api/sessions/ID/stop", Some(json!({}))),
        ("/api/sessions/ID/resume", Some(json!({}))),
        ("/api/tools?session_id=ID", None),
        ("/api/tools/vault?session_id=ID", None),
        ("/api/tools/vault/invoke?session_id=ID", Some(note("a.md", "x"))),
        ("/api/tools/vault/approvals?session_id=ID", Some(json!({}))),
    ] {
        let ask = |id: &str| {
            let path = path.replace("ID", id);
            match &body {
                None => api.get(&other, &path),
                Some(body) => api.post(&other, &path, body),
            }
        };
        let (theirs, none) = (ask(&session).plain(404), ask(nobody).plain(404));
        assert_eq!(told(&session, theirs), told(nobody, none), "{path}: the same words");
    }
    let listed = api.get(&other, "/api/sessions").of(200);
    assert_eq!(listed, json!({ "sessions": [] }));
    let child = json!({ "parent_session_id": session, "tools": [] });
    api.post(&other, "/api/sessions", &child).plain(404);
    // Its owner, and an operator, reach it.
    api.get(&api.session, &format!("/api/sessions/{session}")).of(200);
    api.get(&api.operator, &format!("/api/sessions/{session}")).of(200);
    for id in ["..%2f", "%2e%2e", "ses_%00", "'%20or%201=1", "ses_0192F0C1A2B37C4D8E5F60718293A4B5"]
    {
        api.get(&api.operator, &format!("/api/sessions/{id}")).plain(404);
    }
}

#[test]
fn a_rebound_host_and_a_foreign_origin_are_refused_everywhere() {
    let api = Api::with(&[("HIVEKEEP_HTTP__ALLOWED_ORIGINS", r#"["http://friend.example:*"]"#)]);
    let auth = bearer(&api.operator);
    for path in [
        "/api/tools",
        "/api/health",
        "/api/docs",
        "/api/openapi.json",
        "/api/events",
        "/api/chats/x/events",
        "/api/runs/x/events",
        "/api/x",
    ] {
        let with = |name, value: &str| {
            api.raw("GET", path, &[("Authorization", &auth), (name, value)], None)
        };
        for host in ["rebound.example", "127.0.0.1.evil.example", "localhost@evil.example", ""] {
            assert!(with("Host", host).plain(403).contains("Host"), "{path} {host}");
        }
        for origin in
            ["http://evil.example", "null", "http://friend.example.evil", "http://127.0.0.1:1"]
        {
            assert!(with("Origin", origin).plain(403).contains("Origin"), "{path} {origin}");
        }
        let absolute = format!("http://rebound.example{path}");
        api.raw("GET", &absolute, &[("Authorization", &auth)], None).plain(403);
    }
    let friend = [("Authorization", auth.as_str()), ("Origin", "http://friend.example:99")];
    api.raw("GET", "/api/tools", &friend, None).of(200);
    let port = api.address.rsplit(':').next().expect("a port");
    let named = format!("localhost:{port}");
    api.raw("GET", "/api/health", &[("Host", &named)], None).of(200);
}

#[test]
fn every_answer_has_the_headers_that_keep_browsers_safe() {
    let api = Api::start();
    for answer in [
        api.get(&api.operator, "/api/tools/vault"),
        api.get("nobody", "/api/tools"),
        api.get(&api.operator, "/api/nothing"),
        api.raw("GET", "/api/docs", &[], None),
        api.raw("GET", "/api/health", &[("Host", "evil.example")], None),
        api.raw("PUT", "/api/tools", &[("Authorization", &bearer(&api.operator))], None),
    ] {
        let has = |name: &str| answer.headers.get(name).map(String::as_str);
        assert_eq!(has("x-content-type-options"), Some("nosniff"));
        assert_eq!(has("cache-control"), Some("no-store"));
        assert_eq!(has("x-frame-options"), Some("DENY"));
        assert_eq!(has("referrer-policy"), Some("no-referrer"));
        assert!(
            has("content-security-policy").is_some_and(|it| it.contains("frame-ancestors 'none'"))
        );
        assert_eq!(has("access-control-allow-origin"), None);
    }
}

#[test]
fn a_credential_reaches_mcp_too_in_sessions_of_its_own() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__MCP__ENABLED", "true"),
        ("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0"),
    ]);
    let url = api.home.json(&["status", "--json"])["mcp_http"].as_str().expect("open").to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let mcp = Api { address: address.clone(), ..empty(&api) };
    let post = |token: &str, session: Option<&str>, body: &serde_json::Value| {
        let auth = bearer(token);
        let mut headers = vec![
            ("Authorization", auth.as_str()),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
        headers.extend(session.map(|_| ("MCP-Protocol-Version", "2025-11-25")));
        mcp.raw("POST", "/mcp", &headers, Some(&body.to_string()))
    };
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "wire", "version": "1" } },
    });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "workspace_list", "arguments": {} } });
    let made = post(&api.session, None, &initialize);
    assert_eq!(made.status, 200, "{made:?}");
    let id = made.headers["mcp-session-id"].clone();
    let called = post(&api.session, Some(&id), &call);
    assert!(called.status == 200 && called.text.contains(r#""isError":false"#), "{called:?}");
    let rows = api.home.json(&["sessions", "--json"]);
    let users = rows.to_string();
    assert!(users.contains("credential:cred_"), "{users}");
    // Another credential, the file's token and a read-only one do not use that session.
    let other = credential(&api.home, "other", "session");
    assert_eq!(post(&other, Some(&id), &call).status, 404);
    let token = std::fs::read_to_string(api.home.path("state/mcp-token")).expect("it was made");
    assert_eq!(post(token.trim(), Some(&id), &call).status, 404);
    assert_eq!(post(token.trim(), None, &initialize).status, 200, "it works as before");
    assert_eq!(post(&api.reader, None, &initialize).status, 403);
    assert_eq!(post("nobody", None, &initialize).status, 401);
    api.home.ok(&["credential", "revoke", "worker"]);
    assert_eq!(post(&api.session, Some(&id), &call).status, 401, "revoked is out at once");
}

/// The same door's credentials, without its daemon.
fn empty(api: &Api) -> Api {
    Api {
        home: crate::home::Home::new(),
        daemon: None,
        address: String::new(),
        operator: api.operator.clone(),
        session: api.session.clone(),
        reader: api.reader.clone(),
    }
}

#[test]
fn the_door_is_shut_unless_it_is_opened_and_stays_on_loopback_without_tls() {
    let home = crate::home::Home::new();
    let _daemon = home.daemon();
    assert_eq!(home.json(&["status", "--json"])["http_api"], serde_json::Value::Null);
    let outside = home.run(&["config", "--set", "http.api.bind=0.0.0.0:7718"]);
    assert_eq!(outside.status.code(), Some(2));
    let told = String::from_utf8_lossy(&outside.stderr);
    assert!(told.contains("http.api.bind") && told.contains("tls_cert"), "{told}");
}
