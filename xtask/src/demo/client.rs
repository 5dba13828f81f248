//! The MCP client: `examples/attach_and_call.rs`, a line a call.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

/// Above the longest limit of a tool that is called here.
const PATIENCE: Duration = Duration::from_secs(330);
/// How long the client may take to end after its last call.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A client attached to the daemon over stdio.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What the server said of itself.
    pub(super) server: Value,
}

impl Client {
    /// Starts a client, `command`, and waits until it is attached.
    pub(super) fn attach(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the client does not start")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the client has no standard output")?;
        // It answers one call at a time.
        let (sender, lines) = sync_channel(1);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut client = Self { child, stdin, lines, server: Value::Null };
        client.server = client.line().context("attaching")?;
        Ok(client)
    }

    /// The structured result of a call.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let call = json!({ "tool": tool, "arguments": arguments });
        let stdin = self.stdin.as_mut().context("the client was ended")?;
        writeln!(stdin, "{call}").context("the client is gone")?;
        let mut answer = self.line().with_context(|| tool.to_owned())?;
        match answer.get("error") {
            Some(error) => {
                Err(anyhow!("{tool}: {}", error.as_str().unwrap_or("an error without words")))
            }
            None => Ok(answer["result"].take()),
        }
    }

    fn line(&mut self) -> Result<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line).context("the client's line is no JSON"),
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("the client ended without an answer"),
        }
    }

    /// Detaches in order.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.stdin.take());
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(anyhow!("the client ended with {status}"))
                };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the client does not end")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
