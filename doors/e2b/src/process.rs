//! Processes of a sandbox: `process.Process` of the published data plane, by the tools of processes. A start and an
//! attachment are answered by a stream of what the process writes.

mod input;
mod output;

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::HeaderMap, response::Response};
use hivekeep_kernel::JobId;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use input::{close_stdin, send_input, stream_input};

use super::{
    error::{E2bError, Kind},
    rpc::{self, Answer, CallTimes, EnvelopeOf, MessageOf},
    state::E2b,
    target::Target,
};
use output::OutputReader;

/// Processes that are looked at for one.
const MOST: u64 = 500;

/// Which process is meant.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct TerminalSize {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Terminal {
    size: Option<TerminalSize>,
}

/// Processes as they are listed.
#[derive(Debug, Deserialize)]
struct ProcessList {
    processes: Vec<ProcessItem>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProcessItem {
    pub(super) id: JobId,
    pub(super) pid: u32,
    command: String,
    args: Vec<String>,
    dir: String,
    place: String,
    pub(super) pty: bool,
}

impl E2b {
    /// Processes of a sandbox that run.
    async fn running(&self, target: &Target) -> Result<Vec<ProcessItem>, E2bError> {
        let asked = json!({ "running_only": true, "limit": MOST });
        let ProcessList { processes } = self.ask(&target.owner, "process_list", asked).await?;
        let of_target = |process: &ProcessItem| {
            let place = process.place.rsplit_once('@').map_or(&*process.place, |(_, place)| place);
            place.split_once(':').map_or(place, |(workspace, _)| workspace) == target.id
        };
        Ok(processes.into_iter().filter(of_target).collect())
    }

    /// The process that is meant, while it runs.
    async fn selected(
        &self,
        target: &Target,
        selector: Option<&Selector>,
    ) -> Result<ProcessItem, E2bError> {
        let selector = selector.ok_or_else(|| E2bError::invalid("`process` is missing"))?;
        if selector.tag.as_ref().is_some_and(|tag| !tag.is_empty()) {
            return Err(E2bError::unsupported("the tag of a process"));
        }
        let pid = selector.pid.ok_or_else(|| E2bError::invalid("`pid` is missing"))?;
        let found = self.running(target).await?.into_iter().find(|process| process.pid == pid);
        let none = || E2bError::new(Kind::NotFound, format!("process with pid {pid} not found"));
        found.ok_or_else(none)
    }
}

/// `List`: the processes of the sandbox that run.
pub(super) async fn list(State(e2b): State<Arc<E2b>>, target: Target) -> Answer {
    let rows = e2b.running(&target).await?.into_iter().map(|process| {
        let ProcessItem { pid, command, args, dir, .. } = process;
        json!({ "pid": pid, "config": { "cmd": command, "args": args, "cwd": dir } })
    });
    Ok(Json(json!({ "processes": rows.collect::<Vec<Value>>() })))
}

#[derive(Debug, Deserialize)]
pub(super) struct SignalMessage {
    process: Option<Selector>,
    signal: SignalName,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum SignalName {
    #[serde(rename = "SIGNAL_SIGTERM", alias = "SIGTERM")]
    Term,
    #[serde(rename = "SIGNAL_SIGKILL", alias = "SIGKILL")]
    Kill,
}

/// `SendSignal`: SIGTERM or SIGKILL to a process that runs.
pub(super) async fn send_signal(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(message): MessageOf<SignalMessage>,
) -> Answer {
    let process = e2b.selected(&target, message.process.as_ref()).await?;
    let signal = match message.signal {
        SignalName::Term => 15,
        SignalName::Kill => 9,
    };
    let asked = json!({ "id": process.id, "signal": signal });
    e2b.call(&target.owner, "process_signal", asked).await?;
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateMessage {
    process: Option<Selector>,
    pty: Option<Terminal>,
}

/// `Update`: the size of a terminal.
pub(super) async fn update(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(message): MessageOf<UpdateMessage>,
) -> Answer {
    let process = e2b.selected(&target, message.process.as_ref()).await?;
    if let Some(TerminalSize { cols, rows }) = message.pty.and_then(|pty| pty.size) {
        let asked = json!({ "id": process.id, "rows": rows, "cols": cols });
        e2b.call(&target.owner, "process_resize", asked).await?;
    }
    Ok(Json(json!({})))
}

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
pub(super) struct StartMessage {
    process: Config,
    pty: Option<Terminal>,
    tag: Option<String>,
    /// Without it there is an input, as for clients of before it was a choice.
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConnectMessage {
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
pub(super) async fn start(
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
pub(super) async fn connect(
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
