//! An MCP client made of nothing but lines, so that every byte is seen.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};

use crate::home::{Home, PATIENCE};

/// `hivekeep mcp` and its two ends.
pub(crate) struct Wire {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Wire {
    /// Starts `hivekeep mcp` with more arguments.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let args: Vec<_> = [&["mcp"], args].concat();
        let mut child = home
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program runs");
        let stdout = child.stdout.take().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, lines }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("not closed");
        writeln!(stdin, "{message}").expect("it reads");
    }

    /// The next line, which must be JSON-RPC: nothing else may be on this wire.
    pub(crate) fn receive(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Asks, and passes over notifications until the answer.
    pub(crate) fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.answer(id)
    }

    /// The answer to an earlier request.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            assert!(message.get("method").is_some(), "an answer to nothing: {message}");
        }
    }

    /// The handshake of 2025-11-25.
    pub(crate) fn initialize(&mut self) -> Value {
        let answer = self.ask(
            0,
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "wire", "version": "1"},
            }),
        );
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"].clone()
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, id: i64, tool: &str, arguments: Value) -> Value {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Closes the input and waits for the end; what was still said.
    pub(crate) fn finish(mut self) -> (std::process::ExitStatus, Vec<String>) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            rest.push(line);
        }
        (self.child.wait().expect("a child"), rest)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
