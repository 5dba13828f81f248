//! Terminals of a program: processes of its machine, by the daemon's own tools in the execution's session.

use std::path::Path;

use hivekeep_kernel::{Layer, ToolError};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    requests::{ROOT, below, refusal},
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
    codes,
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
        if let Some(cwd) = cwd.filter(|cwd| cwd != Path::new(ROOT)) {
            input["dir"] = json!(below(&cwd)?);
        }
        let StartedTerminal { id } =
            self.child_call(state, TERMINALS[0], input).await.map_err(refusal)?;
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
            text += &read.output;
            let over = text.len().saturating_sub(SHOWN_BYTES);
            cut |= over > 0;
            text.drain(..text.ceil_char_boundary(over));
            (from, reads) = (read.next(), reads + 1);
            if !read.more || reads >= READS {
                cut |= read.more;
                break read.exit_status().map_err(refusal)?;
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
            if let Some(status) = read.exit_status().map_err(refusal)? {
                return Ok(WaitForTerminalExitResponse::new(status));
            }
            from = read.next();
        }
    }

    pub(super) async fn kill_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<KillTerminalResponse, Error> {
        let KillTerminalRequest { terminal_id, .. } = params(given)?;
        self.end_terminal(state, &terminal_id.0).await?;
        Ok(KillTerminalResponse::new())
    }

    /// Ends what still runs; the machine forgets the output by itself.
    pub(super) async fn release_terminal(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let ReleaseTerminalRequest { terminal_id, .. } = params(given)?;
        self.end_terminal(state, &terminal_id.0).await?;
        Ok(ReleaseTerminalResponse::new())
    }

    async fn end_terminal(&self, state: &ExecutionState, id: &str) -> Result<(), Error> {
        let ended = self.child_call(state, TERMINALS[2], json!({ "id": id })).await;
        ended.map(|IgnoredAny| ()).map_err(refusal)
    }

    async fn read_terminal(
        &self,
        state: &ExecutionState,
        id: &str,
        (stdout_from, stderr_from): (u64, u64),
        wait_secs: u64,
    ) -> Result<TerminalPart, Error> {
        let input = json!({ "id": id, "stdout_from": stdout_from, "stderr_from": stderr_from,
            "max_bytes": READ_BYTES, "wait_secs": wait_secs });
        self.child_call(state, TERMINALS[1], input).await.map_err(refusal)
    }
}

/// Answer of the tool that starts a process.
#[derive(Deserialize)]
struct StartedTerminal {
    id: String,
}

/// Answer of the tool that reads an output.
#[derive(Deserialize)]
struct TerminalPart {
    output: String,
    stdout_next: u64,
    stderr_next: u64,
    more: bool,
    status: String,
    #[serde(rename = "exitCode")]
    exit_code: Option<u32>,
    signal: Option<i32>,
    reason: Option<String>,
}

impl TerminalPart {
    /// Cursors behind what was read.
    fn next(&self) -> (u64, u64) {
        (self.stdout_next, self.stderr_next)
    }

    /// How the process ended; `None` while it runs.
    ///
    /// # Errors
    /// `program_failed` where that cannot be said.
    fn exit_status(&self) -> Result<Option<TerminalExitStatus>, ToolError> {
        match &*self.status {
            "running" => Ok(None),
            "exited" | "killed" => {
                let signal = self.signal.map(|signal| signal.to_string());
                Ok(Some(TerminalExitStatus::new().exit_code(self.exit_code).signal(signal)))
            }
            other => {
                let why = self.reason.as_deref().unwrap_or("its machine ended under it");
                let message = format!("the command is `{other}`: {why}");
                Err(ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message)
                    .next("look whether it took effect, and start it again"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is told of an end goes on as if there were one.
    #[test]
    fn an_end_is_told_only_where_there_was_one() {
        let status = |more: Value| {
            let mut part =
                json!({ "output": "", "stdout_next": 0, "stderr_next": 0, "more": false });
            part.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
            serde_json::from_value::<TerminalPart>(part).expect("a part").exit_status()
        };
        assert!(status(json!({ "status": "running" })).expect("known").is_none());
        let exited = status(json!({ "status": "exited", "exitCode": 3 })).expect("known");
        assert_eq!(exited.expect("over").exit_code, Some(3));
        let killed = status(json!({ "status": "killed", "signal": 9 })).expect("known");
        assert_eq!(killed.expect("over").signal.as_deref(), Some("9"));
        for lost in ["interrupted", "unknown"] {
            let error = status(json!({ "status": lost })).expect_err(lost);
            assert!(error.message.contains(lost), "{error}");
        }
    }
}
