//! Processes that go on.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{JobId, WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_PLACE_CHARS, PLACE_SECS, cmd::Argument};
use crate::{commands::CommandService, options::MAX_GRACE_SECS};

/// Longest wait for output, in seconds.
const MAX_WAIT_SECS: u64 = 30;
/// Time of a call without a wait, in seconds.
const CALL_SECS: u64 = 60;
/// Most bytes of one input.
pub(crate) const MAX_INPUT_BYTES: usize = 64 * 1024;
/// The same as base64, and some breaks of lines.
const MAX_INPUT_CHARS: usize = 96 * 1024;
/// Most bytes of each stream in one answer.
const MAX_READ_BYTES: u64 = 256 * 1024;

/// Start a program that goes on in your place, with an open standard input: a server, a debugger, a
/// REPL. It lives until it ends or is ended, also when this session or the daemon is gone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunProcess {
    /// Program; no shell.
    #[schemars(length(max = 4096))]
    pub(crate) command: String,
    /// Arguments.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub(crate) args: Vec<Argument>,
    /// True runs the entry point of the place's container image, as in cmd.run.
    #[serde(default)]
    pub(crate) entrypoint: bool,
    /// Folder to run in, below the place's root; default the root.
    #[schemars(length(max = 4096))]
    pub(crate) dir: Option<String>,
    /// Environment variables, each `NAME=value`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub(crate) env: Vec<Argument>,
    /// False gives it `/dev/null` as its standard input.
    #[serde(default = "yes")]
    pub(crate) stdin: bool,
    /// True gives it a terminal; both output streams are one then.
    #[serde(default)]
    pub(crate) pty: bool,
    /// Rows of the terminal.
    #[serde(default = "default_rows")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) rows: u16,
    /// Columns of the terminal.
    #[serde(default = "default_cols")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) cols: u16,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    pub(crate) place: Option<String>,
}

fn yes() -> bool {
    true
}

fn default_rows() -> u16 {
    24
}

fn default_cols() -> u16 {
    80
}

/// A process that was started.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartedRow {
    /// Id for the other calls.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Process id in the guest.
    pub(crate) pid: u32,
    /// Program.
    pub(crate) command: String,
    /// Arguments.
    pub(crate) args: Vec<String>,
    /// When.
    pub(crate) started_at: DateTime<Utc>,
    /// Place that it runs in.
    pub(crate) place: String,
    /// Workspace of the place.
    #[serde(rename = "workspace_id")]
    #[schemars(with = "String")]
    pub(crate) workspace: WorkspaceId,
}

/// End a process and everything that it started: SIGTERM, and SIGKILL to what is left after a grace
/// period.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Seconds between the two signals; the default is the operator's.
    #[schemars(range(max = MAX_GRACE_SECS))]
    pub(crate) grace_secs: Option<u64>,
}

/// Kill a process and everything that it started at once, by SIGKILL.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KillProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
}

/// A process that was ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EndedProcess {
    /// Process.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// True: nothing of it runs.
    pub(crate) success: bool,
    /// What was done.
    pub(crate) message: String,
    /// How it ended.
    #[serde(flatten)]
    pub(crate) status: ProcessStatus,
}

/// State of a process.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessStatus {
    /// `running`, `exited`, `killed` (by a signal), `interrupted` (its machine ended under it) or
    /// `unknown` (its guest cannot be asked now).
    pub(crate) status: &'static str,
    /// Exit status.
    pub(crate) exit_code: Option<i32>,
    /// Signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Why the status is not known.
    pub(crate) reason: Option<String>,
}

/// List the processes of your places in the order of their start: those that run, and the last hundred
/// of each workspace that ended.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProcesses {
    /// True leaves out those that ended.
    #[serde(default)]
    pub(crate) running_only: bool,
    /// Name of a place; default all.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    pub(crate) place: Option<String>,
    /// Most processes to show, the last started; default 50.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default = "default_limit")]
    pub(crate) limit: usize,
}

fn default_limit() -> usize {
    50
}

/// Processes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProcessRows {
    /// In the order of their start.
    pub(crate) processes: Vec<ProcessRow>,
    /// Number of all that fit the question; the last of them are shown.
    pub(crate) total: usize,
}

/// A process.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessRow {
    /// What it is.
    #[serde(flatten)]
    pub(crate) started: StartedRow,
    /// Folder that it was started in.
    pub(crate) dir: String,
    /// How it is.
    #[serde(flatten)]
    pub(crate) status: ProcessStatus,
    /// Nanoseconds that it has run, or ran.
    pub(crate) duration: u64,
    /// Whether it has a terminal.
    pub(crate) pty: bool,
}

/// Read what a process wrote, from a cursor on. Consumes nothing; works while it runs and after.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadOutput {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// First byte of stdout to read; pass the last `stdout_next` to read only what is new.
    #[serde(default)]
    pub(crate) stdout_from: u64,
    /// First byte of stderr to read.
    #[serde(default)]
    pub(crate) stderr_from: u64,
    /// Most bytes of each stream; default 65536.
    #[schemars(range(min = 16, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    pub(crate) max_bytes: u64,
    /// Seconds to wait for something new behind the cursors, or the end; default 0.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT_SECS))]
    pub(crate) wait_secs: u64,
    /// `base64` tells the bytes as they are, in `stdout_base64` and `stderr_base64`; default `text`.
    #[serde(default)]
    pub(crate) encoding: ByteEncoding,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ByteEncoding {
    /// As UTF-8.
    #[default]
    Text,
    /// As base64.
    Base64,
}

fn default_read_bytes() -> u64 {
    64 * 1024
}

/// A part of a process's output.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutputRead {
    /// Process.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// This part of stdout, then that of stderr.
    pub(crate) output: String,
    /// The end of `output` that is stderr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) stderr: String,
    /// With that encoding, this part of stdout.
    pub(crate) stdout_base64: Option<String>,
    /// With that encoding, this part of stderr.
    pub(crate) stderr_base64: Option<String>,
    /// Where stdout goes on.
    pub(crate) stdout_next: u64,
    /// Where stderr goes on.
    pub(crate) stderr_next: u64,
    /// Bytes of stdout from the cursor on that are not kept any more; the last 2 MiB always are.
    pub(crate) stdout_lost: u64,
    /// The same of stderr.
    pub(crate) stderr_lost: u64,
    /// True if more is there already.
    pub(crate) more: bool,
    /// How the process is.
    #[serde(flatten)]
    pub(crate) status: ProcessStatus,
}

/// Write to the standard input of a process. Nothing is added: end a line with a line break.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendInput {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Text, or base64 if `encoding` says so; at most 64 KiB, may be empty to close only.
    #[schemars(length(max = MAX_INPUT_CHARS))]
    pub(crate) input: String,
    /// How `input` is written; default `text`.
    #[serde(default)]
    pub(crate) encoding: ByteEncoding,
    /// True closes the input behind it.
    #[serde(default)]
    pub(crate) close: bool,
}

/// What a process took.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InputSent {
    /// Process.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// True if all was taken, and the input closed if asked.
    pub(crate) success: bool,
    /// What was done.
    pub(crate) message: String,
    /// Bytes that were taken; the rest was not and can be sent again.
    pub(crate) written_bytes: u64,
    /// True if the input is closed.
    pub(crate) closed: bool,
}

/// Set the size of a process's terminal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResizeProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Rows.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) rows: u16,
    /// Columns.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) cols: u16,
}

/// A terminal that has its size.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResizedProcess {
    /// Process.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Rows.
    pub(crate) rows: u16,
    /// Columns.
    pub(crate) cols: u16,
}

/// Send a signal to a process and everything that it started. To end it, process_stop is surer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// Number of the signal, such as 2 for SIGINT.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) signal: i32,
}

/// A process that was sent a signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignalledProcess {
    /// Process.
    #[schemars(with = "String")]
    pub(crate) id: JobId,
    /// False: it had ended before.
    pub(crate) sent: bool,
    /// How it is at most half a second later.
    #[serde(flatten)]
    pub(crate) status: ProcessStatus,
}

tools! { pub(crate) FAMILY: "process" for service CommandService, singleton commands;
    process_start: RunProcess => StartedRow = CommandService::process_start {
        title: "Start a process", rate: RateClass::Exec, open_world: true, timeout_secs: 60,
        limit_secs: |_| Some(60 + PLACE_SECS), told_by: Some("process_list"),
    };
    process_stop: StopProcess => EndedProcess = CommandService::process_stop {
        title: "Stop a process", effect: Destroy, timeout_secs: 60,
        limit_secs: |input| Some(60 + input.get("grace_secs").and_then(serde_json::Value::as_u64)
            .unwrap_or(MAX_GRACE_SECS)),
    };
    process_kill: KillProcess => EndedProcess = CommandService::process_kill {
        title: "Kill a process", effect: Destroy,
    };
    process_list: ListProcesses => ProcessRows = CommandService::process_list {
        title: "List processes", effect: Read,
    };
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
