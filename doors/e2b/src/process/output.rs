//! Reader of what a process writes, from a cursor on, for one client: any number of them read one process.
//!
//! The first read is a call of `process_output`. Later reads are no calls: a program that writes a line now
//! and then would use its owner's rate up. A policy that denies such calls ends them, too.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hivekeep_kernel::{CallCx, JobId};
use hivekeep_ports::{CommandRunner, ProcessOutput, ProcessSpan, ProcessState, ProcessWindow};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{E2bError, Kind},
    rpc::{CallTimes, ClientGone, StreamWriter},
    state::E2b,
    target::Target,
};

/// Tool that reads output.
const READS: &str = "process_output";
/// Bytes of each stream in one read.
const READ_BYTES: u64 = 256 * 1024;
/// Longest wait of one read.
const WAIT: Duration = Duration::from_secs(25);
/// Time for the answer of one read, beyond its wait.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct OutputReader {
    e2b: Arc<E2b>,
    target: Target,
    id: JobId,
    terminal: bool,
    stdout_from: u64,
    stderr_from: u64,
    /// Whether the process is killed when the call has reached its limit.
    kills: bool,
    /// True once the policy has let this reader read.
    admitted: bool,
}

/// Refuses a part before which something is missing: a client shall not take it for the whole output.
fn whole(part: ProcessOutput, [stdout, stderr]: [u64; 2]) -> Result<ProcessOutput, E2bError> {
    let lost = |span: &ProcessSpan, asked: u64| span.from.saturating_sub(asked);
    match lost(&part.stdout, stdout) + lost(&part.stderr, stderr) {
        0 => Ok(part),
        lost => {
            let why =
                format!("{lost} bytes of output came faster than they were read, and are lost");
            Err(E2bError::new(Kind::ResourceExhausted, why))
        }
    }
}

/// Whether there is more to read already.
fn has_more(part: &ProcessOutput) -> bool {
    [&part.stdout, &part.stderr].iter().any(|span| span.next() < span.end)
}

/// The last event of a process that has ended, once all is read.
fn end(part: &ProcessOutput) -> Result<Option<Value>, E2bError> {
    let end = match &part.process.state {
        _ if has_more(part) => return Ok(None),
        ProcessState::Running => return Ok(None),
        ProcessState::Exited(code) => {
            let status = format!("exit status {code}");
            let mut end = json!({ "exitCode": code, "exited": true, "status": status });
            if *code != 0 {
                end["error"] = status.into();
            }
            end
        }
        ProcessState::Signalled(signal) => {
            let status = format!("signal: {signal}");
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
        ProcessState::Interrupted => {
            let why = "the sandbox was stopped or went back to a snapshot under the process";
            return Err(E2bError::new(Kind::Unavailable, why));
        }
        ProcessState::Unknown(why) => return Err(E2bError::new(Kind::Unavailable, why.clone())),
    };
    Ok(Some(json!({ "event": { "end": end } })))
}

impl OutputReader {
    pub(super) fn new(e2b: Arc<E2b>, target: Target, id: JobId, terminal: bool) -> Self {
        let (stdout_from, stderr_from) = (0, 0);
        let (kills, admitted) = (false, false);
        Self { e2b, target, id, terminal, stdout_from, stderr_from, kills, admitted }
    }

    /// Has the process killed when the call has reached its limit.
    pub(super) fn kill_late(self) -> Self {
        Self { kills: true, ..self }
    }

    /// Skips the output that is written already.
    pub(super) async fn skip(&mut self) -> Result<(), E2bError> {
        // The kept output is bounded, and with it this loop.
        loop {
            let part = self.read(Duration::ZERO).await?;
            self.go_behind(&part);
            if !has_more(&part) {
                return Ok(());
            }
        }
    }

    async fn read(&mut self, wait: Duration) -> Result<ProcessOutput, E2bError> {
        if !self.admitted {
            let asked = json!({ "id": self.id });
            self.e2b.call_in_turn(&self.target.owner, READS, asked).await?;
            self.admitted = true;
        }
        let runner = self.e2b.core.ports.need::<dyn CommandRunner>()?;
        let window = ProcessWindow {
            stdout_from: self.stdout_from,
            stderr_from: self.stderr_from,
            max_bytes: READ_BYTES,
            wait,
        };
        let (end, span) = (CancellationToken::new(), tracing::debug_span!("e2b_output"));
        let cx = CallCx::internal(self.target.owner.session, wait + ANSWER_TIME, end, span);
        let part = runner.output(&cx, self.id, window).await?;
        match self.e2b.may(&self.target.owner, READS) {
            true => Ok(part),
            false => {
                let why = format!("a policy denies `{READS}` by now, or the key was revoked");
                Err(E2bError::new(Kind::PermissionDenied, why))
            }
        }
    }

    fn go_behind(&mut self, part: &ProcessOutput) {
        (self.stdout_from, self.stderr_from) = (part.stdout.next(), part.stderr.next());
    }

    /// Sends a client new output until the process has ended, or the call has reached its limit.
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
            self.e2b.call_in_turn(&self.target.owner, "process_kill", asked).await?;
        }
        Err(E2bError::new(Kind::DeadlineExceeded, "the call has reached its time limit"))
    }

    async fn tell(&mut self, writer: &StreamWriter, silence: Duration) -> Result<(), E2bError> {
        let wait = silence.clamp(Duration::from_secs(1), WAIT);
        let mut spoken = Instant::now();
        loop {
            let part = self.read(wait).await?;
            let part = whole(part, [self.stdout_from, self.stderr_from])?;
            self.go_behind(&part);
            let stdout = if self.terminal { "pty" } else { "stdout" };
            let pieces = [(stdout, &part.stdout.bytes), ("stderr", &part.stderr.bytes)];
            for (stream, bytes) in pieces.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
                let event = json!({ "event": { "data": { stream: STANDARD.encode(bytes) } } });
                let Ok(()) = writer.message(&event).await else { return Ok(()) };
                spoken = Instant::now();
            }
            if let Some(end) = end(&part)? {
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

    fn part(state: ProcessState, read: u64) -> ProcessOutput {
        let process = hivekeep_ports::PlaceProcess {
            id: JobId::new(),
            workspace: hivekeep_kernel::WorkspaceId::new(),
            place: String::new(),
            argv: Vec::new(),
            workdir: String::new(),
            terminal: false,
            pid: 1,
            started_unix_ms: 0,
            state,
            ended_unix_ms: None,
        };
        let stdout = ProcessSpan { from: 7, bytes: vec![b'x'; 3], end: 7 + read, total_bytes: 10 };
        ProcessOutput { process, stdout, stderr: ProcessSpan::default() }
    }

    #[test]
    fn a_process_ends_once_all_is_read() {
        let ended = |state, read| end(&part(state, read)).expect("known");
        assert_eq!(ended(ProcessState::Exited(0), 4), None, "one byte is left");
        assert_eq!(ended(ProcessState::Running, 3), None);
        let told = ended(ProcessState::Exited(3), 3).expect("an end");
        assert_eq!(told["event"]["end"]["exitCode"], 3);
        assert_eq!(told["event"]["end"]["error"], "exit status 3");
        let told = ended(ProcessState::Exited(0), 3).expect("an end");
        assert_eq!(told["event"]["end"].get("error"), None);
        let told = ended(ProcessState::Signalled(9), 3).expect("an end");
        let end = &told["event"]["end"];
        assert_eq!((&end["exitCode"], &end["exited"]), (&json!(-1), &json!(false)));
    }

    #[test]
    fn output_that_is_lost_is_told() {
        assert!(whole(part(ProcessState::Running, 3), [7, 0]).is_ok());
        let lost = whole(part(ProcessState::Running, 3), [0, 0]).expect_err("told");
        assert!(lost.message.starts_with("7 bytes"), "{}", lost.message);
    }

    #[test]
    fn an_end_that_is_not_known_is_no_success() {
        assert!(end(&part(ProcessState::Interrupted, 3)).is_err());
        let away = ProcessState::Unknown("its guest is away".to_owned());
        assert_eq!(end(&part(away, 3)).expect_err("not known").message, "its guest is away");
    }
}
