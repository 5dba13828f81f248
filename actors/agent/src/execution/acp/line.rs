//! Line to a program: frames out of its output, from any place on, and into its input.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, JobId, Layer, ToolError};
use hivekeep_ports::{CommandRunner, ProcessState, ProcessWindow};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{super::program_end::ended_by, AcpBreak};
use crate::{
    acp::{
        frames::{AcpFrame, MAX_FRAME_BYTES},
        schema::{RequestId, Response},
    },
    codes,
};

/// Most bytes of one read, and of one write: what a pipe takes at once.
const READ_BYTES: u64 = 256 * 1024;
const WRITE_BYTES: usize = 64 * 1024;
/// Longest wait of one read.
const WAIT: Duration = Duration::from_secs(20);
/// Time for which a machine that does not answer, and a program that does not read, is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes that are kept of the end of stderr.
const ERROR_BYTES: usize = 4 * 1024;
/// Lines that may be no frames: some programs greet.
const MAX_JUNK: usize = 100;

/// A frame, and its place in the program's output.
pub(super) struct PlacedFrame {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) frame: AcpFrame,
}

/// See the module.
pub(super) struct AcpLine<C> {
    runner: Arc<dyn CommandRunner>,
    /// Makes the context of each call.
    context: C,
    process: JobId,
    /// Place of the first byte that is not cut into frames.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer without a line's end.
    searched: usize,
    stderr_from: u64,
    pub(super) stderr: String,
    junk: usize,
}

impl<C: Fn() -> CallCx> AcpLine<C> {
    pub(super) fn new(runner: Arc<dyn CommandRunner>, context: C, process: JobId, at: u64) -> Self {
        let (buffer, stderr) = Default::default();
        Self { runner, context, process, at, buffer, searched: 0, stderr_from: 0, stderr, junk: 0 }
    }

    /// Place behind the last frame.
    pub(super) fn place(&self) -> u64 {
        self.at
    }

    /// Waits for the next frame. It can be dropped, and loses nothing.
    pub(super) async fn next(&mut self) -> Result<PlacedFrame, AcpBreak> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(length) = end.map(|end| self.searched + end + 1) else {
                self.searched = self.buffer.len();
                if self.buffer.len() > MAX_FRAME_BYTES {
                    return Err(AcpBreak::protocol("a line is longer than 1 MiB"));
                }
                self.read().await?;
                continue;
            };
            let line: Vec<u8> = self.buffer.drain(..length).collect();
            let from = self.at;
            (self.at, self.searched) = (from + length as u64, 0);
            if length > MAX_FRAME_BYTES {
                return Err(AcpBreak::protocol("a line is longer than 1 MiB"));
            }
            match AcpFrame::read(&line) {
                Ok(frame) => return Ok(PlacedFrame { from, to: self.at, frame }),
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(_) if self.junk < MAX_JUNK => self.junk += 1,
                Err(_) => return Err(AcpBreak::protocol("its output has no frames")),
            }
        }
    }

    /// Reads more, after a wait if there is nothing; fails when the program has ended and all is read.
    async fn read(&mut self) -> Result<(), AcpBreak> {
        let wanted = self.at + self.buffer.len() as u64;
        // From the first failure on: a machine may have stood still during the call.
        let mut until = None;
        let window = ProcessWindow {
            stdout_from: wanted,
            stderr_from: self.stderr_from,
            max_bytes: READ_BYTES,
            wait: WAIT,
        };
        let output = loop {
            match self.runner.output(&(self.context)(), self.process, window).await {
                Ok(output) => match &output.process.state {
                    ProcessState::Unknown(why) if output.stdout.bytes.is_empty() => {
                        if is_over(&mut until) {
                            return Err(AcpBreak::died(why));
                        }
                    }
                    _ => break output,
                },
                Err(error) if is_over(&mut until) => return Err(AcpBreak::Died(error)),
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        };
        if output.stdout.from != wanted {
            return Err(AcpBreak::died("more of its output was missed than is kept"));
        }
        self.stderr_from = output.stderr.next();
        self.stderr += &String::from_utf8_lossy(&output.stderr.bytes);
        let cut = self.stderr.len().saturating_sub(ERROR_BYTES);
        self.stderr.drain(..self.stderr.ceil_char_boundary(cut));
        let ended = match output.process.state {
            ProcessState::Running | ProcessState::Unknown(_) => None,
            ProcessState::Exited(status) => Some(format!("it exited with {status}")),
            ProcessState::Signalled(signal) => Some(format!("it {}", ended_by(signal))),
            ProcessState::Interrupted => Some("its machine ended under it".to_owned()),
        };
        match ended {
            Some(how) if output.stdout.bytes.is_empty() => {
                Err(AcpBreak::died(&format!("{how}: {}", self.stderr.trim())))
            }
            _ => {
                self.buffer.extend(output.stdout.bytes);
                Ok(())
            }
        }
    }

    /// Writes a frame whole. What fails may have written a part of it.
    pub(super) async fn send(&self, frame: &AcpFrame) -> Result<(), AcpBreak> {
        let (line, until) = (frame.line(), Instant::now() + PATIENCE);
        let mut rest = &line[..];
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(WRITE_BYTES)];
            let cx = (self.context)();
            let input = self.runner.input(&cx, self.process, piece.to_vec(), false);
            let (taken, closed) = input.await.map_err(AcpBreak::Died)?;
            let taken = usize::try_from(taken).unwrap_or(0).min(piece.len());
            rest = &rest[taken..];
            match taken {
                0 if closed => return Err(AcpBreak::died("it has closed its input")),
                0 if Instant::now() >= until => return Err(AcpBreak::died("it reads no input")),
                0 => tokio::time::sleep(PAUSE).await,
                _ => {}
            }
        }
        Ok(())
    }

    /// Asks the program, and waits for its answer. What it says before that is passed over.
    pub(super) async fn ask(
        &mut self,
        id: i64,
        method: &str,
        params: impl Serialize,
        limit: Duration,
    ) -> Result<Value, AcpBreak> {
        self.send(&AcpFrame::request(id, method, params)).await?;
        let answer = async {
            loop {
                if let AcpFrame::Response(response) = self.next().await?.frame
                    && let Some(answer) = answer_to(id, response, method)
                {
                    return answer;
                }
            }
        };
        match timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(AcpBreak::Failed(ToolError::deadline(Layer::Actor, limit.as_secs()))),
        }
    }
}

/// Whether the patience with a machine is over, which begins with the first question.
fn is_over(until: &mut Option<Instant>) -> bool {
    Instant::now() >= *until.get_or_insert_with(|| Instant::now() + PATIENCE)
}

/// Answer of a program to one of our requests; `None` if it is to another.
pub(super) fn answer_to(
    id: i64,
    response: Response<Value>,
    method: &str,
) -> Option<Result<Value, AcpBreak>> {
    match response {
        Response::Result { id: RequestId::Number(of), result } if of == id => Some(Ok(result)),
        Response::Error { id: RequestId::Number(of), error } if of == id => {
            let message = format!("the program refused `{method}`: {:.500}", error.to_string());
            let error = ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message)
                .next("`program_update` of aegis.task.logs shows what it did before");
            Some(Err(AcpBreak::Failed(error)))
        }
        _ => None,
    }
}
