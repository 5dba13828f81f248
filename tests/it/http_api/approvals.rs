//! Approvals over HTTP: tokens, people, and who may not.

use serde_json::{Value, json};

use super::{Api, note};

fn asking() -> Api {
    Api::with(&[("HIVEKEEP_POLICY__PERMISSION_MODE", "approve-reads")])
}

fn call(session: &str, input: &Value, token: Option<&str>) -> Value {
    json!({ "session_id": session, "input": input, "approval_token": token })
}

#[test]
fn a_call_that_needs_an_approval_is_202_and_runs_once_with_its_token() {
    let api = asking();
    let session = api.open(&api.session, &json!({}));
    let input = note("a.md", "one")["input"].clone();
    let asked = api.invoke(&api.session, "vault", &call(&session, &input, None)).of(202);
    assert_eq!(asked["error"]["code"], "tool_approval_required");
    assert_eq!(
        asked["error"]["reason_codes"],
        json!(["approval_required", "approval_token_missing"])
    );
    assert_eq!(asked["error"]["layer"], "approval");
    let events = asked["error"]["details"]["events"].as_array().expect("events");
    assert_eq!(events.last().expect("one")["kind"], "tool.call_denied", "it was not made");
    let digest = asked["error"]["details"]["input_digest"].clone();

    let seen = api.get(&api.session, &format!("/api/tools/vault?session_id={session}")).of(200);
    let decision = &seen["tool"]["decision"];
    assert_eq!(
        (&decision["callable"], &decision["approval_required"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(decision["registry_policy_result"], "approval_required");
    assert_eq!(decision["system_permission_mode"], "approve-reads");

    // Keys in another order are the same input.
    let turned = r#"{"content":"one","path":"a.md","action":"write"}"#;
    let turned: Value = serde_json::from_str(turned).expect("JSON");
    let mint = json!({ "session_id": session, "input": turned });
    let minted = api.post(&api.operator, "/api/tools/vault/approvals", &mint).of(201);
    let approval = &minted["approval"];
    assert_eq!((&approval["tool_id"], &approval["input_digest"]), (&json!("vault"), &digest));
    let token = approval["approval_token"].as_str().expect("a token");
    assert!(approval["expires_at"].as_str().expect("a time").contains('T'));

    let other = note("b.md", "two")["input"].clone();
    for (status, reason, what) in [
        (403, "approval_token_mismatch", call(&session, &other, Some(token))),
        (403, "approval_token_mismatch", call(&session, &input, Some("made-up"))),
    ] {
        let refused = api.invoke(&api.session, "vault", &what).of(status);
        assert_eq!(refused["error"]["reason_codes"], json!([reason]), "{refused}");
        assert_eq!(refused["error"]["code"], "tool_approval_required");
    }
    api.invoke(&api.session, "vault", &call(&session, &input, Some(token))).of(200);
    let again = api.invoke(&api.session, "vault", &call(&session, &input, Some(token))).of(403);
    assert_eq!(again["error"]["reason_codes"], json!(["approval_token_replayed"]));
}

#[test]
fn a_token_lets_one_of_a_hundred_calls_at_once_through() {
    let api = Api::with(&[
        ("HIVEKEEP_POLICY__PERMISSION_MODE", "approve-reads"),
        ("HIVEKEEP_REGISTRY__RATE__ENABLED", "false"),
    ]);
    let session = api.open(&api.session, &json!({}));
    let input = json!({ "name": "once", "code": "1" });
    let mint = json!({ "session_id": session, "input": input });
    let minted = api.post(&api.operator, "/api/tools/aegis_script_save/approvals", &mint).of(201);
    let token = minted["approval"]["approval_token"].as_str().expect("a token");
    let body = call(&session, &input, Some(token));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..100)
            .map(|_| scope.spawn(|| api.invoke(&api.session, "aegis_script_save", &body)))
            .collect();
        made.into_iter().map(|one| one.join().expect("it is answered").status).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(403)), (1, 99), "{statuses:?}");
    let saved = json!({ "session_id": session, "input": { "id": "once" } });
    let saved = api.invoke(&api.session, "aegis_script_get", &saved).of(200);
    assert_eq!(saved["result"]["structured"]["version"], 1, "it was made once");
}

#[test]
fn whoever_calls_does_not_approve_it() {
    let api = asking();
    let session = api.open(&api.session, &json!({}));
    let mint = json!({ "session_id": session, "input": note("a.md", "x")["input"] });
    let own = api.post(&api.session, "/api/tools/vault/approvals", &mint).of(403);
    assert_eq!(
        (&own["error"]["code"], &own["error"]["details"]["code"]),
        (&json!("tool_denied"), &json!("self_approval"))
    );
    let ops = api.open(&api.operator, &json!({}));
    let mint = json!({ "session_id": ops, "input": note("a.md", "x")["input"] });
    assert_eq!(
        api.post(&api.operator, "/api/tools/vault/approvals", &mint).code(403),
        "tool_denied"
    );
    // In a session that it opened for another credential it is the caller, too.
    let other = api.open(&api.operator, &json!({ "credential": "worker" }));
    let input = note("a.md", "x")["input"].clone();
    let asked = api.invoke(&api.operator, "vault", &call(&other, &input, None)).of(202);
    let id = asked["error"]["details"]["approval"].as_str().expect("an id");
    let own = api.post(&api.operator, &format!("/api/approvals/{id}/approve"), &json!({})).of(403);
    assert_eq!(own["error"]["details"]["code"], "self_approval", "{own}");
    let mint = json!({ "session_id": other, "input": input });
    let minted = api.post(&api.operator, "/api/tools/vault/approvals", &mint).of(201);
    let token = minted["approval"]["approval_token"].as_str();
    let refused = api.invoke(&api.operator, "vault", &call(&other, &input, token)).of(403);
    assert_eq!(refused["error"]["reason_codes"], json!(["approval_token_mismatch"]));
}

#[test]
fn a_token_is_asked_for_in_terms_that_make_sense() {
    let api = asking();
    let session = api.open(&api.session, &json!({}));
    let mint = |path: &str, body: Value| api.post(&api.operator, path, &body);
    let path = "/api/tools/vault/approvals";
    let input = note("a.md", "x")["input"].clone();
    assert_eq!(mint(path, json!({ "input": input })).code(400), "tool_invalid_input");
    let bad = json!({ "session_id": session, "input": { "action": "dance" } });
    assert_eq!(mint(path, bad).code(400), "tool_invalid_input");
    let wrong = format!("sha256:{}", "0".repeat(64));
    for body in [
        json!({ "session_id": session, "input": input, "input_digest": wrong }),
        json!({ "session_id": session, "input_digest": "anything" }),
    ] {
        let refused = mint(path, body).of(400);
        assert_eq!(refused["error"]["reason_codes"], json!(["approval_token_mismatch"]));
    }
    let elsewhere = format!("{path}?session_id=ses_0192f0c1a2b37c4d8e5f60718293a4b5");
    let refused = mint(&elsewhere, json!({ "session_id": session, "input": input })).of(400);
    assert_eq!(refused["error"]["reason_codes"], json!(["approval_token_mismatch"]));
    assert_eq!(
        mint("/api/tools/nope/approvals", json!({ "session_id": session })).code(404),
        "tool_not_found"
    );
    mint(path, json!({ "session_id": session, "input_digest": wrong })).of(201);
}

#[test]
fn a_person_approves_or_denies_what_was_asked_for() {
    let api = asking();
    let session = api.open(&api.session, &json!({}));
    let input = note("a.md", "one")["input"].clone();
    let asked = api.invoke(&api.session, "vault", &call(&session, &input, None)).of(202);
    let id = asked["error"]["details"]["approval"].as_str().expect("an id").to_owned();
    let listed = api.get(&api.operator, "/api/approvals").of(200);
    assert_eq!(listed["approvals"][0]["id"], json!(id));
    assert_eq!(listed["approvals"][0]["tool_id"], "vault");
    let path = |tail: &str| format!("/api/approvals/{id}{tail}");
    assert_eq!(api.get(&api.session, &path("")).of(200)["approval"]["state"], "pending");
    let other = super::credential(&api.home, "other", "session");
    api.get(&other, &path("")).plain(404);
    assert_eq!(api.get(&other, "/api/approvals").of(200)["approvals"], json!([]));
    let answer = json!({ "why": "fine", "remember": "once" });
    let approved = api.post(&api.operator, &path("/approve"), &answer).of(200);
    assert_eq!(approved["approval"]["state"], "approved");
    assert_eq!(approved["approval"]["decided_why"], "fine");
    api.invoke(&api.session, "vault", &call(&session, &input, None)).of(200);
    assert_eq!(api.post(&api.operator, &path("/approve"), &answer).code(409), "tool_conflict");
    let used = api.get(&api.operator, "/api/approvals?all=true").of(200);
    assert_eq!(used["approvals"][0]["state"], "used");

    let asked = api.invoke(&api.session, "vault", &call(&session, &input, None)).of(202);
    let id = asked["error"]["details"]["approval"].as_str().expect("an id").to_owned();
    let denied =
        api.post(&api.operator, &format!("/api/approvals/{id}/deny"), &json!({ "why": "no" }));
    assert_eq!(denied.of(200)["approval"]["state"], "denied");
    let bad = api.post(
        &api.operator,
        &format!("/api/approvals/{id}/deny"),
        &json!({ "remember": "ever" }),
    );
    assert_eq!(bad.code(400), "tool_invalid_input");
}

#[test]
fn everything_can_be_switched_off_and_denied() {
    let off = Api::with(&[("HIVEKEEP_POLICY__TOOLS_ENABLED", "false")]);
    let seen = off.get(&off.operator, "/api/tools/vault").of(200);
    assert_eq!(seen["tool"]["decision"]["registry_policy_result"], "disabled");
    assert_eq!(seen["tool"]["decision"]["reason_codes"], json!(["source_disabled"]));
    let denied = off.invoke(&off.operator, "workspace_list", &json!({})).of(403);
    assert_eq!(denied["error"]["layer"], "source_policy");
    let deny = Api::with(&[("HIVEKEEP_POLICY__PERMISSION_MODE", "deny-all")]);
    assert_eq!(deny.invoke(&deny.operator, "workspace_list", &json!({})).code(403), "tool_denied");
    let seen = deny.get(&deny.operator, "/api/tools/vault").of(200);
    assert_eq!(seen["tool"]["decision"]["system_permission_mode"], "deny-all");
    assert_eq!(seen["tool"]["decision"]["callable"], false);
}
