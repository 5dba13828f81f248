//! Commands of an agent whose daemon is killed while one runs, and between its effect and its record.

use std::{
    fs::OpenOptions,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

/// Notes that it began, and takes its time. What it says does not stand in it.
const COMMAND: &str = "echo x >> /workspace/began; sleep 3; echo it has $(echo ended)";

fn replies() -> Value {
    let run = json!({ "command": "sh", "args": ["-c", COMMAND] });
    let script = json!({ "command": COMMAND });
    let calls = |name: &str, arguments: &Value| json!([{ "name": name, "arguments": arguments }]);
    json!({ "replies": [
        { "when": "Task: run", "calls": calls("cmd_run", &run) },
        { "when": "Task: script", "calls": calls("bash", &script) },
        { "when": "Task: process", "calls": calls("process_start", &run) },
        { "when": "it has ended", "text": "I saw its end." },
        { "when": "pid", "text": "I saw its start." },
        { "when": "", "text": "I saw nothing." },
    ] })
}

pub fn a_command_of_an_agent_is_run_once_whatever_kills_the_daemon(mut house: House) {
    let script = house.path().join("replies.json");
    std::fs::write(&script, replies().to_string()).expect("written");
    let config = house.path().join("config.toml");
    let mut file = OpenOptions::new().append(true).open(config).expect("the configuration");
    write!(
        file,
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n"
    )
    .expect("written");
    house.restart();
    let manifest = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "runner", "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11" },
            "tools": ["cmd.run", "bash", "process_start"],
            "task": { "instruction": "Run it." },
        },
    });
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
    let begun = |house: &House, intent: &str| {
        let asked = json!({ "agent_id": "runner", "intent": intent });
        house.call("aegis.task.execute", asked)["execution_id"].clone()
    };

    let id = begun(&house, "run");
    began(&house, &id);
    house.kill();
    house.start();
    ran_once(&house, &id, "I saw its end.");

    // Between the effect and its record; of the process also before its start is recorded.
    for (intent, point, told) in [
        ("run", "agent.call_made", "I saw its end."),
        ("script", "agent.call_made", "I saw its end."),
        ("process", "agent.call_made", "I saw its start."),
        ("process", "job.after_start", "I saw its start."),
    ] {
        house.kill();
        house.start_armed(&format!("{point}=return(kill)"));
        let id = begun(&house, intent);
        house.wait_for_death();
        house.start();
        ran_once(&house, &id, told);
    }
}

/// Content of the file that a command begins, once it is there and its machine is not being stopped.
fn began(house: &House, id: &Value) -> Value {
    let limit = Instant::now() + PATIENCE;
    loop {
        let file = json!({ "execution_id": id, "path": "began" });
        match house.try_call("aegis.execution.file", file) {
            Ok(file) => return file["content"].clone(),
            Err(refused) => assert!(Instant::now() < limit, "it does not begin: {refused:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn ran_once(house: &House, id: &Value, told: &str) {
    let end = house.call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 100 }));
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!(told)), "{end}");
    assert_eq!(began(house, id), "x\n", "its effect is there once");
    let logs = house.call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let interrupted = |event: &&Value| event["event_type"] == "tool_invocation_interrupted";
    let events = logs["events"].as_array().expect("events");
    assert_eq!(events.iter().filter(interrupted).count(), 0, "{events:?}");
}
