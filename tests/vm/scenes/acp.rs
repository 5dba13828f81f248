//! A program that speaks the Agent Client Protocol, in a sandbox: it asks a person, and the daemon is killed meanwhile.

use std::{fs::OpenOptions, io::Write, thread, time::Instant};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

/// Asks whether it may, writes a file by a command, and has the daemon read it.
const PROGRAM: &str = r#"
say() { printf '%s\n' "$1"; }
echo "I greet nobody"
while IFS= read -r line; do
  case $line in
  *'"method":"initialize"'*) say '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}' ;;
  *'"method":"session/new"'*) say '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}' ;;
  *'"method":"session/prompt"'*)
    options='[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]'
    call='{"toolCallId":"t","title":"echo a penny","kind":"execute"}'
    say '{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"sessionId":"s","toolCall":'"$call"',"options":'"$options"'}}' ;;
  *'"id":"p"'*'"optionId":"yes"'*)
    [ -e paid ] && exit 9
    echo a penny > paid
    say '{"jsonrpc":"2.0","id":"r","method":"fs/read_text_file","params":{"sessionId":"s","path":"/workspace/paid"}}' ;;
  *'"id":"r"'*)
    text=${line##*content\":\"}
    say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I paid '"${text%%\\*}"'."}}}}'
    say '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}' ;;
  esac
done
"#;

fn waiting(house: &House) -> Option<Value> {
    let listed = house.command().args(["approvals", "--json"]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&listed.stdout).ok()?;
    listed.get(0).cloned()
}

/// Waits until somebody is asked.
fn asked(house: &House) -> Value {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(asked) = waiting(house) {
            return asked;
        }
        assert!(Instant::now() < limit, "nobody is asked: {}", house.stderr());
        thread::sleep(std::time::Duration::from_millis(50));
    }
}

pub fn a_program_by_acp_asks_a_person_and_outlives_the_daemon(mut house: House) {
    let config = house.path().join("config.toml");
    let mut file = OpenOptions::new().append(true).open(config).expect("the configuration");
    // Its model, which it does not ask.
    file.write_all(
        b"[model.provider.p]\nkind = \"openai-compatible\"\nendpoint = \"http://127.0.0.1:9/v1\"\nmodels = { m = {} }\n",
    )
    .expect("written");
    house.restart();
    let ask = ["policy", "add", "careful", "ask", "agent_permit"];
    assert!(house.command().args(ask).status().expect("it runs").success());
    let command = json!({ "argv": ["bash", "-c", PROGRAM], "wire": "chat", "protocol": "acp" });
    let manifest = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "payer", "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11", "model": "p", "command": command },
            "task": { "instruction": "Pay." },
        },
    });
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
    let begun = house.call("aegis.task.execute", json!({ "agent_id": "payer" }));
    let id = begun["execution_id"].clone();
    let first = asked(&house);
    assert!(first["input"].as_str().expect("a text").contains("echo a penny"), "{first}");
    house.restart();
    let again = asked(&house);
    assert_ne!(again["id"], first["id"], "the one before went with its daemon");
    let approve = ["approvals", "approve", again["id"].as_str().expect("an id")];
    assert!(house.command().args(approve).status().expect("it runs").success());
    let wait = json!({ "execution_id": id, "timeout_seconds": 50 });
    let end = house.call("aegis.task.wait", wait);
    assert_eq!(
        (&end["status"], &end["last_output"]),
        (&json!("completed"), &json!("I paid a penny.")),
        "{end}"
    );
    let logs = house.call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
    let events = logs["events"].as_array().expect("events").iter();
    assert_eq!(events.filter(|event| event["event_type"] == "program_started").count(), 1);
}
