//! Two users of one daemon: one of them calls every tool and every route of the HTTP API about what is the other's.
//! They are those that the daemon lists, so that one which is added later is called, too, and takes an answer here.

mod inputs;
mod theirs;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::http_api::Caller;
use crate::house::House;
use inputs::Parameters;
use theirs::Theirs;

/// A model that a chat can be opened with; nobody asks it.
pub const CONFIG: &str = "[model.provider.script]
kind = \"scripted\"
script = \"/nothing.json\"
models = { m = {} }
";

/// In whatever is the first user's.
const MARK: &str = "zebra";

/// Words of the names of parameters that name something.
const WORDS: [&str; 14] = [
    "id",
    "sessionId",
    "ids",
    "workspace",
    "workspaces",
    "team",
    "agent",
    "to",
    "member",
    "place",
    "volume",
    "volumes",
    "collection",
    "uri",
];

/// Parameters that name something and are not refused here, of one tool or of all, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 20] = [
    (
        "*",
        "agent_id",
        "a word that is counted by, or an operator's to name; actors/agent tries another's",
    ),
    ("*", "binding_id", "needs a server of git; actors/repository tries another's"),
    ("*", "credential_binding_id", "a credential of the configuration"),
    ("*", "execution_id", "needs a model; actors/agent tries another's"),
    ("agent_compare", "execution_ids", "needs a model; actors/agent tries another's"),
    ("agent_rewind", "to", "a place in an execution"),
    ("*", "swarm_id", "needs machines that are forked"),
    ("*", "to_markdown", "a form"),
    ("process_list", "place", "chooses among the caller's own"),
    ("fs.changes", "place", "of the caller's own watches"),
    ("fs.unwatch", "place", "of the caller's own watches"),
    ("vault", "as_member", "takes rights away from the caller"),
    ("webview_connect", "place", "needs a browser; tests/vm has one with places"),
    ("rag_ingest", "collection", "a name among the caller's own collections"),
    ("aegis.execute.intent", "volume_id", "looked for when its run begins, which fails then"),
    ("aegis.workflow.demote", "tenant_id", "of operators"),
    ("aegis.workflow.demote", "user_id", "of operators"),
    ("aegis.workflow.promote", "tenant_id", "of operators"),
    ("aegis.workflow.list", "user_id", "chooses among what the caller sees"),
    ("aegis.workflow.executions.list", "workflow_id", "chooses among the caller's own runs"),
];

/// Tools that are not called, with the reason.
const NOT_CALLED: [(&str, &str); 2] = [
    ("zaru.init", "has the calling session take a mode, which denies most tools"),
    ("zaru.mode", "the same"),
];

/// Routes that go on, or that change what all have: for operators, as tests of them show.
const NOT_ASKED: [&str; 2] = ["/api/events", "/api/events/ws"];

/// Calls a tool with each of another user's things in each parameter that names one; those parameters that did not
/// refuse any.
fn call(other: &Caller, theirs: &Theirs, tool: &Value) -> BTreeSet<String> {
    let name = tool["name"].as_str().expect("a name");
    let parameters = Parameters::of(tool);
    let told = |input: &Value| {
        let (status, body) = other.call(name, input, None);
        let is_told = body.to_string().contains(MARK) && !input.to_string().contains(MARK);
        assert!(!is_told, "{name} {input}: {body}");
        let code = body["error"]["details"]["code"].as_str().unwrap_or_default().to_owned();
        (status, code)
    };
    let more = match name {
        "exec_background" => json!({ "command": "true" }),
        "dag_start" => json!({ "yaml": "steps: [{ action: noop }]" }),
        "team" => json!({ "name": "zebra-t", "agent": "x", "to": "x", "content": "x" }),
        _ => json!({}),
    };
    let more = more.as_object().expect("one");
    let mut open = BTreeSet::new();
    for input in parameters.inputs() {
        told(&input);
    }
    for parameter in parameters.properties.keys() {
        let named = theirs.named_by(parameter);
        let mut refused = false;
        for (input, value) in
            parameters.inputs().iter().flat_map(|it| named.iter().map(move |value| (it, value)))
        {
            let mut with = input.clone();
            with.as_object_mut().expect("one").extend(more.clone());
            for mut input in [input.clone(), with] {
                input[parameter] = value.clone();
                let (status, code) = told(&input);
                let is_refusal = code == "not_owner"
                    || code.ends_with("_not_found")
                    || code.starts_with("unknown_");
                refused |= status != 200 && is_refusal;
            }
        }
        let names = parameter.split('_').any(|word| WORDS.contains(&word));
        if names && !refused {
            open.insert(parameter.clone());
        }
    }
    open
}

/// Asks each route with what is another user's.
fn ask(other: &Caller, theirs: &Theirs) {
    let (_, document) = other.request("GET", "/api/openapi.json", &Value::Null);
    let document: Value = serde_json::from_str(&document).expect("JSON");
    for (path, methods) in document["paths"].as_object().expect("routes") {
        if NOT_ASKED.contains(&&**path) {
            continue;
        }
        let artifact = theirs.artifact.as_str().unwrap_or_default();
        let id = match path {
            path if path.starts_with("/api/sessions") => &theirs.session,
            path if path.starts_with("/api/artifacts") => artifact,
            path if path.starts_with("/api/chats") => &theirs.chat,
            path if path.starts_with("/api/runs") => &theirs.run,
            path if path.starts_with("/api/tools") => "exec",
            _ => "x",
        };
        let asked = path.replace("{id}", id).replace("{name}", "x");
        for method in methods.as_object().expect("methods").keys() {
            let body = match path.starts_with("/api/chats") {
                true => json!({ "message": "x" }),
                false => json!({}),
            };
            let (status, body) = other.request(&method.to_uppercase(), &asked, &body);
            assert!(!body.contains(MARK), "{method} {asked}: {body}");
            let named = [&theirs.session[..], artifact, &theirs.chat, &theirs.run];
            let names = path.contains("{id}") && named.contains(&id);
            assert!(!names || status == 404, "{method} {asked}: {status} {body}");
            assert!(names || !body.contains(&theirs.session), "{method} {asked}: {body}");
        }
    }
}

pub fn nobody_reaches_what_is_anothers(house: House) {
    let listed = house.command().args(["tools", "--json"]).output().expect("runs").stdout;
    let listed: Value = serde_json::from_slice(&listed).expect("JSON");
    let theirs = Theirs::new(&house);
    let before = theirs.state();
    let other = Caller::new(&house, "other");
    let tools = listed.as_array().or(listed["tools"].as_array()).expect("tools").iter();
    let not_called: BTreeMap<&str, &str> = NOT_CALLED.into();
    let mut open = BTreeSet::new();
    for tool in tools.filter(|tool| !not_called.contains_key(tool["name"].as_str().expect("one"))) {
        let name = tool["name"].as_str().expect("a name").to_owned();
        open.extend(call(&other, &theirs, tool).into_iter().map(|it| (name.clone(), it)));
    }
    ask(&other, &theirs);
    assert_eq!(theirs.state(), before, "it was changed");
    let excepted = |(tool, parameter): &(String, String)| {
        EXCEPTIONS.iter().any(|(of, its, _)| (*of == "*" || of == tool) && its == parameter)
    };
    let unanswered: Vec<_> = open.iter().filter(|it| !excepted(it)).collect();
    assert!(unanswered.is_empty(), "they refuse nothing of another user's: {unanswered:?}");
    let stale = EXCEPTIONS.iter().filter(|(tool, parameter, _)| {
        !open.iter().any(|(of, its)| (*tool == "*" || tool == of) && its == parameter)
    });
    let stale: Vec<_> = stale.collect();
    assert!(stale.is_empty(), "they refuse what is excepted: {stale:?}");
}
