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

/// The daemon dies before and after the record of an answer and of a call: what was kept is not asked for again, and
/// what took effect does not take it again.
#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_kill_at_each_point_asks_and_does_nothing_twice() {
    for (point, interrupted) in [
        ("agent.turn_answered", 0),
        // No intent of a call is recorded: one that is due may have been begun.
        ("agent.turn_recorded", 1),
        ("agent.call_made", 1),
        ("agent.call_recorded", 0),
    ] {
        let home = home("").with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        call(&home, "aegis.agent.create", json!({ "manifest_yaml": MANIFEST }));
        // The daemon may be gone before it answers.
        home.run(&["call", "aegis.task.execute", "--json", r#"{ "agent_id": "keeper" }"#]);
        daemon.wait();
        let home = home.with("FAILPOINTS", "");
        let _again = home.daemon();
        let id = call(&home, "aegis.task.list", json!({}))["executions"][0]["id"].clone();
        let wait = json!({ "execution_id": id, "timeout_seconds": 60 });
        assert_eq!(call(&home, "aegis.task.wait", wait)["status"], "completed", "{point}");
        let scripts = call(&home, "aegis.script.list", json!({}));
        assert!(scripts["scripts"].as_array().is_some_and(|all| all.len() <= 1), "{scripts}");
        let all = types(&home, &id);
        let count = |event_type: &str| all.iter().filter(|it| *it == event_type).count();
        assert_eq!(count("llm_interaction"), 2, "{point}: {all:?}");
        assert_eq!(count("tool_invocation_interrupted"), interrupted, "{point}: {all:?}");
        let made = count("tool_invocation_completed") + interrupted;
        assert_eq!(made, 1, "{point}: {all:?}");
    }
}

/// A model that calls no tools by itself: a call in words that cannot be read is told, the file is written, the output
/// is rejected, and the next iteration knows why.
#[test]
fn a_model_without_tool_calls_writes_a_file_and_tries_again() {
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a folder"));
    let write = |content: &str| {
        let call = json!({ "tool": "fs_write",
            "arguments": { "path": "note.txt", "content": content } });
        json!({ "text": format!("I write.\n```tool_call\n{call}\n```\n") })
    };
    let replies = json!({ "replies": [
        { "text": "```tool_call\n{ tool: fs_write }\n```" },
        write("first"),
        { "text": "It is done." },
        write("second"),
        { "text": "It is kept." },
    ] });
    let script = home.path("replies.json");
    std::fs::write(&script, replies.to_string()).expect("writes");
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{ tools = \"text\" }} }}\n\
         [session.places.notes]\nfolder = {:?}\nread_only = false\n",
        folder.path()
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let manifest = MANIFEST.replace("aegis.script.save, aegis.script.list", "fs.write").replace(
        "  task:",
        "  execution: { mode: iterative, validation: [{ type: regex, pattern: kept }] }\n  task:",
    );
    call(&home, "aegis.agent.create", json!({ "manifest_yaml": manifest }));
    let id =
        call(&home, "aegis.task.execute", json!({ "agent_id": "keeper" }))["execution_id"].clone();
    let end = call(&home, "aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 60 }));
    assert_eq!(
        (&end["status"], &end["last_output"]),
        (&json!("completed"), &json!("It is kept.")),
        "{end}"
    );
    assert_eq!(end["iteration_count"], 2);
    let written = std::fs::read_to_string(folder.path().join("note.txt")).expect("reads");
    assert_eq!(written, "second");
    let logs = call(&home, "aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let events = logs["events"].as_array().expect("events");
    let of = |event_type: &str| {
        let all = events.iter().filter(|event| event["event_type"] == event_type);
        all.map(|event| event["payload"].clone()).collect::<Vec<_>>()
    };
    let failed = of("tool_invocation_failed");
    let told = failed[0]["error"]["message"].as_str().expect("text");
    assert!(failed.len() == 1 && told.contains("not readable as JSON"), "{failed:?}");
    assert_eq!(of("tool_invocation_completed").len(), 2);
    let prompt = of("iteration_started")[1]["prompt"].as_str().expect("text").to_owned();
    assert!(prompt.contains("Previous attempt failed: validation_failed"), "{prompt}");
}
