//! Starting a process, and attaching to one: both are answered by a stream of what it writes.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::HeaderMap, response::Response};
use hivekeep_kernel::JobId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Selector, Terminal, output::OutputReader};
use crate::doors::e2b::{
    error::E2bError,
    rpc::{self, CallTimes, EnvelopeOf},
    state::E2b,
    target::Target,
};

/// Size of a terminal for which a client names none.
const ROWS: u16 = 24;
const COLS: u16 = 80;

#[derive(Debug, Deserialize)]
struct Config {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct StartMessage {
    process: Config,
    pty: Option<Terminal>,
    tag: Option<String>,
    /// Without it there is an input, as for clients of before it was a choice.
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct ConnectMessage {
    process: Option<Selector>,
}

#[derive(Debug, Deserialize)]
struct Started {
    id: JobId,
    pid: u32,
}

impl StartMessage {
    fn asked(self, target: &Target) -> Result<Value, E2bError> {
        let Self { process, pty, tag, stdin } = self;
        if tag.is_some_and(|tag| !tag.is_empty()) {
            return Err(E2bError::unsupported("the tag of a process"));
        }
        let cwd = process.cwd.unwrap_or_default();
        let (place, dir) = target.place_of(&cwd);
        let env = process.envs.iter().map(|(name, value)| format!("{name}={value}"));
        let mut asked = json!({
            "command": process.cmd, "args": process.args, "env": env.collect::<Vec<_>>(),
            "place": place, "dir": dir, "stdin": stdin.unwrap_or(true),
        });
        if let Some(pty) = pty {
            let size = pty.size.unwrap_or_default();
            asked["pty"] = true.into();
            asked["rows"] = if size.rows == 0 { ROWS } else { size.rows }.into();
            asked["cols"] = if size.cols == 0 { COLS } else { size.cols }.into();
        }
        Ok(asked)
    }
}

fn started(pid: u32) -> Value {
    json!({ "event": { "start": { "pid": pid } } })
}

/// `Start`. A process whose call has a time limit is killed at it.
pub(in super::super) async fn start(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    headers: HeaderMap,
    EnvelopeOf(message): EnvelopeOf<StartMessage>,
) -> Response {
    let terminal = message.pty.is_some();
    let begun = async {
        let asked = message.asked(&target)?;
        e2b.ask::<Started>(&target.owner, "process_start", asked).await
    };
    let Started { id, pid } = match begun.await {
        Ok(begun) => begun,
        Err(error) => return rpc::failed(error),
    };
    let times = CallTimes::of(&headers);
    let reader = OutputReader::new(e2b, target, id, terminal);
    rpc::stream(&started(pid), move |writer| reader.kill_late().follow(writer, times))
}

/// `Connect`: what a process writes from now on.
pub(in super::super) async fn connect(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    headers: HeaderMap,
    EnvelopeOf(message): EnvelopeOf<ConnectMessage>,
) -> Response {
    let process = match e2b.selected(&target, message.process.as_ref()).await {
        Ok(process) => process,
        Err(error) => return rpc::failed(error),
    };
    let mut reader = OutputReader::new(e2b, target, process.id, process.pty);
    if let Err(error) = reader.skip().await {
        return rpc::failed(error);
    }
    let times = CallTimes::of(&headers);
    rpc::stream(&started(process.pid), move |writer| reader.follow(writer, times))
}
