//! Messages that wait are told beside the answers of other tools, and a trace goes through to a
//! command: by clients made of nothing but lines, which see each part of an answer.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::house::House;

pub const CONFIG: &str = "[http.mcp]\nenabled = true\nbind = \"127.0.0.1:0\"\n";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// An agent that calls tools.
trait Agent {
    /// The result of a call with more fields of `_meta`.
    fn ask(&mut self, tool: &str, arguments: Value, meta: Value) -> Value;

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask(tool, arguments, json!({}));
        assert_eq!(result["isError"], false, "{result}");
        result
    }

    /// What an answer of a tool that has nothing to do with teams tells.
    fn waiting(&mut self) -> (u64, u64) {
        told(&self.call("workspace_list", json!({})))
    }

    fn until(&mut self, house: &House, wanted: (u64, u64)) {
        let begun = Instant::now();
        while self.waiting() != wanted {
            assert!(begun.elapsed() < Duration::from_secs(60), "{wanted:?}\n{}", house.stderr());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Messages and results that an answer says wait. The line and the field say the same, and nothing
/// else is touched by them.
fn told(result: &Value) -> (u64, u64) {
    let content = result["content"].as_array().expect("content");
    let text = content[0]["text"].as_str().expect("text");
    let value: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(value, result["structuredContent"], "{result}");
    let field = &result["_meta"]["hivekeep/waiting"];
    if field.is_null() {
        assert_eq!(content.len(), 1, "{result}");
        return (0, 0);
    }
    let line = content[1]["text"].as_str().expect("a line");
    let counts = [&field["messages"], &field["results"]].map(|n| n.as_u64().expect("a count"));
    let from = field["oldest"]["from"].as_str().expect("a sender");
    for said in [format!("from `{from}`"), format!("for {} s", field["oldest"]["age_secs"])] {
        assert!(line.contains(&said) && !line.contains('\n'), "{line}");
    }
    (counts[0], counts[1])
}

/// `hivekeep mcp`, which finds the next daemon by itself.
struct LineClient {
    child: Child,
    writes: ChildStdin,
    reads: BufReader<ChildStdout>,
    id: u64,
}

impl LineClient {
    fn attach(house: &House) -> Self {
        let mut command = house.command();
        command.args(["mcp", "--no-spawn"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it attaches");
        let (writes, reads) = (child.stdin.take(), child.stdout.take());
        let (writes, reads) = (writes.expect("piped"), BufReader::new(reads.expect("piped")));
        let mut agent = Self { child, writes, reads, id: 0 };
        agent.request("initialize", initialize());
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(agent.writes, "{initialized}").expect("it reads");
        agent
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        writeln!(self.writes, "{request}").expect("it reads");
        loop {
            let mut line = String::new();
            assert!(self.reads.read_line(&mut line).expect("a line") > 0, "it has ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == self.id {
                return message;
            }
        }
    }
}

impl Drop for LineClient {
    fn drop(&mut self) {
        let _ended = (self.child.kill(), self.child.wait());
    }
}

impl Agent for LineClient {
    fn ask(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        self.request("tools/call", params)["result"].clone()
    }
}

fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "lines", "version": "1" },
    })
}

/// Requests of 2026-07-28 without a handshake, in the session of their credential.
struct Http {
    address: String,
    token: String,
}

impl Http {
    fn of(house: &House) -> Self {
        let status = house.ask(json!({ "method": "status", "params": {} })).expect("it serves");
        let url = status["mcp_http"].as_str().expect("the door is open");
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let token = std::fs::read_to_string(house.path().join("state/mcp-token")).expect("made");
        Self { address, token: token.trim().to_owned() }
    }
}

impl Agent for Http {
    fn ask(&mut self, tool: &str, arguments: Value, mut meta: Value) -> Value {
        for (key, value) in [
            ("protocolVersion", json!("2026-07-28")),
            ("clientInfo", json!({ "name": "lines", "version": "1" })),
            ("clientCapabilities", json!({})),
        ] {
            meta[format!("io.modelcontextprotocol/{key}")] = value;
        }
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(90))).expect("a socket");
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let lines = answer.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let mut messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let message = messages.find(|message| message["jsonrpc"] == "2.0");
        message.unwrap_or_else(|| panic!("no message in {answer}"))["result"].clone()
    }
}

/// What the hook tells its client; nothing when it says nothing.
fn hook(house: &House) -> Value {
    let mut command = house.command();
    command.args(["hook", "inbox"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hook = command.spawn().expect("it runs");
    let event = json!({ "hook_event_name": "PostToolUse", "tool_name": "Bash" });
    write!(hook.stdin.take().expect("piped"), "{event}").expect("it reads");
    let output = hook.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn plan(name: &str) -> Value {
    let roles = ["boss", "hand"].map(|one| json!({ "name": one, "role": "any" }));
    json!({ "action": "create", "name": name, "roles": roles })
}

fn speech(name: &str, from: &str, to: &str, content: &str) -> Value {
    json!({ "action": "message", "name": name, "agent": from, "to": to, "content": content })
}

fn receive(name: &str, agent: &str) -> Value {
    json!({ "action": "receive", "name": name, "agent": agent })
}

pub fn waiting_messages_are_told_beside_any_answer(mut house: House) {
    let (mut mine, mut other) = (LineClient::attach(&house), LineClient::attach(&house));
    mine.call("team", plan("crew"));
    assert_eq!(mine.waiting(), (0, 0));
    mine.call("team", speech("crew", "hand", "boss", "done"));
    mine.until(&house, (1, 0));
    let mut task = speech("crew", "boss", "hand", r#"{ "task_id": "t", "command": "echo done" }"#);
    task["message_type"] = json!("task_assignment");
    mine.call("team", task);
    mine.until(&house, (1, 1));
    // A refusal says it, too.
    let refused = mine.ask("workspace_info", json!({ "workspace_id": "none" }), json!({}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["_meta"]["hivekeep/waiting"]["messages"], 1, "{refused}");
    assert_eq!((other.waiting(), Http::of(&house).waiting()), ((0, 0), (0, 0)), "nobody else's");
    // A hook that the same client starts, as this test is the client of both.
    let output = hook(&house)["hookSpecificOutput"].clone();
    assert_eq!(output["hookEventName"], "PostToolUse");
    let line = output["additionalContext"].as_str().expect("a line");
    assert!(line.contains("1 message and 1 result wait") && !line.contains('\n'), "{line}");

    house.kill();
    house.start();
    mine.until(&house, (1, 1));
    // The answer that brings it does not announce it.
    assert_eq!(told(&mine.call("team", receive("crew", "boss"))), (0, 1));
    assert_eq!(told(&mine.call("team", receive("crew", "hand"))), (0, 0));
    assert_eq!((mine.waiting(), hook(&house)), ((0, 0), Value::Null));

    let mut http = Http::of(&house);
    http.call("team", plan("other"));
    http.call("team", speech("other", "hand", "boss", "over HTTP"));
    http.until(&house, (1, 0));
    assert_eq!(mine.waiting(), (0, 0));

    // Off by configuration.
    let file = house.path().join("config.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, config + "[team]\nannounce_waiting = false\n").expect("written");
    house.stop(false);
    house.start();
    let mut http = Http::of(&house);
    let received = http.call("team", receive("other", "boss"));
    assert_eq!(received["structuredContent"]["count"], 1, "{received}");
    http.call("team", speech("other", "hand", "boss", "unheard"));
    assert_eq!(http.waiting(), (0, 0));
    http.call("team", json!({ "action": "destroy", "name": "other" }));
    mine.call("team", json!({ "action": "destroy", "name": "crew" }));
    house.stop(false);
    assert_eq!(hook(&house), Value::Null, "without a daemon, and starting none");
}

pub fn a_trace_goes_through_to_commands(house: House) {
    let mut agent = LineClient::attach(&house);
    agent.call("workspace_create", json!({ "name": "w" }));
    let set = json!({ "workspace_id": "w", "vars": { "TRACESTATE": "an=earlier" } });
    agent.call("set_env", set);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let print = "echo \"$TRACEPARENT|$TRACESTATE\"";
    let exec = json!({ "workspace_id": "w", "command": print });
    let mut said = |arguments: &Value, meta: Value| {
        let result = agent.ask("exec", arguments.clone(), meta);
        result["structuredContent"]["stdout"].as_str().expect("text").trim().to_owned()
    };
    let both = json!({ "traceparent": parent, "tracestate": "a=1,b=2" });
    assert_eq!(said(&exec, both.clone()), format!("{parent}|a=1,b=2"));
    assert_eq!(said(&exec, json!({ "traceparent": parent })), format!("{parent}|"));
    assert_eq!(said(&exec, json!({ "traceparent": "00-0-0-01" })), "|an=earlier");
    assert_eq!(said(&exec, json!({ "traceparent": 7 })), "|an=earlier");
    // The caller's own comes first.
    let mut own = exec.clone();
    own["env"] = json!({ "TRACEPARENT": "mine" });
    assert_eq!(said(&own, both.clone()), "mine|an=earlier");

    let job = json!({ "workspace_id": "w", "action": "start", "command": print });
    let job = agent.ask("exec_background", job, both.clone())["structuredContent"].clone();
    let poll = json!({ "workspace_id": "w", "action": "poll", "job_id": job["job_id"] });
    let begun = Instant::now();
    loop {
        let polled = agent.call("exec_background", poll.clone());
        if polled["structuredContent"]["stdout"] == format!("{parent}|a=1,b=2\n") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{polled}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let run = json!({ "place": "w", "command": "env" });
    let run = agent.ask("bash", run, both);
    assert!(run.to_string().contains(&parent), "{run}");

    let mut events = house.command();
    let events = events.args(["events", "--json"]).output().expect("it runs").stdout;
    let events = String::from_utf8(events).expect("UTF-8");
    let traced = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let traced = traced.filter(|event| event["data"]["trace_id"] == TRACE);
    let tools: Vec<_> = traced.map(|event| event["data"]["tool"].clone()).collect();
    assert_eq!(tools, ["exec", "exec", "exec", "exec_background", "bash"]);
    agent.call("workspace_destroy", json!({ "workspace_id": "w" }));
}
