//! An agent's thought that goes on from an earlier turn, in the machine of that turn: its disk, and what ran in it.

use std::{
    fs::OpenOptions,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

/// Writes what the turn is to the disk and to memory, and says it at the end.
fn replies() -> Value {
    let run = |command: &str| json!([{ "name": "bash", "arguments": { "command": command } }]);
    let first = run("echo one > /workspace/note; echo 1 > /dev/shm/n");
    let second = || json!({ "calls": run("echo two >> /workspace/note; echo 2 > /dev/shm/n") });
    let look = run("tr '\\n' , < /workspace/note; cat /dev/shm/n");
    let done = || json!({ "text": "Done." });
    json!({ "replies": [
        { "when": "Task: count", "calls": first },
        { "when": "Now look.", "calls": look },
        { "when": "one,1", "text": "It is as it was." },
        second(), done(), second(), done(),
    ] })
}

pub fn a_thought_goes_on_in_the_machine_of_its_turn(mut house: House) {
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
        "metadata": { "name": "counter", "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11", "isolation": "microvm" },
            "execution": { "checkpoint": "turn" },
            "tools": ["bash"],
            "task": { "instruction": "Count." },
        },
    });
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
    let wait = |house: &House, id: &Value| {
        house.call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 100 }))
    };
    let asked = json!({ "agent_id": "counter", "intent": "count" });
    let id = house.call("aegis.task.execute", asked)["execution_id"].clone();
    let end = wait(&house, &id);
    assert_eq!(end["last_output"], "Done.", "{end}");
    let look = json!({ "instruction": "Now look." });
    let forks = json!({ "execution_id": id, "at": { "turn": 1 }, "variations": [look, look] });
    let forks = house.call("agent_fork", forks)["execution_ids"].clone();
    for fork in forks.as_array().expect("ids") {
        let end = wait(&house, fork);
        assert_eq!(end["last_output"], "It is as it was.", "{end}");
    }
    assert_eq!(house.list().len(), 3, "each has a machine of its own");

    let asked = json!({ "agent_id": "counter", "intent": "count", "chat": true });
    let chat = house.call("aegis.task.execute", asked)["execution_id"].clone();
    let rests = |house: &House| {
        let limit = Instant::now() + PATIENCE;
        loop {
            let now = house.call("aegis.task.status", json!({ "execution_id": chat }));
            if now["waiting_for"] == "message" {
                return now["last_output"].clone();
            }
            assert!(Instant::now() < limit, "{now}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(rests(&house), "Done.");
    let back = json!({ "execution_id": chat, "to": { "turn": 1 }, "instruction": "Now look." });
    assert_eq!(house.call("agent_rewind", back)["machine"], "restored");
    assert_eq!(rests(&house), "It is as it was.");
    house.call("aegis.task.cancel", json!({ "execution_id": chat }));
}
