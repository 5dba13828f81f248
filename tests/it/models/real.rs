//! A real small language model behind llama.cpp's own server, which the daemon starts: over OpenAI's wire, over
//! Anthropic's, as an agent that writes a file, and as one whose answer is rejected.
//!
//! One thread, few tokens: the machine may be busy, and ggml's threads wait for each other by spinning.

use std::{net::TcpListener, path::PathBuf, time::Duration};

use serde_json::json;

use super::home;
use crate::home::{Home, PATIENCE};

/// What the step of the tests has installed: Python with `xllamacpp`, and the model's file.
fn installed(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("the step sets it").into()
}

fn started(python: &std::path::Path, model: &std::path::Path) -> Home {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let server = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/llama_server.py");
    let folder = |path: &std::path::Path| path.parent().expect("a folder").to_owned();
    let environment = folder(&folder(python));
    let runtime = folder(&folder(&python.canonicalize().expect("it is there")));
    let home = home("");
    let config = format!(
        "[model.provider.local]\nkind = \"llama-server\"\nendpoint = \"http://127.0.0.1:{port}/v1\"\n\
         command = [{python:?}, {server:?}, {model:?}, \"{port}\"]\nfolders = [{environment:?}, {runtime:?}, {:?}, {:?}]\n\
         models = {{ smol = {{ max_output_tokens = 16 }}, writer = {{ max_output_tokens = 64, tools = \"json\" }} }}\n\
         [model.provider.claude]\nkind = \"anthropic\"\nendpoint = \"http://127.0.0.1:{port}/v1\"\n\
         models = {{ smol = {{ max_output_tokens = 16 }} }}\n\
         [model.alias.default]\nmodels = [\"local/smol\"]\n\
         [agent]\nmax_turns = 2\n[session.places.notes]\nfolder = {:?}\nread_only = false\n",
        folder(&server),
        folder(model),
        home.path("notes"),
    );
    std::fs::create_dir(home.path("notes")).expect("a folder");
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

/// An agent whose answers the server holds to the schemas of its tools. So small a model writes the file, and does not
/// know when to stop: its turns are over, it is told so, and tries again.
fn writes_a_file(home: &Home) {
    let manifest = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: writer, version: 1.0.0 }\nspec:\n  \
        runtime: { language: python, version: '3.11', model: local/writer, temperature: 0.0 }\n  tools: [fs.write]\n  \
        execution: { mode: iterative, max_iterations: 2 }\n  \
        task: { instruction: Write the file note.txt with the content hello. }\n";
    let call = |tool: &str, input: serde_json::Value| {
        home.json(&["call", tool, "--json", &input.to_string()])
    };
    call("aegis.agent.create", json!({ "manifest_yaml": manifest }));
    let id = call("aegis.task.execute", json!({ "agent_id": "writer" }))["execution_id"].clone();
    let end = call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 120 }));
    assert!(["completed", "failed"].contains(&end["status"].as_str().unwrap_or_default()), "{end}");
    let logs = call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let events = logs["events"].as_array().expect("events");
    let of = |event_type: &str| {
        events.iter().filter(|it| it["event_type"] == event_type).collect::<Vec<_>>()
    };
    assert!(!of("tool_invocation_completed").is_empty(), "{events:?}");
    let unreadable = |it: &&&serde_json::Value| it["payload"]["name"] == "unreadable_call";
    assert_eq!(of("tool_invocation_failed").iter().filter(unreadable).count(), 0, "{events:?}");
    let written = std::fs::read_to_string(home.path("notes/note.txt")).expect("it is written");
    assert!(written.to_lowercase().contains("hello"), "{written}");
    if let [_, second] = &of("iteration_started")[..] {
        assert!(second["payload"]["prompt"].to_string().contains("turns_exhausted"), "{second}");
    }
}

/// An agent whose first answer fails its validation. It is told why, and its next one is what was wanted, and in a file.
fn is_told_why_it_failed(home: &Home) {
    let manifest = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: guesser, version: 1.0.0 }\nspec:\n  \
        runtime: { language: python, version: '3.11', model: local/smol, temperature: 0.0 }\n  \
        execution: { mode: iterative, max_iterations: 3, validation: [{ type: regex, pattern: Paris }] }\n  \
        output_handler: { type: mcp_tool, tool_name: fs.write, arguments: { path: city.txt, content: '{{output}}' } }\n  \
        task: { instruction: Name a city. }\n";
    let call = |tool: &str, input: serde_json::Value| {
        home.json(&["call", tool, "--json", &input.to_string()])
    };
    call("aegis.agent.create", json!({ "manifest_yaml": manifest }));
    let id = call("aegis.task.execute", json!({ "agent_id": "guesser" }))["execution_id"].clone();
    let end = call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 120 }));
    assert_eq!(end["status"], "completed", "{end}");
    let logs = call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let events = logs["events"].as_array().expect("events");
    let mut prompts = events.iter().filter(|it| it["event_type"] == "iteration_started");
    let second = prompts.nth(1).expect("the first city is another one");
    assert!(second["payload"]["prompt"].to_string().contains("does not match `Paris`"), "{second}");
    let written = std::fs::read_to_string(home.path("notes/city.txt")).expect("it is written");
    assert!(written.contains("Paris"), "{written}");
}

#[test]
#[ignore = "needs a model: `cargo xtask test --only models`"]
fn a_real_model_answers_over_two_wires_and_its_server_ends_with_the_daemon() {
    let [python, model] =
        ["TEST_HIVEKEEP_LLAMA_PYTHON", "TEST_HIVEKEEP_LLAMA_MODEL"].map(installed);
    let home = started(&python, &model);
    let daemon = home.daemon();
    for (backend, kind) in [("local", "llama-server"), ("claude", "anthropic")] {
        let args = json!({ "prompt": "Name the capital of France.", "temperature": 0.0,
            "max_tokens": 12, "backend": backend, "model": "smol" });
        let answer = home.json(&["call", "ml_generate", "--json", &args.to_string()]);
        let said = answer["response"].as_str().unwrap_or_default();
        assert!(said.contains("Paris"), "{answer}");
        assert_eq!((&answer["backend"], &answer["provider_kind"]), (&json!(backend), &json!(kind)));
        let usage = &answer["usage"];
        assert!(usage.get("estimated").is_none(), "it counts: {answer}");
        let tokens = usage["output_tokens"].as_u64().unwrap_or_default();
        assert!((1..=16).contains(&tokens), "{answer}");
    }
    let schema = json!({ "type": "object", "required": ["ok"], "additionalProperties": false,
        "properties": { "ok": { "type": "boolean" } } });
    let args =
        json!({ "prompt": "Is water wet? Answer in JSON.", "temperature": 0.0, "schema": schema });
    let answer = home.json(&["call", "ml_generate", "--json", &args.to_string()]);
    assert!(answer["structured"]["ok"].is_boolean(), "{answer}");

    writes_a_file(&home);
    is_told_why_it_failed(&home);
    let listed = home.ok(&["ps"]);
    assert!(listed.contains("server"), "the server is in the tree: {listed}");
    let port = home.json(&["models", "--json"])["backends"].clone();
    assert!(
        port.as_array().is_some_and(|all| all.iter().all(|it| it["available"] == true)),
        "{port}"
    );
    daemon.signal(rustix::process::Signal::KILL);
    drop(daemon);
    let config = std::fs::read_to_string(home.path("config.toml")).expect("reads");
    let address = config.split("http://").nth(1).and_then(|it| it.split('/').next()).expect("one");
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the server outlives its daemon");
        std::thread::sleep(Duration::from_millis(100));
    }
}
