//! The tools `process_start` to `process_list`: processes that go on, in all places of a session.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, JobId, ToolError, WorkspaceId, tools};
use hivekeep_ports::{PlaceProcess, ProcessSpec, ProcessState, TerminalSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Argument, MAX_PLACE_CHARS, PLACE_SECS};
use crate::{
    commands::{CommandResult, CommandService, below},
    options::MAX_GRACE_SECS,
    programs::arguments,
};

/// Start a program that goes on in your place, with an open standard input: a server, a debugger, a
/// REPL. It lives until it ends or is ended, also when this session or the daemon is gone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunProcess {
    /// Program; no shell.
    #[schemars(length(max = 4096))]
    command: String,
    /// Arguments.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    args: Vec<Argument>,
    /// True runs the entry point of the place's container image, as in cmd.run.
    #[serde(default)]
    entrypoint: bool,
    /// Folder to run in, below the place's root; default the root.
    #[schemars(length(max = 4096))]
    dir: Option<String>,
    /// Environment variables, each `NAME=value`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    env: Vec<Argument>,
    /// False gives it `/dev/null` as its standard input.
    #[serde(default = "yes")]
    stdin: bool,
    /// True gives it a terminal; both output streams are one then.
    #[serde(default)]
    pty: bool,
    /// Rows of the terminal.
    #[serde(default = "default_rows")]
    #[schemars(range(min = 1, max = 1000))]
    rows: u16,
    /// Columns of the terminal.
    #[serde(default = "default_cols")]
    #[schemars(range(min = 1, max = 1000))]
    cols: u16,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    place: Option<String>,
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
struct StartedRow {
    /// Id for the other calls.
    #[schemars(with = "String")]
    id: JobId,
    /// Process id in the guest.
    pid: u32,
    /// Program.
    command: String,
    /// Arguments.
    args: Vec<String>,
    /// When.
    started_at: DateTime<Utc>,
    /// Place that it runs in.
    place: String,
    /// Workspace of the place.
    #[serde(rename = "workspace_id")]
    #[schemars(with = "String")]
    workspace: WorkspaceId,
}

/// End a process and everything that it started: SIGTERM, and SIGKILL to what is left after a grace
/// period.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
    /// Seconds between the two signals; the default is the operator's.
    #[schemars(range(max = MAX_GRACE_SECS))]
    grace_secs: Option<u64>,
}

/// Kill a process and everything that it started at once, by SIGKILL.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KillProcess {
    /// Id from process_start.
    #[schemars(with = "String")]
    id: JobId,
}

/// A process that was ended.
#[derive(Debug, Serialize, JsonSchema)]
struct EndedProcess {
    /// Process.
    #[schemars(with = "String")]
    id: JobId,
    /// True: nothing of it runs.
    success: bool,
    /// Sentence that says how the process ended.
    message: String,
    /// How it ended.
    #[serde(flatten)]
    status: ProcessStatus,
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
struct ListProcesses {
    /// True leaves out those that ended.
    #[serde(default)]
    running_only: bool,
    /// Name of a place; default all.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    place: Option<String>,
    /// Most processes to show, the last started; default 50.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    50
}

/// Processes.
#[derive(Debug, Serialize, JsonSchema)]
struct ProcessRows {
    /// In the order of their start.
    processes: Vec<ProcessRow>,
    /// Number of all that fit the question; the last of them are shown.
    total: usize,
}

/// A process.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProcessRow {
    /// Identity, program and place.
    #[serde(flatten)]
    started: StartedRow,
    /// Folder that it was started in.
    dir: String,
    /// State, with the exit status or signal once it has ended.
    #[serde(flatten)]
    status: ProcessStatus,
    /// Nanoseconds that it has run, or ran.
    duration: u64,
    /// Whether it has a terminal.
    pty: bool,
}

tools! { pub(crate) FAMILY: "process" for service CommandService, singleton commands;
    process_start: RunProcess => StartedRow = CommandService::process_start {
        title: "Start a process", rate: RateClass::Exec, open_world: true, timeout_secs: 60,
        limit_secs: |_| Some(60 + PLACE_SECS), told_by: Some("process_list"), keyed: true,
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
}

impl CommandService {
    async fn process_start(
        self: Arc<Self>,
        cx: CallCx,
        input: RunProcess,
    ) -> CommandResult<StartedRow> {
        let env = variables(input.env.into_iter().map(|argument| argument.0))?;
        if input.pty && !input.stdin {
            return Err(
                ToolError::invalid("a terminal has an input").next("leave out `pty`, or `stdin`")
            );
        }
        let args = input.args.into_iter().map(|argument| argument.0).collect();
        let (command, dir, place) = (input.command, input.dir.as_deref(), input.place.as_deref());
        let (argv, workdir, place) = if input.entrypoint {
            let args = arguments(command, Some(args))?;
            let place = self.place(&cx, place).await?;
            let (argv, workdir) = self.entry_point(&cx, &place, args, dir).await?;
            (argv, workdir, place)
        } else {
            let argv = self.program(command, args)?;
            let place = self.place(&cx, place).await?;
            (argv, below(&place.root, dir)?, place)
        };
        let size = TerminalSize { rows: input.rows, cols: input.cols };
        let mut command = self.spec(&place, argv, workdir, env)?;
        if input.pty {
            command.env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        }
        let process = ProcessSpec {
            command,
            terminal: input.pty.then_some(size),
            input: input.stdin,
            place: place.place,
        };
        Ok(started(&self.commands.start(&cx, place.workspace, process).await?))
    }

    async fn process_stop(
        self: Arc<Self>,
        cx: CallCx,
        input: StopProcess,
    ) -> CommandResult<EndedProcess> {
        let grace = input.grace_secs.unwrap_or(self.options.stop_grace_secs);
        self.end(&cx, input.id, Duration::from_secs(grace)).await
    }

    async fn process_kill(
        self: Arc<Self>,
        cx: CallCx,
        input: KillProcess,
    ) -> CommandResult<EndedProcess> {
        self.end(&cx, input.id, Duration::ZERO).await
    }

    async fn end(&self, cx: &CallCx, id: JobId, grace: Duration) -> CommandResult<EndedProcess> {
        let (process, had_ended) = self.commands.stop(cx, id, grace).await?;
        let message = match (had_ended, &process.state) {
            (true, _) => "it had ended before",
            (false, ProcessState::Signalled(9)) => "it was killed with everything that it started",
            (false, _) => "it ended, and nothing that it started is left",
        };
        let success = process.state != ProcessState::Running;
        Ok(EndedProcess { id, success, message: message.to_owned(), status: status(process.state) })
    }

    async fn process_list(
        self: Arc<Self>,
        cx: CallCx,
        input: ListProcesses,
    ) -> CommandResult<ProcessRows> {
        let mut all = self.commands.processes(&cx).await;
        all.retain(|process| {
            let may_run = matches!(process.state, ProcessState::Running | ProcessState::Unknown(_));
            (may_run || !input.running_only)
                && input.place.as_ref().is_none_or(|place| process.place == *place)
        });
        let total = all.len();
        let shown = all.into_iter().skip(total.saturating_sub(input.limit));
        Ok(ProcessRows { processes: shown.map(row).collect(), total })
    }
}

/// Variables written as `NAME=value`.
fn variables(words: impl Iterator<Item = String>) -> CommandResult<BTreeMap<String, String>> {
    words
        .map(|word| {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                let shown: String = word.chars().take(40).collect();
                ToolError::invalid(format!("`{shown}` is not a valid variable"))
                    .next("write NAME=value")
            })?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

fn time(unix_ms: u64) -> DateTime<Utc> {
    let time = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    time.unwrap_or_default()
}

fn started(process: &PlaceProcess) -> StartedRow {
    let (command, args) = process.argv.split_first().map_or_else(
        || (String::new(), Vec::new()),
        |(command, args)| (command.clone(), args.to_vec()),
    );
    StartedRow {
        id: process.id,
        pid: process.pid,
        command,
        args,
        started_at: time(process.started_unix_ms),
        place: process.place.clone(),
        workspace: process.workspace,
    }
}

fn row(process: PlaceProcess) -> ProcessRow {
    let until = process.ended_unix_ms.map_or_else(Utc::now, time);
    let ran = until - time(process.started_unix_ms);
    ProcessRow {
        started: started(&process),
        dir: process.workdir,
        duration: ran.num_nanoseconds().unwrap_or(i64::MAX).try_into().unwrap_or(0),
        pty: process.terminal,
        status: status(process.state),
    }
}

pub(super) fn status(state: ProcessState) -> ProcessStatus {
    let is = |status| ProcessStatus { status, exit_code: None, signal: None, reason: None };
    match state {
        ProcessState::Running => is("running"),
        ProcessState::Exited(code) => ProcessStatus { exit_code: Some(code), ..is("exited") },
        ProcessState::Signalled(signal) => ProcessStatus { signal: Some(signal), ..is("killed") },
        ProcessState::Interrupted => is("interrupted"),
        ProcessState::Unknown(reason) => ProcessStatus { reason: Some(reason), ..is("unknown") },
    }
}
