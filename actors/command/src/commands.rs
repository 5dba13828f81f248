//! Service of commands: each call finds its place, is judged, and runs there.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{
    CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup,
    ports::{CommandEnd, CommandLimits, CommandRunner, CommandSpec, PlaceWorkspace, Places, Tools},
};
use hivekeep_runtime::{Daemon, Ports, Redact};
use hivekeep_store::{Journal, NewEvent};
use serde_json::json;

use crate::{
    Options, codes,
    entry_point::arguments,
    output::{head, tail},
    rules::{Rules, Runnable},
    scripts::PREFIX,
    tools::{self, Bash, BashEnd, CmdEnd, CmdRun, Think, Thought},
};

/// Characters of each stream that `bash` shows.
const SHOWN_CHARS: usize = 100_000;

type Answer<T> = Result<T, ToolError>;

/// Line of a call, and where it runs.
struct CallLine {
    argv: Vec<String>,
    workdir: String,
    place: PlaceWorkspace,
    shell: bool,
    script_version: Option<u64>,
}

/// Commands and processes of all sessions.
pub(crate) struct CommandService {
    pub(crate) options: Options,
    pub(crate) rules: Rules,
    pub(crate) commands: Arc<dyn CommandRunner>,
    pub(crate) ports: Ports,
    /// Tools that are called on a session's behalf.
    pub(crate) daemon_tools: Arc<dyn Tools>,
    journal: Journal,
    redact: Redact,
}

impl Service for CommandService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = tools::FAMILIES;
}

impl CommandService {
    pub(crate) fn new(daemon: &Daemon, options: Options) -> Answer<Self> {
        Ok(Self {
            rules: Rules::new(&options),
            options,
            commands: daemon.ports.need::<dyn CommandRunner>()?,
            ports: daemon.ports.clone(),
            daemon_tools: daemon.tools.clone(),
            journal: daemon.journal.clone(),
            redact: daemon.redact.clone(),
        })
    }

    pub(crate) fn places(&self) -> Answer<Arc<dyn Places>> {
        self.ports.need::<dyn Places>()
    }

    pub(crate) async fn place(&self, cx: &CallCx, place: Option<&str>) -> Answer<PlaceWorkspace> {
        self.places()?.workspace(cx, place).await
    }

    /// Terms of a command. Beside an allow list it has no variables but those that the operator names.
    ///
    /// # Errors
    /// `command_not_allowed`.
    pub(crate) fn spec(
        &self,
        place: &PlaceWorkspace,
        argv: Vec<String>,
        workdir: String,
        env: BTreeMap<String, String>,
    ) -> Answer<CommandSpec> {
        let Options { allow, allow_variables, workspace_variables, .. } = &self.options;
        let listed = !allow.is_empty();
        let inherit = if listed { allow_variables } else { workspace_variables }.clone();
        let spec = CommandSpec { argv, workdir, env, inherit, user: place.user.clone() };
        match spec.env.keys().find(|name| listed && !spec.inherits(name)) {
            None => Ok(spec),
            Some(name) => Err(variable_not_allowed(name)),
        }
    }

    pub(crate) async fn run(self: Arc<Self>, cx: CallCx, input: CmdRun) -> Answer<CmdEnd> {
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
    async fn line(&self, cx: &CallCx, input: &CmdRun) -> Answer<CallLine> {
        let script = self.script(cx, &input.command, input.script_version)?;
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

    fn runnable(&self, command: String, args: Option<Vec<String>>) -> Answer<Runnable> {
        match args {
            None if command.contains(char::is_whitespace) && !command.starts_with(PREFIX) => {
                self.rules.line(&command)
            }
            args => self.program(command, args.unwrap_or_default()).map(Runnable::Program),
        }
    }

    /// A program with its arguments, judged.
    pub(crate) fn program(&self, command: String, args: Vec<String>) -> Answer<Vec<String>> {
        if command.is_empty() {
            return Err(ToolError::invalid("`command` is empty")
                .next("name a program, or set `entrypoint` to run the image's entry point"));
        }
        self.rules.program([command].into_iter().chain(args).collect())
    }

    pub(crate) async fn bash(self: Arc<Self>, cx: CallCx, input: Bash) -> Answer<BashEnd> {
        let line = self.rules.script(&input.command)?;
        let place = self.place(&cx, input.place.as_deref()).await?;
        let limits = CommandLimits {
            timeout_secs: input.timeout,
            // A character has at most four.
            output_bytes: 4 * SHOWN_CHARS as u64,
            tail: false,
        };
        let run = async |shell: &str| {
            let argv = [shell, "-c", &line].map(str::to_owned).to_vec();
            let spec = self.spec(&place, argv, place.root.clone(), BTreeMap::new())?;
            self.commands.run(&cx, place.workspace, spec, limits).await
        };
        let (shell, end) = match run("bash").await {
            Err(error) if error.is(codes::CANNOT_START) => ("sh", run("sh").await?),
            ended => ("bash", ended?),
        };
        let (output, truncated) = shown(&end, input.timeout);
        Ok(BashEnd {
            output,
            is_error: end.exit_code != 0 || end.timed_out,
            exit_code: end.exit_code,
            timed_out: end.timed_out,
            truncated,
            shell: shell.to_owned(),
            elapsed_ms: end.elapsed_ms,
            place: place.place,
            workspace_id: place.workspace,
        })
    }

    pub(crate) async fn think(self: Arc<Self>, cx: CallCx, input: Think) -> Answer<Thought> {
        let event = NewEvent {
            kind: "session.thought".to_owned(),
            subject: cx.session.to_string(),
            data: json!({ "thought": (self.redact)(&input.thought) }),
        };
        let event = self.journal.events().publish(event).await.map_err(|error| {
            ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
                .next("repeat it; nothing was recorded as far as is known")
        })?;
        Ok(Thought { status: "recorded".to_owned(), event: event.get() })
    }
}

/// Both streams as one text.
fn shown(end: &CommandEnd, timeout_secs: u64) -> (String, bool) {
    let ((stdout, cut), (stderr, cut_too)) =
        (head(&end.stdout, SHOWN_CHARS), head(&end.stderr, SHOWN_CHARS));
    let mut output = stdout;
    let line = |output: &mut String, text: &str| {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(text);
    };
    if !stderr.is_empty() {
        line(&mut output, "STDERR:\n");
        output.push_str(&stderr);
    }
    if end.timed_out {
        line(&mut output, &format!("[it did not end within {timeout_secs} s and was killed]"));
    }
    if output.is_empty() {
        output.push_str("(no output)");
    }
    (output, cut || cut_too)
}

fn variable_not_allowed(name: &str) -> ToolError {
    let shown: String = name.chars().take(80).collect();
    let message =
        format!("`{shown}` is not among the variables that allowed commands may be given");
    ToolError::new(Layer::Policy, codes::COMMAND_NOT_ALLOWED, message)
        .next("leave it out; the operator names variables in `command.allow_variables`")
}

fn timed_out(after_secs: u64) -> ToolError {
    let message = format!("it did not end within {after_secs} s; its process tree was killed");
    ToolError::new(Layer::Guest, codes::COMMAND_TIMED_OUT, message)
        .next("give a larger timeout_secs, or start it with process_start")
        .detail("timeout_secs", after_secs)
}

/// A folder of a place: relative to its root, or absolute and below it.
///
/// # Errors
/// `invalid_path` for one that leaves the root by its name.
pub(crate) fn below(root: &str, folder: Option<&str>) -> Answer<String> {
    let Some(folder) = folder else { return Ok(root.to_owned()) };
    let root = root.trim_end_matches('/');
    let rest = match folder.strip_prefix('/') {
        None => Some(folder),
        Some("") => Some(""),
        Some(_) => {
            folder.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    };
    let inside =
        rest.filter(|rest| !rest.split('/').any(|part| part == "..") && !rest.contains('\0'));
    let rest = inside.ok_or_else(|| {
        let shown: String = folder.chars().take(80).collect();
        ToolError::new(
            Layer::Actor,
            codes::INVALID_PATH,
            format!("`{shown}` is not a folder below the place's root `{root}`"),
        )
        .next("name it relative to the root, without `..`")
    })?;
    Ok(match rest.trim_matches('/') {
        "" if root.is_empty() => "/".to_owned(),
        "" => root.to_owned(),
        rest => format!("{root}/{rest}"),
    })
}
