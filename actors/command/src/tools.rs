//! Tools of commands and processes; `cmd.run` here: one program, waited for.

mod agent;
mod code;
mod process;
mod process_io;

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{
    CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup, WorkspaceId, tools,
};
use hivekeep_ports::{CommandLimits, PlaceWorkspace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    codes,
    commands::{CommandResult, CommandService, below, tail},
    options::Runnable,
    programs::{SCRIPT_PREFIX, arguments},
};

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<CommandService>>] =
    &[&FAMILY, &agent::FAMILY, &process::FAMILY, &process_io::FAMILY, &code::FAMILY];

/// Longest name of a place, in characters.
const MAX_PLACE_CHARS: usize = 1024;
/// Time that a place may take to be made or started, on top of a command's own limit.
const PLACE_SECS: u64 = 300;
/// Longest time limit of `cmd.run`.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
/// Time limit of a `cmd.run` that names none.
const TIMEOUT_SECS: u64 = 600;
/// Most output of one stream that `cmd.run` returns.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;
/// Longest command, and longest argument, in characters: a system takes 128 KiB in one piece.
const MAX_WORD_CHARS: usize = 32_000;

impl Service for CommandService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = FAMILIES;
}

/// Limit of a call with the limit of a command in a field.
fn with_place(input: &Value, field: &str, default_secs: u64) -> Option<u64> {
    let own = input.get(field).and_then(Value::as_u64).unwrap_or(default_secs);
    Some(own.saturating_add(PLACE_SECS))
}

/// Argument of a program.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(transparent)]
struct Argument(#[schemars(length(max = MAX_WORD_CHARS))] String);

/// Run one program in your place and wait for its end. Another exit code than 0 is a result, not an
/// error. Processes that it leaves behind are ended with it; for those use process_start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CmdRun {
    /// Program. Without `args` also a line of a program and its arguments, quoted as in a shell. `script:NAME` is a
    /// script of your library, by its name or id.
    #[schemars(length(max = MAX_WORD_CHARS))]
    command: String,
    /// Arguments, passed as they are.
    #[schemars(length(max = 1000))]
    args: Option<Vec<Argument>>,
    /// True runs the entry point of the place's container image: `command`, which may be empty, and `args` are its
    /// arguments, without any it gets the image's. Runs in the image's working directory unless there is `cwd`.
    #[serde(default)]
    entrypoint: bool,
    /// Version of the script that `command` names; default the newest.
    #[schemars(range(min = 1))]
    script_version: Option<u64>,
    /// Folder to run in, below the place's root; default the root.
    #[schemars(length(max = 4096))]
    cwd: Option<String>,
    /// Environment variables for this command.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    env_additions: BTreeMap<String, Argument>,
    /// Time limit in seconds, at which it is killed with all that it started; default 600.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout_secs")]
    timeout_secs: u64,
    /// Most bytes of each stream to return, the last ones; default 65536.
    #[schemars(range(min = 1, max = MAX_OUTPUT_BYTES))]
    #[serde(default = "default_output_bytes")]
    max_output_bytes: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    place: Option<String>,
}

fn default_timeout_secs() -> u64 {
    TIMEOUT_SECS
}

fn default_output_bytes() -> u64 {
    64 * 1024
}

/// How a program ended.
#[derive(Debug, Serialize, JsonSchema)]
struct CmdEnd {
    /// The last that it wrote to its standard output.
    stdout: String,
    /// The last that it wrote to its standard error.
    stderr: String,
    /// Exit status; 128 and the signal's number when a signal ended it.
    exit_code: i32,
    /// Signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// Bytes of stdout left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    stdout_omitted_bytes: u64,
    /// Bytes of stderr left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    stderr_omitted_bytes: u64,
    /// Processes that it left behind, which were killed.
    #[serde(skip_serializing_if = "is_zero")]
    killed_stragglers: u64,
    /// Wall-clock time in the guest.
    elapsed_ms: u64,
    /// True if a shell ran the line.
    shell: bool,
    /// Version of the script that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    script_version: Option<u64>,
    /// With `entrypoint`, the line that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<Vec<String>>,
    /// Place that it ran in.
    place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    workspace_id: WorkspaceId,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

tools! { FAMILY: "dispatch" for service CommandService, singleton commands;
    cmd_run: CmdRun => CmdEnd = CommandService::run {
        name: "cmd.run", title: "Run a program", rate: RateClass::Exec, open_world: true, keyed: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024,
        limit_secs: |input| with_place(input, "timeout_secs", TIMEOUT_SECS),
    };
}

/// Line of a call, and where it runs.
struct CallLine {
    argv: Vec<String>,
    workdir: String,
    place: PlaceWorkspace,
    shell: bool,
    script_version: Option<u64>,
}

impl CommandService {
    async fn run(self: Arc<Self>, cx: CallCx, input: CmdRun) -> CommandResult<CmdEnd> {
        let CallLine { argv, workdir, place, shell, script_version } =
            self.line(&cx, &input).await?;
        let limits = CommandLimits {
            timeout_secs: input.timeout_secs,
            output_bytes: input.max_output_bytes,
            tail: true,
        };
        let env = input.env_additions.into_iter().map(|(name, value)| (name, value.0)).collect();
        let ran = input.entrypoint.then(|| argv.clone());
        let spec = self.spec(&place, argv, workdir, env)?;
        let end = self.commands.run(&cx, place.workspace, spec, limits).await?;
        let ((stdout, stdout_omitted_bytes), (stderr, stderr_omitted_bytes)) =
            (tail(&end.stdout), tail(&end.stderr));
        if end.timed_out {
            return Err(timed_out(input.timeout_secs)
                .detail("stdout", stdout)
                .detail("stderr", stderr)
                .detail("place", place.place));
        }
        Ok(CmdEnd {
            stdout,
            stderr,
            exit_code: end.exit_code,
            signal: end.signal,
            stdout_omitted_bytes,
            stderr_omitted_bytes,
            killed_stragglers: end.killed_stragglers.into(),
            elapsed_ms: end.elapsed_ms,
            shell,
            script_version,
            argv: ran,
            place: place.place,
            workspace_id: place.workspace,
        })
    }

    /// Line of a call in its place, judged.
    async fn line(&self, cx: &CallCx, input: &CmdRun) -> CommandResult<CallLine> {
        let script = self.script(cx, &input.command, input.script_version)?.filter(|_| !cx.again());
        let (command, cwd) = (input.command.clone(), input.cwd.as_deref());
        let args = input.args.clone().map(|args| args.into_iter().map(|arg| arg.0).collect());
        if input.entrypoint {
            if script.is_some() {
                return Err(ToolError::invalid("a script is not run by an entry point")
                    .next("leave `entrypoint` out, or name no script"));
            }
            let args = arguments(command, args)?;
            let place = self.place(cx, input.place.as_deref()).await?;
            let (argv, workdir) = self.entry_point(cx, &place, args, cwd).await?;
            return Ok(CallLine { argv, workdir, place, shell: false, script_version: None });
        }
        let (mut argv, shell) = match self.runnable(command, args)? {
            Runnable::Program(argv) => (argv, false),
            Runnable::Script(line) => (vec!["/bin/sh".to_owned(), "-c".to_owned(), line], true),
        };
        let place = self.place(cx, input.place.as_deref()).await?;
        if let Some(script) = &script {
            argv = self.put(cx, &place, script, argv.split_off(1)).await?;
        }
        let workdir = below(&place.root, cwd)?;
        let script_version = script.map(|script| script.version);
        Ok(CallLine { argv, workdir, place, shell, script_version })
    }

    fn runnable(&self, command: String, args: Option<Vec<String>>) -> CommandResult<Runnable> {
        match args {
            None if command.contains(char::is_whitespace)
                && !command.starts_with(SCRIPT_PREFIX) =>
            {
                self.rules.line(&command)
            }
            args => self.program(command, args.unwrap_or_default()).map(Runnable::Program),
        }
    }
}

fn timed_out(after_secs: u64) -> ToolError {
    let message = format!("it did not end within {after_secs} s; its process tree was killed");
    ToolError::new(Layer::Guest, codes::COMMAND_TIMED_OUT, message)
        .next("give a larger timeout_secs, or start it with process_start")
        .detail("timeout_secs", after_secs)
}
