//! Idempotency keys: once, and the same answer again.

use serde_json::{Value, json};

use super::{Answer, Api, bearer, note};
use crate::home::wait_until;

fn keyed(api: &Api, token: &str, tool: &str, key: &str, body: &Value) -> Answer {
    let path = format!("/api/tools/{tool}/invoke");
    let auth = bearer(token);
    let headers = [("Authorization", auth.as_str()), ("Idempotency-Key", key)];
    api.raw("POST", &path, &headers, Some(&body.to_string()))
}

fn append(text: &str) -> Value {
    json!({ "input": { "action": "write", "mode": "append", "path": "log.md", "content": text } })
}

fn content(api: &Api) -> String {
    let read = json!({ "input": { "action": "read", "path": "log.md" } });
    api.invoke(&api.session, "vault", &read).of(200)["result"]["structured"].to_string()
}

#[test]
fn a_request_is_carried_out_once_and_answered_again_also_after_a_restart() {
    let mut api = Api::start();
    api.invoke(&api.session, "vault", &note("log.md", "begin\n")).of(200);
    let first = keyed(&api, &api.session, "vault", "k1", &append("line\n"));
    assert_eq!(first.headers.get("idempotency-replayed"), None);
    let mut same = append("line\n");
    same["input"]["limit"] = Value::Null;
    let again = keyed(&api, &api.session, "vault", "k1", &same);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!((first.status, first.json()), (again.status, again.json()));
    assert_eq!(content(&api).matches("line").count(), 1);

    let other = keyed(&api, &api.session, "vault", "k1", &append("other\n")).of(409);
    assert_eq!(other["error"]["code"], "tool_conflict");
    assert_eq!(other["error"]["details"]["code"], "idempotency_key_reused");
    // A key is its owner's: another's is another key.
    api.invoke(&api.operator, "vault", &note("log2.md", "x")).of(200);
    assert_ne!(keyed(&api, &api.operator, "vault", "k1", &append("line\n")).status, 409);
    // A failure is an outcome too; a refusal before anything was done leaves the key free.
    let missing = json!({ "input": { "action": "read", "path": "none.md" } });
    assert_eq!(keyed(&api, &api.session, "vault", "k2", &missing).status, 502);
    let again = keyed(&api, &api.session, "vault", "k2", &missing);
    assert_eq!((again.status, &*again.headers["idempotency-replayed"]), (502, "true"));
    let bad = json!({ "input": { "action": "dance" } });
    assert_eq!(keyed(&api, &api.session, "vault", "k3", &bad).status, 400);
    assert_eq!(keyed(&api, &api.session, "vault", "k3", &append("x")).status, 200);
    for key in ["", &"k".repeat(201)] {
        assert_eq!(
            keyed(&api, &api.session, "vault", key, &append("x")).code(400),
            "tool_invalid_input"
        );
    }

    api.home.ok(&["stop"]);
    api.daemon.as_mut().expect("it ran").wait();
    api.daemon = Some(api.home.daemon());
    api.find();
    let kept = keyed(&api, &api.session, "vault", "k1", &append("line\n"));
    assert_eq!((kept.status, kept.json()), (first.status, first.json()));
}

#[test]
fn a_key_waits_for_an_approval_and_is_used_by_the_call_alone() {
    let api = Api::with(&[("HIVEKEEP_POLICY__PERMISSION_MODE", "approve-reads")]);
    let ask = || keyed(&api, &api.session, "vault", "k", &append("line\n"));
    let asked = ask().of(202);
    let id = asked["error"]["details"]["approval"].as_str().expect("an id").to_owned();
    assert_eq!(ask().status, 202, "asked for once more");
    let approve = format!("/api/approvals/{id}/approve");
    api.post(&api.operator, &approve, &json!({})).of(200);
    assert_eq!(ask().status, 200);
    assert_eq!(ask().headers["idempotency-replayed"], "true");
}

/// Where the daemon is killed, whether the call was made by then.
#[test]
fn after_a_crash_in_between_the_outcome_is_unknown_and_nothing_is_made_again() {
    for (point, made) in [("http_api.begun", 0), ("http_api.made", 1)] {
        let mut api = Api::start();
        api.invoke(&api.session, "vault", &note("log.md", "begin\n")).of(200);
        api.home.ok(&["stop"]);
        api.daemon.as_mut().expect("it ran").wait();
        api.home = api.home.with("FAILPOINTS", &format!("{point}=return(kill)"));
        api.daemon = Some(api.home.daemon());
        api.find();
        let ask = |api: &Api| {
            let (address, auth) = (api.address.clone(), bearer(&api.session));
            let body = append("line\n").to_string();
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut stream = std::net::TcpStream::connect(&address).expect("connects");
                let request = format!(
                    "POST /api/tools/vault/invoke HTTP/1.1\r\nHost: {address}\r\nAuthorization: {auth}\r\n\
                     Idempotency-Key: k\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(request.as_bytes()).expect("writes");
                let mut rest = Vec::new();
                let _killed = stream.read_to_end(&mut rest);
                rest
            })
        };
        let answer = ask(&api).join().expect("it ends");
        assert!(answer.is_empty(), "{point}: {}", String::from_utf8_lossy(&answer));
        let status = api.daemon.as_mut().expect("it ran").wait();
        assert!(!status.success(), "{point}: it was killed");
        api.home = api.home.with("FAILPOINTS", "");
        api.daemon = Some(api.home.daemon());
        api.find();
        for _ in 0..2 {
            let told = keyed(&api, &api.session, "vault", "k", &append("line\n")).of(409);
            assert_eq!(told["error"]["details"]["code"], "request_outcome_unknown", "{point}");
            assert_eq!(told["error"]["details"]["outcome"], "unknown");
        }
        assert_eq!(content(&api).matches("line").count(), made, "{point}");
    }
}

#[test]
fn a_call_with_a_key_goes_on_without_its_client() {
    let api = Api::start();
    let body = append("line\n").to_string();
    let auth = bearer(&api.session);
    api.invoke(&api.session, "vault", &note("log.md", "begin\n")).of(200);
    {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(&api.address).expect("connects");
        let request = format!(
            "POST /api/tools/vault/invoke HTTP/1.1\r\nHost: {}\r\nAuthorization: {auth}\r\n\
             Idempotency-Key: gone\r\nContent-Length: {}\r\n\r\n{body}",
            api.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("writes");
    }
    // The first to arrive is made, whoever asked: so the line is there once, and the answer is known.
    wait_until("it is answered", || {
        keyed(&api, &api.session, "vault", "gone", &append("line\n")).status == 200
    });
    assert_eq!(content(&api).matches("line").count(), 1);
}
