//! Terminals of a program: processes of its machine, by the daemon's own tools in the execution's session.

use serde_json::{Value, json};

use super::{
    requests::{below, refusal},
    tools::TERMINALS,
};
use crate::{
    acp::{
        frames::params,
        schema::{
            CreateTerminalRequest, CreateTerminalResponse, Error, KillTerminalRequest,
            KillTerminalResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
            TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse,
            WaitForTerminalExitRequest, WaitForTerminalExitResponse,
        },
    },
    execution::{ExecutionSaga, state::ExecutionState},
};

/// Bytes of the end of an output that a program is shown.
const SHOWN_BYTES: usize = 64 * 1024;
/// Most bytes of one read, and the number of reads that all that is kept takes.
const READ_BYTES: u64 = 256 * 1024;
const READS: usize = 16;
/// Seconds of one wait.
const WAIT_SECS: u64 = 30;

impl ExecutionSaga {
    /// Starts a command; one that is a line, without arguments, is a shell's.
    pub(super) async fn open_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
        was_begun: bool,
    ) -> Result<CreateTerminalResponse, Error> {
        if was_begun {
            let why =
                "the daemon ended meanwhile, and whether the command was started is not known";
            return Err(Error::internal_error().data(why));
        }
        let CreateTerminalRequest { command, args, env, cwd, .. } = params(given)?;
        let (command, args) = match args.is_empty() {
            true => ("sh".to_owned(), vec!["-c".to_owned(), command]),
            false => (command, args),
        };
        let env: Vec<_> = env.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
        let mut input = json!({ "command": command, "args": args, "env": env, "stdin": false });
        if let Some(cwd) = cwd.filter(|cwd| !cwd.ends_with("workspace")) {
            input["dir"] = json!(below(&cwd)?);
        }
        let started = self.child_call(state, TERMINALS[0], input).await.map_err(refusal)?;
        let id = started["id"].as_str().unwrap_or_default().to_owned();
        Ok(CreateTerminalResponse::new(id))
    }

    pub(super) async fn terminal_output(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<TerminalOutputResponse, Error> {
        let TerminalOutputRequest { terminal_id, .. } = params(given)?;
        let (mut text, mut from, mut cut, mut reads) = (String::new(), (0, 0), false, 0);
        let status = loop {
            let read = self.read_terminal(state, &terminal_id.0, from, 0).await?;
            text += read["output"].as_str().unwrap_or_default();
            let over = text.len().saturating_sub(SHOWN_BYTES);
            cut |= over > 0;
            text.drain(..text.ceil_char_boundary(over));
            (from, reads) = (next(&read), reads + 1);
            if read["more"] != true || reads >= READS {
                break exit_status(&read);
            }
        };
        Ok(TerminalOutputResponse::new(text, cut).exit_status(status))
    }

    pub(super) async fn await_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let WaitForTerminalExitRequest { terminal_id, .. } = params(given)?;
        let mut from = (0, 0);
        loop {
            let read = self.read_terminal(state, &terminal_id.0, from, WAIT_SECS).await?;
            if let Some(status) = exit_status(&read) {
                return Ok(WaitForTerminalExitResponse::new(status));
            }
            from = next(&read);
        }
    }

    pub(super) async fn kill_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<KillTerminalResponse, Error> {
        let KillTerminalRequest { terminal_id, .. } = params(given)?;
        self.child_call(state, TERMINALS[2], json!({ "id": *terminal_id.0 }))
            .await
            .map_err(refusal)?;
        Ok(KillTerminalResponse::new())
    }

    /// Ends what still runs; the machine forgets the output by itself.
    pub(super) async fn release_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let ReleaseTerminalRequest { terminal_id, .. } = params(given)?;
        self.child_call(state, TERMINALS[2], json!({ "id": *terminal_id.0 }))
            .await
            .map_err(refusal)?;
        Ok(ReleaseTerminalResponse::new())
    }

    async fn read_terminal(
        &self,
        state: &ExecutionState,
        id: &str,
        (stdout_from, stderr_from): (u64, u64),
        wait_secs: u64,
    ) -> Result<Value, Error> {
        let input = json!({ "id": id, "stdout_from": stdout_from, "stderr_from": stderr_from,
            "max_bytes": READ_BYTES, "wait_secs": wait_secs });
        self.child_call(state, TERMINALS[1], input).await.map_err(refusal)
    }
}

/// Cursors behind what was read.
fn next(read: &Value) -> (u64, u64) {
    let at = |key: &str| read[key].as_u64().unwrap_or_default();
    (at("stdout_next"), at("stderr_next"))
}

/// How a process ended; `None` while it runs.
fn exit_status(read: &Value) -> Option<TerminalExitStatus> {
    if read["status"] == "running" {
        return None;
    }
    let code = read["exitCode"].as_u64().and_then(|code| u32::try_from(code).ok());
    let signal = read["signal"].as_i64().map(|signal| signal.to_string());
    Some(TerminalExitStatus::new().exit_code(code).signal(signal))
}
