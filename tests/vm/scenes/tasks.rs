//! Commands as tasks of an MCP client that leaves: they go on, are cancelled by their session, and are told
//! as lost when the daemon was killed.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::house::House;

/// How long anything may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// An MCP client that takes tasks, as lines on the daemon's socket.
struct Agent {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    session: String,
    asked: u64,
}

impl Agent {
    fn attach(house: &House, resume: Option<&str>) -> Self {
        let stream = UnixStream::connect(house.path().join("run/hivekeep.sock")).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let lines = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut agent = Self { stream, lines, session: String::new(), asked: 0 };
        agent.send(&json!({ "door": "mcp", "resume": resume }));
        let welcome = agent.receive();
        let session = welcome["welcome"]["session"].as_str();
        agent.session = session.unwrap_or_else(|| panic!("{welcome}")).to_owned();
        assert_eq!(welcome["welcome"]["resumed"], resume.is_some(), "{welcome}");
        let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
        agent.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "capabilities": { "extensions": extensions },
                "clientInfo": { "name": "agent", "version": "1" },
            }),
        );
        agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stream, "{message}").expect("it reads");
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line in time");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn get(&mut self, task: &str) -> Value {
        self.ask("tasks/get", json!({ "taskId": task }))
    }

    /// Makes a call: its result, or its task.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The result of a call, also when it becomes a task.
    fn result(&mut self, tool: &str, arguments: Value) -> Value {
        let made = self.call(tool, arguments);
        let result = match made["taskId"].as_str() {
            Some(task) => self.over(task)["result"].clone(),
            None => made,
        };
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// The task of a command that takes long.
    fn begin(&mut self, command: &str) -> String {
        let args = json!({ "workspace_id": "w", "command": command, "timeout_secs": 300 });
        let made = self.call("exec", args);
        assert_eq!(made["status"], "working", "{made}");
        made["taskId"].as_str().expect("an id").to_owned()
    }

    fn over(&mut self, task: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = self.get(task);
            if found["status"] != "working" {
                return found;
            }
            assert!(Instant::now() < until, "it does not end: {found}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the command runs in the workspace.
    fn sleeps(&mut self) -> bool {
        let look = "for p in /proc/[0-9]*; do [ \"$(tr '\\0' ' ' <$p/cmdline 2>/dev/null)\" = 'sleep 4711 ' ] \
                    && echo found; done; true";
        let ran = self.result("exec", json!({ "workspace_id": "w", "command": look }));
        !ran["stdout"].as_str().expect("a text").is_empty()
    }

    fn until(&mut self, what: &str, sleeps: bool) {
        let until = Instant::now() + PATIENCE;
        while self.sleeps() != sleeps {
            assert!(Instant::now() < until, "never: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub fn a_command_outlives_its_client_and_is_told_by_the_next_daemon(mut house: House) {
    let mut agent = Agent::attach(&house, None);
    agent.result("workspace_create", json!({ "name": "w" }));
    let (long, short) = (agent.begin("exec sleep 4711"), agent.begin("sleep 2; echo done; exit 3"));
    agent.until("the command runs", true);
    let session = agent.session.clone();
    drop(agent);

    let mut agent = Agent::attach(&house, Some(&session));
    assert!(agent.sleeps(), "it went with its client");
    assert_eq!(agent.get(&long)["status"], "working");
    let ended = agent.over(&short);
    let output = &ended["result"]["structuredContent"];
    assert_eq!((&output["exit_code"], &output["stdout"]), (&json!(3), &json!("done\n")), "{ended}");
    agent.ask("tasks/cancel", json!({ "taskId": long }));
    assert_eq!(agent.over(&long)["status"], "cancelled");
    agent.until("the command is gone", false);

    let lost = agent.begin("exec sleep 4711");
    drop(agent);
    house.kill();
    house.start();
    let mut agent = Agent::attach(&house, Some(&session));
    let told = agent.get(&lost);
    assert_eq!(told["status"], "failed", "{told}");
    let error = &told["error"]["data"]["error"];
    assert_eq!(
        (&error["code"], &error["details"]["outcome"]),
        (&json!("daemon_restarted"), &json!("unknown"))
    );
    assert_eq!(agent.get(&short)["result"], ended["result"], "it is kept");
    let ran = agent.result("exec", json!({ "workspace_id": "w", "command": "echo here" }));
    assert_eq!(ran["stdout"], "here\n", "the workspace outlives the daemon");
    agent.result("workspace_destroy", json!({ "workspace_id": "w" }));
}
