//! Records beside those of the first state: who may do what, and what is kept for users. Daemons from commit
//! 3638dd67 on have them.

use std::{path::Path, process::Command};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{HOME, until};
use crate::{
    counter::Counter,
    guarded,
    house::House,
    scenes::http_api::{Caller, run},
};

/// Name of the parked machine.
pub const PARKED: &str = "sleeper";
/// Secret of the credential, below the daemon's folder.
const CREDENTIAL: &str = "credential";
/// Token for the source, below the daemon's folder.
const TOKEN: &str = "token";
/// Tool that the rule is about.
const DELETE: &str = "aegis.script.delete";

/// True for a program that makes them; its last tool is as old as they are.
pub fn kept_by(program: &Path) -> bool {
    let told = Command::new(program).args(["tools", "workspace_park"]).output();
    told.is_ok_and(|told| told.status.success())
}

/// Configuration by the names of then. Servers of the test's own make the embeddings and are the source, which
/// takes a token that only [`prepare`] gives.
pub fn config() -> String {
    format!(
        "{}[http_api]\nenabled = true\nbind = \"127.0.0.1:0\"\n\
         [source.servers.other]\nurl = {:?}\ntoken_file = \"{HOME}/{TOKEN}\"\n",
        Counter::start().config(),
        guarded::start()
    )
}

/// Configuration of the daemon that makes them, which its source lets in.
pub fn prepare(home: &Path) -> String {
    std::fs::write(home.join(TOKEN), guarded::TOKEN).expect("written");
    config()
}

/// Tools of the source.
fn offered(house: &House) -> Value {
    house.call("source_list", json!({}))["sources"][0]["tools"].take()
}

/// Makes them beside the sandbox `box`.
pub fn make(house: &House) {
    until(house, "the source has no tools", || offered(house) != json!([]));
    // From here on only the journal knows the source's tools.
    std::fs::write(house.path().join(TOKEN), "").expect("written");

    let client = Caller::new(house, "client");
    std::fs::write(house.path().join(CREDENTIAL), &client.credential).expect("written");
    client.ok("aegis.script.save", &json!({ "name": "greet", "code": "first" }));
    client.ok("aegis.script.update", &json!({ "id": "greet", "name": "greet", "code": "second" }));
    client.ok("metrics_record", &json!({ "type": "review.done" }));

    house.exec("box", "mkdir -p /workspace/docs && echo heron > /workspace/docs/bird.md");
    let folder = json!({ "place": "box", "path": "docs", "collection": "library" });
    house.call("rag_ingest", folder);

    house.call("workspace_create", json!({ "name": PARKED, "isolation": "vm" }));
    house.exec(PARKED, "echo volatile > /dev/shm/x");
    house.call("workspace_park", json!({ "workspace_id": PARKED }));

    run(house, &["policy", "add", "careful", "ask", DELETE]);
    let (status, asked) = client.call(DELETE, &json!({ "id": "greet" }), None);
    assert_eq!((status, &asked["error"]["code"]), (202, &json!("tool_approval_required")));
}

/// Checks them, and decides on the call that waits, if it has not timed out.
pub fn are_read(house: &House) {
    let credential = std::fs::read_to_string(house.path().join(CREDENTIAL)).expect("kept");
    let client = Caller::again(house, credential);
    let rows = |args: &[&str]| -> Value {
        serde_json::from_str(&run(house, &[args, &["--json"]].concat())).expect("JSON")
    };
    let time = |text: &Value| -> DateTime<Utc> {
        text.as_str().and_then(|text| text.parse().ok()).expect("a time")
    };
    let known = rows(&["credential", "list"]);
    assert_eq!((&known[0]["name"], &known[0]["scope"]), (&json!("client"), &json!("session")));

    let code = |version: u32| {
        let asked = json!({ "id": "greet", "version": version });
        client.ok("aegis.script.get", &asked)["code"].take()
    };
    assert_eq!([code(1), code(2)], ["first", "second"]);
    let counted = client.ok("metrics_query", &json!({ "since": "365d" }));
    let is_beyond = Utc::now() - time(&known[0]["created_at"]) > TimeDelta::days(364);
    assert!(counted["total"] == 1 || is_beyond, "{counted}");

    let asked = json!({ "collection": "library", "question": "heron" });
    let found = house.call("rag_query", asked);
    assert_eq!(found["results"][0]["source"], "bird.md", "{found}");
    assert_eq!(offered(house), json!(["mcp__other__hello"]));
    assert_eq!(house.state(PARKED), "parked");

    let rules = rows(&["policy", "rules"]);
    let rule = ["name", "effect", "tools"].map(|key| &rules[0][key]);
    assert_eq!(rule, [&json!("careful"), &json!("ask"), &json!([DELETE])]);
    let asked = &rows(&["approvals", "--all"])[0];
    let waits = time(&asked["expires_at"]) > Utc::now();
    let state = if waits { "pending" } else { "timed_out" };
    assert_eq!((&asked["tool"], &asked["state"]), (&json!(DELETE), &json!(state)), "{asked}");
    let approve = || {
        let id = asked["id"].as_str().expect("an id");
        let told = house.command().args(["approvals", "approve", id]).output();
        told.expect("it runs").status.success()
    };
    assert_eq!([approve(), approve()], [waits, false]);
    if waits {
        client.ok(DELETE, &json!({ "id": "greet" }));
    }
}
