//! Executions of agents, driven from outside: a daemon that is killed while a model answers, and an agent that nobody
//! approves for but a person.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home::{Home, wait_until};

const MANIFEST: &str = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: keeper, version: 1.0.0 }\nspec:\n  \
    runtime: { language: python, version: '3.11' }\n  tools: [aegis.script.save, aegis.script.list]\n  \
    task: { instruction: Keep the script. }\n";

/// A home with a model that keeps a script, and then takes its time to say so.
fn home(more: &str) -> Home {
    let home = Home::new();
    let script = home.path("replies.json");
    let save = json!({ "name": "kept", "code": "echo kept" });
    let replies = json!({ "replies": [
        { "when": "Keep the script", "calls": [{ "name": "aegis_script_save", "arguments": save }] },
        { "when": "", "text": "It is kept now.", "delay_ms": 400 },
    ] });
    std::fs::write(&script, replies.to_string()).expect("writes");
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n{more}"
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

fn call(home: &Home, tool: &str, input: Value) -> Value {
    home.json(&["call", tool, "--json", &input.to_string()])
}

fn begun(home: &Home) -> Value {
    call(home, "aegis.agent.create", json!({ "manifest_yaml": MANIFEST }));
    let started = call(home, "aegis.task.execute", json!({ "agent_id": "keeper" }));
    assert_eq!(
        (&started["status"], &started["provider_kind"]),
        (&json!("started"), &json!("scripted"))
    );
    started["execution_id"].clone()
}

fn types(home: &Home, id: &Value) -> Vec<String> {
    let logs = call(home, "aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let events = logs["events"].as_array().expect("events").iter();
    events.map(|event| event["event_type"].as_str().expect("a type").to_owned()).collect()
}

#[test]
fn an_execution_goes_on_after_kill_9_and_does_nothing_twice() {
    let home = home("");
    let mut daemon = home.daemon();
    let id = begun(&home);
    let called = |home: &Home| types(home, &id).iter().any(|it| it == "tool_invocation_completed");
    wait_until("its call is made", || called(&home));
    // While the model answers.
    daemon.signal(Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let end = call(&home, "aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 60 }));
    assert_eq!(
        (&end["status"], &end["last_output"]),
        (&json!("completed"), &json!("It is kept now.")),
        "{end}"
    );
    let scripts = call(&home, "aegis.script.list", json!({}));
    assert_eq!(scripts["scripts"].as_array().map(Vec::len), Some(1), "{scripts}");
    wait_until("its session ends", || {
        types(&home, &id).last().is_some_and(|it| it == "session_closed")
    });
    let all = types(&home, &id);
    assert_eq!(all.iter().filter(|it| *it == "llm_interaction").count(), 2, "{all:?}");
    assert!(!all.iter().any(|it| it.ends_with("_interrupted")), "{all:?}");
    let sessions = home.ok(&["sessions"]);
    assert!(
        !sessions.lines().any(|line| line.contains("agent keeper") && !line.contains("ended")),
        "{sessions}"
    );
}
