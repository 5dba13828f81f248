//! Who may operate a workspace, when its session is there and when it is gone.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::house::{House, Kind};

/// An MCP client over stdio, by hand.
struct Client {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn attach(house: &House) -> Self {
        let mut process = house
            .command()
            .args(["mcp", "--no-spawn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut client = Self { process, input, output, next: 1 };
        client.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("the client reads");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("an answer") > 0, "the client ended");
            let answer: Value = serde_json::from_str(&line).expect("only protocol on stdout");
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[test]
fn a_workspace_outlives_its_session_and_can_be_adopted() {
    let Some(house) = House::open(Kind::Sandbox) else { return };
    let mut client = Client::attach(&house);
    let made = client.call("workspace_create", json!({ "name": "w" }));
    assert_eq!(made["structuredContent"]["state"], "running", "{made}");
    // The command line has a session of its own.
    let exec = json!({ "workspace_id": "w", "command": "true" });
    assert_eq!(house.refused("exec", exec.clone()).code, "not_owner");
    assert_eq!(house.list()[0]["owned"], false);
    for force in [false, true] {
        let args = json!({ "workspace_id": "w", "force": force });
        assert_eq!(house.refused("workspace_adopt", args).code, "owner_active", "force: {force}");
    }
    assert_eq!(house.call("workspace_adopt", json!({}))["adopted_count"], 0, "it is in use");

    let sessions = house.ask(json!({ "method": "sessions", "params": {} })).expect("listed");
    let rows = sessions["sessions"].as_array().or(sessions.as_array()).expect("a list").clone();
    let row = rows.iter().find(|row| row["door"] == "mcp_stdio").expect("the client's session");
    let id = row["session"].as_str().or(row["id"].as_str()).expect("an id").to_owned();
    drop(client);
    house.ask(json!({ "method": "end_session", "params": { "session": id } })).expect("ended");

    assert_eq!(house.list()[0]["state"], "running", "the machine went with its session");
    let adopted = house.call("workspace_adopt", json!({}));
    assert_eq!(adopted["adopted_count"], 1, "{adopted}");
    assert_eq!(house.call("exec", exec)["exit_code"], 0);
}
