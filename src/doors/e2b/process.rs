//! Processes of a sandbox: `process.Process` of the published data plane, by the tools of processes.

mod input;
mod output;
mod start;

use std::sync::Arc;

use axum::{Json, extract::State};
use hivekeep_kernel::JobId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::{E2bError, Kind},
    rpc::{Answer, MessageOf},
    state::E2b,
    target::Target,
};

pub(super) use input::{close_stdin, send_input, stream_input};
pub(super) use start::{connect, start};

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

/// `List`.
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

/// `SendSignal`.
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
