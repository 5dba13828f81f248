//! The client that is measured with: it writes prepared lines to a pipe and reads lines, and does
//! as little as possible. A library's share, equal on both sides of a comparison, would move their
//! ratio towards one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

const PROTOCOL: &str = "2025-11-25";

/// A server of standard input and output, attached to.
pub(crate) struct StdioClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    next_id: u64,
}

impl StdioClient {
    /// Starts the server and shakes hands.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let input = child.stdin.take().context("a piped child has an input")?;
        let output = child.stdout.take().context("a piped child has an output")?;
        let output = BufReader::with_capacity(256 * 1024, output);
        let mut client = Self { child, input, output, line: Vec::new(), next_id: 1 };
        let about = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": { "name": "hivekeep-bench", "version": "1" },
        });
        client.request("initialize", &about)?;
        client
            .input
            .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(client)
    }

    /// A tool call that must succeed; its structured result.
    pub(crate) fn call(&mut self, tool: &str, args: &Value) -> Result<Value> {
        Ok(self.timed(tool, args)?.1)
    }

    /// Calls a tool, and returns also the time until the answer is there, not yet parsed.
    pub(crate) fn timed(&mut self, tool: &str, args: &Value) -> Result<(Duration, Value)> {
        let params = json!({ "name": tool, "arguments": args });
        let (took, mut result) = self.timed_request("tools/call", &params)?;
        ensure!(result["isError"] != true, "{tool}: {}", result["content"][0]["text"]);
        Ok((took, result["structuredContent"].take()))
    }

    /// The result of a request.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        Ok(self.timed_request(method, params)?.1)
    }

    fn timed_request(&mut self, method: &str, params: &Value) -> Result<(Duration, Value)> {
        let began = Instant::now();
        self.send(&line(self.next_id, method, params))?;
        self.receive()?;
        let took = began.elapsed();
        let mut answer: Value = serde_json::from_slice(&self.line)?;
        ensure!(answer["id"] == self.next_id, "another request was answered");
        self.next_id += 1;
        ensure!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
        Ok((took, answer["result"].take()))
    }

    /// Time of each of `count` equal calls, one after the other, in microseconds.
    pub(crate) fn round_trips_us(
        &mut self,
        tool: &str,
        args: &Value,
        count: usize,
    ) -> Result<Vec<f64>> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let call = self.prepared(tool, args);
            let began = Instant::now();
            self.send(&call)?;
            self.receive()?;
            taken.push(began.elapsed().as_secs_f64() * 1e6);
            self.check()?;
        }
        Ok(taken)
    }

    /// Time of `count` equal calls of which `in_flight` are under way at a time.
    pub(crate) fn pipelined(
        &mut self,
        tool: &str,
        args: &Value,
        count: usize,
        in_flight: usize,
    ) -> Result<Duration> {
        let calls: Vec<_> = (0..count).map(|_| self.prepared(tool, args)).collect();
        let began = Instant::now();
        let mut calls = calls.into_iter();
        for call in calls.by_ref().take(in_flight) {
            self.send(&call)?;
        }
        for _ in 0..count {
            self.receive()?;
            self.check()?;
            if let Some(call) = calls.next() {
                self.send(&call)?;
            }
        }
        Ok(began.elapsed())
    }

    fn prepared(&mut self, tool: &str, args: &Value) -> Vec<u8> {
        let params = json!({ "name": tool, "arguments": args });
        self.next_id += 1;
        line(self.next_id - 1, "tools/call", &params)
    }

    fn send(&mut self, line: &[u8]) -> Result<()> {
        self.input.write_all(line).context("the server takes no more requests")
    }

    /// The next line that is no notification.
    fn receive(&mut self) -> Result<()> {
        loop {
            self.line.clear();
            self.output.read_until(b'\n', &mut self.line)?;
            ensure!(self.line.ends_with(b"\n"), "the server ended");
            if !starts_like_notification(&self.line) {
                return Ok(());
            }
        }
    }

    /// Checks that the last answer was a success.
    fn check(&self) -> Result<()> {
        let text = String::from_utf8_lossy(&self.line);
        if !text.contains("\"result\"") || text.contains("\"isError\":true") {
            bail!("a call failed: {}", text.chars().take(600).collect::<String>());
        }
        Ok(())
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn line(id: u64, method: &str, params: &Value) -> Vec<u8> {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    format!("{request}\n").into_bytes()
}

/// Notifications name their method at the front; answers have none.
fn starts_like_notification(line: &[u8]) -> bool {
    String::from_utf8_lossy(&line[..line.len().min(60)]).contains("\"method\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_notifications() {
        assert!(starts_like_notification(
            br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#
        ));
        assert!(!starts_like_notification(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    }
}
