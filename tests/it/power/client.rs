//! An MCP client that may find its daemon gone.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::home::{Home, PATIENCE};

/// A connection to the daemon's socket, and the session behind it.
pub(crate) struct Client {
    lines: BufReader<UnixStream>,
    pub(crate) session: String,
}

impl Client {
    /// Connects; `None` when nobody listens any more.
    pub(crate) fn connect(home: &Home) -> Option<Self> {
        let stream = UnixStream::connect(home.socket()).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut client = Self { lines: BufReader::new(stream), session: String::new() };
        client.say(&json!({"door": "mcp"}))?;
        let welcome = client.hear()?;
        client.session = welcome["welcome"]["session"].as_str().expect("a session").to_owned();
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "power", "version": "1"},
        });
        client.ask("initialize", &params)?;
        Some(client)
    }

    /// Calls a tool; `None` when the daemon is gone before it answers.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Option<Value> {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        Some(answer["result"].clone())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))?;
        loop {
            let message = self.hear()?;
            if message.get("method").is_none() {
                return Some(message);
            }
        }
    }

    fn say(&mut self, message: &Value) -> Option<()> {
        writeln!(self.lines.get_mut(), "{message}").ok()
    }

    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}
