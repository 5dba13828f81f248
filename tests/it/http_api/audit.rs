//! The audit log over HTTP: queried, exported, and for operators alone.

use serde_json::{Value, json};

use super::{Api, bearer, note};

fn kept() -> Api {
    Api::with(&[("HIVEKEEP_AUDIT__ENABLED", "true"), ("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")])
}

fn seqs(page: &Value) -> Vec<u64> {
    let entries = page["entries"].as_array().expect("entries");
    entries.iter().map(|entry| entry["seq"].as_u64().expect("a number")).collect()
}

#[test]
fn what_was_called_is_found_by_session_tool_outcome_and_time_in_pages() {
    let api = kept();
    let (one, two) = (api.open(&api.session, &json!({})), api.open(&api.session, &json!({})));
    for nth in 0..6 {
        let session = if nth % 2 == 0 { &one } else { &two };
        api.invoke(&api.session, "workspace_list", &json!({ "session_id": session })).of(200);
    }
    let scripts = json!({ "session_id": one, "input": {} });
    api.invoke(&api.session, "aegis_script_list", &scripts).of(200);
    let missing = json!({ "session_id": one, "input": { "action": "read", "path": "none.md" } });
    api.invoke(&api.session, "vault", &missing).of(502);
    let ask = |query: &str| api.get(&api.operator, &format!("/api/audit{query}")).of(200);

    // The newest call is there at once, and comes first.
    let all = ask("");
    let newest = &all["entries"][0];
    assert_eq!((&newest["kind"], &newest["data"]["tool"]), (&json!("call"), &json!("vault")));
    assert_eq!(newest["data"]["outcome"], "note_not_found", "{newest}");
    assert!(newest["data"]["user"].as_str().is_some_and(|user| user.starts_with("credential:")));
    let whole = seqs(&all);
    assert_eq!(all["next"], Value::Null);
    assert_eq!(whole, (1..=whole.len() as u64).rev().collect::<Vec<_>>());

    let (mut paged, mut query) = (Vec::new(), "?limit=3".to_owned());
    loop {
        let page = ask(&query);
        paged.extend(seqs(&page));
        let Some(next) = page["next"].as_u64() else { break };
        assert_eq!(seqs(&page).len(), 3);
        query = format!("?limit=3&before={next}");
    }
    assert_eq!(paged, whole);

    let count = |query: &str| ask(query)["entries"].as_array().expect("entries").len();
    assert_eq!(count(&format!("?session={two}")), 3);
    assert_eq!(count(&format!("?session={one}&tool=workspace_list&outcome=ok")), 3);
    // A tool by its id, and by the name that it is declared by.
    assert_eq!((count("?tool=aegis_script_list"), count("?tool=aegis.script.list")), (1, 1));
    assert_eq!(count("?outcome=note_not_found"), 1);
    let at = newest["at"].as_str().expect("a time");
    assert_eq!(count(&format!("?since={at}")), 1);
    assert_eq!(count(&format!("?until={at}")), whole.len() - 1);
    assert_eq!(count("?tool=nothing"), 0);
    // The same as the command line has.
    let listed = api.home.ok(&["audit", "list", "--tool", "vault", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("one line");
    assert_eq!(&listed, newest);
}

#[test]
fn an_export_is_the_log_as_lines_and_goes_on_behind_an_entry() {
    let api = kept();
    for _ in 0..400 {
        api.invoke(&api.session, "workspace_list", &json!({})).of(200);
    }
    let export = |query: &str| {
        let answer = api.get(&api.operator, &format!("/api/audit/export{query}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/x-ndjson");
        assert_eq!(answer.headers["transfer-encoding"], "chunked", "it is streamed");
        // The last chunk, without which it was cut.
        let text = answer.text.strip_suffix("0\r\n\r\n").expect("the whole").to_owned();
        unchunked(&text)
    };
    let whole = export("");
    assert_eq!(whole, api.home.ok(&["audit", "list", "--json"]), "byte for byte");
    assert_eq!(whole.lines().count(), 401, "the start of the daemon, and each call");
    let rest = export("?after=399");
    assert_eq!(rest.lines().count(), 2);
    assert!(whole.ends_with(&rest));
    assert_eq!(export("?outcome=denied"), "");
    api.home.ok(&["audit", "verify"]);
}

/// The bytes of a chunked body.
fn unchunked(text: &str) -> String {
    let (mut rest, mut whole) = (text, String::new());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(&more[..size]);
        rest = more[size..].strip_prefix("\r\n").expect("an end");
    }
    whole
}

#[test]
fn the_log_is_for_operators_and_a_query_has_to_make_sense() {
    let api = kept();
    for path in ["/api/audit", "/api/audit/export"] {
        api.raw("GET", path, &[], None).plain(401);
        for token in [&api.session, &api.reader] {
            let refused = api.get(token, path);
            assert!(refused.headers["www-authenticate"].contains("insufficient_scope"));
            refused.plain(403);
        }
        let long = format!("?session={}", "x".repeat(201));
        for query in ["?since=yesterday", "?until=1", long.as_str()] {
            let refused = api.get(&api.operator, &format!("{path}{query}")).of(400);
            assert_eq!(refused["error"]["reason_codes"], json!(["schema_invalid"]), "{query}");
        }
        // Nothing of a query is a path, or a pattern.
        for query in ["?session=../../etc/passwd", "?tool=*", "?session=%00", "?outcome=%27or%201"]
        {
            let answer = api.get(&api.operator, &format!("{path}{query}"));
            assert_eq!(answer.status, 200, "{query}: {answer:?}");
        }
        let auth = bearer(&api.operator);
        api.raw("POST", path, &[("Authorization", &auth)], Some("{}")).plain(405);
    }
    for query in ["?limit=0", "?limit=1001", "?limit=-1", "?limit=x", "?before=-1"] {
        assert_eq!(
            api.get(&api.operator, &format!("/api/audit{query}")).code(400),
            "tool_invalid_input"
        );
    }
}

#[test]
fn without_a_log_the_answer_names_the_setting() {
    let api = Api::start();
    api.invoke(&api.session, "vault", &note("a.md", "x")).of(200);
    for path in ["/api/audit", "/api/audit/export"] {
        let refused = api.get(&api.operator, path).of(422);
        assert_eq!(refused["error"]["code"], "tool_unavailable");
        assert_eq!(refused["error"]["details"]["code"], "audit_disabled");
        assert!(refused["error"]["message"].as_str().expect("text").contains("audit.enabled"));
    }
}
