//! Service of processes: those of a session, in all its places.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    CallCx, JobId, Layer, ToolError,
    ports::{PlaceProcess, ProcessSpan, ProcessSpec, ProcessState, ProcessWindow, TerminalSize},
};

use crate::{
    codes,
    commands::{CommandService, below},
    entry_point::arguments,
    tools::{
        ByteEncoding, EndedProcess, InputSent, KillProcess, ListProcesses, MAX_INPUT_BYTES,
        OutputRead, ProcessRow, ProcessRows, ProcessStatus, ReadOutput, ResizeProcess,
        ResizedProcess, RunProcess, SendInput, SignalProcess, SignalledProcess, StartedRow,
        StopProcess,
    },
};

type Answer<T> = Result<T, ToolError>;

impl CommandService {
    pub(crate) async fn process_start(
        self: Arc<Self>,
        cx: CallCx,
        input: RunProcess,
    ) -> Answer<StartedRow> {
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

    pub(crate) async fn process_stop(
        self: Arc<Self>,
        cx: CallCx,
        input: StopProcess,
    ) -> Answer<EndedProcess> {
        let grace = input.grace_secs.unwrap_or(self.options.stop_grace_secs);
        self.end(&cx, input.id, Duration::from_secs(grace)).await
    }

    pub(crate) async fn process_kill(
        self: Arc<Self>,
        cx: CallCx,
        input: KillProcess,
    ) -> Answer<EndedProcess> {
        self.end(&cx, input.id, Duration::ZERO).await
    }

    async fn end(&self, cx: &CallCx, id: JobId, grace: Duration) -> Answer<EndedProcess> {
        let (process, had_ended) = self.commands.stop(cx, id, grace).await?;
        let message = match (had_ended, &process.state) {
            (true, _) => "it had ended before",
            (false, ProcessState::Signalled(9)) => "it was killed with everything that it started",
            (false, _) => "it ended, and nothing that it started is left",
        };
        let success = process.state != ProcessState::Running;
        Ok(EndedProcess { id, success, message: message.to_owned(), status: status(process.state) })
    }

    pub(crate) async fn process_list(
        self: Arc<Self>,
        cx: CallCx,
        input: ListProcesses,
    ) -> Answer<ProcessRows> {
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

    pub(crate) async fn process_output(
        self: Arc<Self>,
        cx: CallCx,
        input: ReadOutput,
    ) -> Answer<OutputRead> {
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

    pub(crate) async fn process_input(
        self: Arc<Self>,
        cx: CallCx,
        input: SendInput,
    ) -> Answer<InputSent> {
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
}

/// Sizes and signals.
impl CommandService {
    pub(crate) async fn process_resize(
        self: Arc<Self>,
        cx: CallCx,
        input: ResizeProcess,
    ) -> Answer<ResizedProcess> {
        let ResizeProcess { id, rows, cols } = input;
        self.commands.resize(&cx, id, TerminalSize { rows, cols }).await?;
        Ok(ResizedProcess { id, rows, cols })
    }

    pub(crate) async fn process_signal(
        self: Arc<Self>,
        cx: CallCx,
        input: SignalProcess,
    ) -> Answer<SignalledProcess> {
        let SignalProcess { id, signal } = input;
        let (process, had_ended) = self.commands.signal(&cx, id, signal).await?;
        Ok(SignalledProcess { id, sent: !had_ended, status: status(process.state) })
    }
}

/// Variables written as `NAME=value`.
fn variables(words: impl Iterator<Item = String>) -> Answer<BTreeMap<String, String>> {
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

fn status(state: ProcessState) -> ProcessStatus {
    let is = |status| ProcessStatus { status, exit_code: None, signal: None, reason: None };
    match state {
        ProcessState::Running => is("running"),
        ProcessState::Exited(code) => ProcessStatus { exit_code: Some(code), ..is("exited") },
        ProcessState::Signalled(signal) => ProcessStatus { signal: Some(signal), ..is("killed") },
        ProcessState::Interrupted => is("interrupted"),
        ProcessState::Unknown(reason) => ProcessStatus { reason: Some(reason), ..is("unknown") },
    }
}
