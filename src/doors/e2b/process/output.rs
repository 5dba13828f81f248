//! Reader of what a process writes, from a cursor on, for one client: any number of them read one process.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::doors::e2b::{
    error::{E2bError, Kind},
    rpc::{CallTimes, ClientGone, StreamWriter},
    state::E2b,
    target::Target,
};

/// Bytes of each stream in one read.
const READ_BYTES: u64 = 128 * 1024;
/// Longest wait of one read.
const WAIT_SECS: u64 = 25;

/// See the module.
pub(super) struct OutputReader {
    e2b: Arc<E2b>,
    target: Target,
    id: String,
    terminal: bool,
    stdout_from: u64,
    stderr_from: u64,
    /// Whether the process is killed when the call has reached its limit.
    kills: bool,
}

/// A part of the output.
#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    stdout_base64: String,
    #[serde(default)]
    stderr_base64: String,
    stdout_next: u64,
    stderr_next: u64,
    stdout_lost: u64,
    stderr_lost: u64,
    more: bool,
    status: String,
    #[serde(rename = "exitCode")]
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
}

impl Part {
    /// Refuses a part before which something is missing: a client shall not take it for all.
    fn is_whole(&self) -> Result<(), E2bError> {
        match self.stdout_lost + self.stderr_lost {
            0 => Ok(()),
            lost => {
                let why =
                    format!("{lost} bytes of output came faster than they were read, and are lost");
                Err(E2bError::new(Kind::ResourceExhausted, why))
            }
        }
    }

    /// The last event of a process that has ended.
    fn end(&self) -> Result<Option<Value>, E2bError> {
        let end = match (&*self.status, self.exit_code, self.signal) {
            _ if self.more => return Ok(None),
            ("running", ..) => return Ok(None),
            ("exited", Some(code), _) => {
                let status = format!("exit status {code}");
                let mut end = json!({ "exitCode": code, "exited": true, "status": status });
                if code != 0 {
                    end["error"] = status.into();
                }
                end
            }
            ("killed", _, Some(signal)) => {
                let status = format!("signal: {signal}");
                json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
            }
            ("interrupted", ..) => {
                let why = "the sandbox was stopped or went back to a snapshot under the process";
                return Err(E2bError::new(Kind::Unavailable, why));
            }
            _ => {
                let why = self.reason.clone().unwrap_or_else(|| "its end is not known".to_owned());
                return Err(E2bError::new(Kind::Unavailable, why));
            }
        };
        Ok(Some(json!({ "event": { "end": end } })))
    }
}

impl OutputReader {
    pub(super) fn new(e2b: Arc<E2b>, target: Target, id: String, terminal: bool) -> Self {
        let (stdout_from, stderr_from) = (0, 0);
        Self { e2b, target, id, terminal, stdout_from, stderr_from, kills: false }
    }

    /// The process shall be killed when the call has reached its limit.
    pub(super) fn kill_late(self) -> Self {
        Self { kills: true, ..self }
    }

    /// Leaves out what is written already.
    pub(super) async fn skip(&mut self) -> Result<(), E2bError> {
        // What is kept of it is bounded.
        loop {
            let part = self.read(0).await?;
            (self.stdout_from, self.stderr_from) = (part.stdout_next, part.stderr_next);
            if !part.more {
                return Ok(());
            }
        }
    }

    async fn read(&self, wait_secs: u64) -> Result<Part, E2bError> {
        let asked = json!({
            "id": self.id, "stdout_from": self.stdout_from, "stderr_from": self.stderr_from,
            "max_bytes": READ_BYTES, "wait_secs": wait_secs, "encoding": "base64",
        });
        self.e2b.ask(&self.target.owner, "process_output", asked).await
    }

    /// Tells a client what is new until the process has ended, or the call has reached its limit.
    pub(super) async fn follow(
        mut self,
        writer: StreamWriter,
        times: CallTimes,
    ) -> (StreamWriter, Result<(), E2bError>) {
        let limit = times.limit.map(|limit| Instant::now() + limit);
        let told = async {
            match limit {
                None => self.tell(&writer, times.keepalive).await,
                Some(limit) => match timeout_at(limit, self.tell(&writer, times.keepalive)).await {
                    Ok(told) => told,
                    Err(_) => self.late().await,
                },
            }
        };
        let outcome = told.await;
        (writer, outcome)
    }

    async fn late(&self) -> Result<(), E2bError> {
        if self.kills {
            let asked = json!({ "id": self.id });
            self.e2b.call(&self.target.owner, "process_kill", asked).await?;
        }
        Err(E2bError::new(Kind::DeadlineExceeded, "the call has reached its time limit"))
    }

    async fn tell(&mut self, writer: &StreamWriter, silence: Duration) -> Result<(), E2bError> {
        let wait_secs = silence.as_secs().clamp(1, WAIT_SECS);
        let mut spoken = Instant::now();
        loop {
            let part = self.read(wait_secs).await?;
            part.is_whole()?;
            (self.stdout_from, self.stderr_from) = (part.stdout_next, part.stderr_next);
            let stdout = if self.terminal { "pty" } else { "stdout" };
            let pieces = [(stdout, &part.stdout_base64), ("stderr", &part.stderr_base64)];
            for (stream, bytes) in pieces.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
                let event = json!({ "event": { "data": { stream: bytes } } });
                let Ok(()) = writer.message(&event).await else { return Ok(()) };
                spoken = Instant::now();
            }
            if let Some(end) = part.end()? {
                let _gone = writer.message(&end).await;
                return Ok(());
            }
            if spoken.elapsed() >= silence {
                let Err(ClientGone) =
                    writer.message(&json!({ "event": { "keepalive": {} } })).await
                else {
                    spoken = Instant::now();
                    continue;
                };
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(status: &str, exit_code: Option<i32>, signal: Option<i32>, more: bool) -> Part {
        let (stdout_base64, stderr_base64) = (String::new(), String::new());
        let (stdout_next, stderr_next, status) = (0, 0, status.to_owned());
        let reason = Some("its guest is away".to_owned());
        Part {
            stdout_base64,
            stderr_base64,
            stdout_next,
            stderr_next,
            stdout_lost: 0,
            stderr_lost: 0,
            more,
            status,
            exit_code,
            signal,
            reason,
        }
    }

    #[test]
    fn a_process_ends_once_all_is_read() {
        assert_eq!(part("exited", Some(0), None, true).end().expect("no end"), None);
        assert_eq!(part("running", None, None, false).end().expect("no end"), None);
        let end = part("exited", Some(3), None, false).end().expect("known").expect("an end");
        assert_eq!(end["event"]["end"]["exitCode"], 3);
        assert_eq!(end["event"]["end"]["error"], "exit status 3");
        let end = part("exited", Some(0), None, false).end().expect("known").expect("an end");
        assert_eq!(end["event"]["end"].get("error"), None);
        let end = part("killed", None, Some(9), false).end().expect("known").expect("an end");
        assert_eq!(
            (&end["event"]["end"]["exitCode"], &end["event"]["end"]["exited"]),
            (&json!(-1), &json!(false))
        );
    }

    #[test]
    fn output_that_is_lost_is_told() {
        let whole = part("exited", Some(0), None, false);
        assert!(whole.is_whole().is_ok());
        let cut = Part { stdout_lost: 7, ..whole };
        assert!(cut.is_whole().expect_err("told").message.starts_with("7 bytes"));
    }

    #[test]
    fn an_end_that_is_not_known_is_no_success() {
        assert!(part("interrupted", None, None, false).end().is_err());
        let unknown = part("unknown", None, None, false).end().expect_err("not known");
        assert_eq!(unknown.message, "its guest is away");
    }
}
