//! The tools `process_output` to `process_signal`: what passes between a session and a process that goes on.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hivekeep_kernel::{CallCx, JobId, Layer, ToolError, tools};
use hivekeep_ports::{ProcessSpan, ProcessState, ProcessWindow, TerminalSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::process::{ProcessStatus, status};
use crate::{
    codes,
    commands::{CommandResult, CommandService},
};

/// Longest wait for output, in seconds.
const MAX_WAIT_SECS: u64 = 30;
/// Time of a call without a wait, in seconds.
const CALL_SECS: u64 = 60;
/// Most bytes of one input.
const MAX_INPUT_BYTES: usize = 64 * 1024;
/// The same as base64, and some breaks of lines.
const MAX_INPUT_CHARS: usize = 96 * 1024;
/// Most bytes of each stream in one answer.
const MAX_READ_BYTES: u64 = 256 * 1024;

/// Read what a process wrote, from a cursor on. Consumes nothing; works while it runs and after.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadOutput {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
    /// First byte of stdout to read; pass the last `stdout_next` to read only what is new.
    #[serde(default)]
    stdout_from: u64,
    /// First byte of stderr to read.
    #[serde(default)]
    stderr_from: u64,
    /// Most bytes of each stream; default 65536.
    #[schemars(range(min = 16, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    max_bytes: u64,
    /// Seconds to wait for something new behind the cursors, or the end; default 0.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT_SECS))]
    wait_secs: u64,
    /// `base64` tells the bytes as they are, in `stdout_base64` and `stderr_base64`; default `text`.
    #[serde(default)]
    encoding: ByteEncoding,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum ByteEncoding {
    /// Text in UTF-8.
    #[default]
    Text,
    /// Bytes in base64.
    Base64,
}

fn default_read_bytes() -> u64 {
    64 * 1024
}

/// A part of a process's output.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
struct OutputRead {
    /// Process.
    #[schemars(with = "String")]
    id: JobId,
    /// This part of stdout, then that of stderr.
    output: String,
    /// The end of `output` that is stderr.
    #[serde(skip_serializing_if = "String::is_empty")]
    stderr: String,
    /// With that encoding, this part of stdout.
    stdout_base64: Option<String>,
    /// With that encoding, this part of stderr.
    stderr_base64: Option<String>,
    /// Where stdout goes on.
    stdout_next: u64,
    /// Where stderr goes on.
    stderr_next: u64,
    /// Bytes of stdout from the cursor on that are not kept any more; the last 2 MiB always are.
    stdout_lost: u64,
    /// The same of stderr.
    stderr_lost: u64,
    /// True if more is there already.
    more: bool,
    /// How the process is.
    #[serde(flatten)]
    status: ProcessStatus,
}

/// Write to the standard input of a process. Nothing is added: end a line with a line break.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendInput {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
    /// Text, or base64 if `encoding` says so; at most 64 KiB, may be empty to close only.
    #[schemars(length(max = MAX_INPUT_CHARS))]
    input: String,
    /// How `input` is written; default `text`.
    #[serde(default)]
    encoding: ByteEncoding,
    /// True closes the input behind it.
    #[serde(default)]
    close: bool,
}

/// Part of an input that a process took.
#[derive(Debug, Serialize, JsonSchema)]
struct InputSent {
    /// Process.
    #[schemars(with = "String")]
    id: JobId,
    /// True if all was taken, and the input closed if asked.
    success: bool,
    /// Sentence that says how much was taken.
    message: String,
    /// Bytes that were taken; the rest was not and can be sent again.
    written_bytes: u64,
    /// True if the input is closed.
    closed: bool,
}

/// Set the size of a process's terminal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResizeProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
    /// Rows.
    #[schemars(range(min = 1, max = 1000))]
    rows: u16,
    /// Columns.
    #[schemars(range(min = 1, max = 1000))]
    cols: u16,
}

/// A terminal that has its size.
#[derive(Debug, Serialize, JsonSchema)]
struct ResizedProcess {
    /// Process.
    #[schemars(with = "String")]
    id: JobId,
    /// Rows.
    rows: u16,
    /// Columns.
    cols: u16,
}

/// Send a signal to a process and everything that it started. To end it, process_stop is surer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignalProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
    /// Number of the signal, such as 2 for SIGINT.
    #[schemars(range(min = 1, max = 64))]
    signal: i32,
}

/// A process that was sent a signal.
#[derive(Debug, Serialize, JsonSchema)]
struct SignalledProcess {
    /// Process.
    #[schemars(with = "String")]
    id: JobId,
    /// False: it had ended before.
    sent: bool,
    /// How it is at most half a second later.
    #[serde(flatten)]
    status: ProcessStatus,
}

tools! { pub(crate) FAMILY: "process" for service CommandService, singleton commands;
    process_output: ReadOutput => OutputRead = CommandService::process_output {
        title: "Read the output of a process", effect: Read,
        result_budget_bytes: 8 * 1024 * 1024,
        limit_secs: |input| Some(CALL_SECS + input.get("wait_secs")
            .and_then(serde_json::Value::as_u64).unwrap_or(0)),
    };
    process_input: SendInput => InputSent = CommandService::process_input {
        title: "Write to a process", rate: RateClass::Exec, open_world: true,
    };
    process_resize: ResizeProcess => ResizedProcess = CommandService::process_resize {
        title: "Resize the terminal of a process", effect: Idempotent,
    };
    process_signal: SignalProcess => SignalledProcess = CommandService::process_signal {
        title: "Signal a process", effect: Destroy,
    };
}

impl CommandService {
    async fn process_output(
        self: Arc<Self>,
        cx: CallCx,
        input: ReadOutput,
    ) -> CommandResult<OutputRead> {
        let ReadOutput { id, stdout_from, stderr_from, max_bytes, wait_secs, encoding } = input;
        let wait = Duration::from_secs(wait_secs);
        if !wait.is_zero() {
            // A call that only waits gives its slot back to other calls.
            cx.slot.give_back();
        }
        let window = ProcessWindow { stdout_from, stderr_from, max_bytes, wait };
        let read = self.commands.output(&cx, id, window).await?;
        let running = read.process.state == ProcessState::Running;
        let is_text = encoding == ByteEncoding::Text;
        let part = |asked: u64, span: &ProcessSpan| {
            let (text, next) = match encoding {
                ByteEncoding::Text => span.text(running),
                ByteEncoding::Base64 => (String::new(), span.next()),
            };
            (text, next, span.from.saturating_sub(asked), next < span.end)
        };
        let bytes = |span: &ProcessSpan| (!is_text).then(|| BASE64.encode(&span.bytes));
        let (stdout_base64, stderr_base64) = (bytes(&read.stdout), bytes(&read.stderr));
        let (mut output, stdout_next, stdout_lost, more) = part(stdout_from, &read.stdout);
        let (stderr, stderr_next, stderr_lost, more_too) = part(stderr_from, &read.stderr);
        output.push_str(&stderr);
        Ok(OutputRead {
            id,
            output,
            stderr,
            stdout_base64,
            stderr_base64,
            stdout_next,
            stderr_next,
            stdout_lost,
            stderr_lost,
            more: more || more_too,
            status: status(read.process.state),
        })
    }

    async fn process_input(
        self: Arc<Self>,
        cx: CallCx,
        input: SendInput,
    ) -> CommandResult<InputSent> {
        let SendInput { id, input, encoding, close } = input;
        let input = match encoding {
            ByteEncoding::Text => input.into_bytes(),
            ByteEncoding::Base64 => BASE64.decode(input).map_err(|error| {
                ToolError::invalid(format!("`input` is not valid base64: {error}"))
            })?,
        };
        if input.is_empty() && !close {
            return Err(ToolError::invalid("`input` is empty")
                .next("give a text, or `close` to close the input"));
        }
        let all = input.len();
        if all > MAX_INPUT_BYTES {
            let message = format!("`input` has {all} bytes, {MAX_INPUT_BYTES} are allowed");
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message));
        }
        let (written, closed) = self.commands.input(&cx, id, input, close).await?;
        let success = written == all as u64 && (closed || !close);
        let message = match success {
            true => "taken".to_owned(),
            false => format!("it takes no more now: {written} of {all} bytes were taken"),
        };
        Ok(InputSent { id, success, message, written_bytes: written, closed })
    }

    async fn process_resize(
        self: Arc<Self>,
        cx: CallCx,
        input: ResizeProcess,
    ) -> CommandResult<ResizedProcess> {
        let ResizeProcess { id, rows, cols } = input;
        self.commands.resize(&cx, id, TerminalSize { rows, cols }).await?;
        Ok(ResizedProcess { id, rows, cols })
    }

    async fn process_signal(
        self: Arc<Self>,
        cx: CallCx,
        input: SignalProcess,
    ) -> CommandResult<SignalledProcess> {
        let SignalProcess { id, signal } = input;
        let (process, had_ended) = self.commands.signal(&cx, id, signal).await?;
        Ok(SignalledProcess { id, sent: !had_ended, status: status(process.state) })
    }
}
