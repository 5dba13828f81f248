//! Webhooks of a running daemon.

use serde_json::json;

use super::{Answer, Api, bearer, opened};
use crate::home::Home;

const NOOP: &str = "name: hooked\nsteps: [{ id: a, action: log.write, with: { message: \"${WEBHOOK_PAYLOAD}\" } }]\n";

/// A daemon with a DAG that has a webhook, whose bearer is the session's.
fn hooked(folder: &std::path::Path) -> Api {
    let home = opened(Home::new());
    std::fs::create_dir(folder.join("dags")).expect("made");
    std::fs::write(folder.join("dags/hooked.yaml"), NOOP).expect("written");
    let config =
        format!("[workflow]\nfolders = [\"hooks\"]\n[session.places.hooks]\nfolder = {folder:?}\n");
    std::fs::write(home.path("config.toml"), config).expect("written");
    let mut api = Api::of(home);
    let made = || api.home.run(&["credential", "create", "github", "--webhook", "hooked"]);
    let mut last = made();
    crate::home::wait_until("the folder was looked at", || {
        if !last.status.success() {
            last = made();
        }
        last.status.success()
    });
    api.session = String::from_utf8(last.stdout).expect("text").trim().to_owned();
    api
}

fn ask(api: &Api, path: &str, token: &str, key: &str, body: &str) -> Answer {
    let auth = bearer(token);
    let headers = [("Authorization", auth.as_str()), ("Idempotency-Key", key)];
    api.raw("POST", path, &headers, Some(body))
}

const PATH: &str = "/api/webhooks/hooked";

#[test]
fn a_webhook_begins_its_dag_for_whoever_has_its_bearer_and_opens_nothing_else() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let api = hooked(folder.path());
    let hook = api.session.clone();
    let begun = ask(&api, PATH, &hook, "k", r#"{"payload": {"n": 1}}"#).of(202);
    assert_eq!(begun["name"], "hooked");
    let id = begun["run_id"].as_str().expect("an id").to_owned();
    let run = api.home.json(&["dag", "runs", &id, "--wait", "60", "--json"]);
    assert_eq!(
        (&run["run"]["status"], &run["run"]["trigger"]),
        (&json!("succeeded"), &json!("webhook")),
        "{run}"
    );
    assert_eq!(ask(&api, PATH, &hook, "k", r#"{"payload": {"n": 1}}"#).of(202)["run_id"], *id);
    let reused = ask(&api, PATH, &hook, "k", "{}").of(409);
    assert_eq!(reused["error"]["details"]["code"], "idempotency_key_reused");
    // Nobody without the bearer has a body read, and the bearer is for its DAG alone.
    let large = "x".repeat(200 * 1024);
    for (status, path, token, body) in [
        (401, PATH, "hivekeep_no", &*large),
        (401, PATH, &*api.operator, "{}"),
        (404, "/api/webhooks/other", &*hook, "{}"),
        (413, PATH, &*hook, &*large),
    ] {
        assert_eq!(ask(&api, path, token, "l", body).status, status, "{path} {token:.12}");
    }
    for path in ["/api/tools", "/api/sessions", "/api/runs/x/events"] {
        api.get(&hook, path).plain(401);
    }
    let listed = api.home.ok(&["credential", "list"]);
    assert!(listed.contains("webhook hooked") && !listed.contains(&hook), "{listed}");
    api.home.ok(&["credential", "revoke", "github"]);
    ask(&api, PATH, &hook, "k", "{}").plain(401);
}

/// The daemon is killed behind the run's first record, and the client comes back.
#[test]
fn a_webhook_that_was_not_answered_begins_no_second_run() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut api = hooked(folder.path());
    api.home.ok(&["stop"]);
    api.daemon.as_mut().expect("it ran").wait();
    api.home = api.home.with("FAILPOINTS", "dag.webhook_begun=return(kill)");
    api.daemon = Some(api.home.daemon());
    api.find();
    let (address, auth) = (api.address.clone(), bearer(&api.session));
    let asked = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&address).expect("connects");
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {auth}\r\n\
             Idempotency-Key: k\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).expect("writes");
        let mut answer = String::new();
        let _died = stream.read_to_string(&mut answer);
        answer
    });
    api.daemon.as_mut().expect("it runs").wait();
    assert_eq!(asked.join().expect("asked"), "");
    api.home = api.home.with("FAILPOINTS", "");
    api.daemon = Some(api.home.daemon());
    api.find();
    let begun = ask(&api, PATH, &api.session, "k", "{}").of(202);
    let runs = api.home.json(&["dag", "runs", "--json"]);
    let runs: Vec<_> =
        runs["runs"].as_array().expect("runs").iter().map(|run| &run["run_id"]).collect();
    assert_eq!(runs, [&begun["run_id"]]);
}
