//! Tool declarations of commands and processes.

mod agent;
mod cmd;
mod code;
mod process;

pub(crate) use agent::{Bash, BashEnd, Think, Thought};
pub(crate) use cmd::{CmdEnd, CmdRun};
pub(crate) use code::{CodeError, CodeRun, DEFAULT_CONTEXT, RunCode};
pub(crate) use process::{
    ByteEncoding, EndedProcess, InputSent, KillProcess, ListProcesses, MAX_INPUT_BYTES, OutputRead,
    ProcessRow, ProcessRows, ProcessStatus, ReadOutput, ResizeProcess, ResizedProcess, RunProcess,
    SendInput, SignalProcess, SignalledProcess, StartedRow, StopProcess,
};

use hivekeep_kernel::{ServiceActor, ToolGroup};
use serde_json::Value;

use crate::commands::CommandService;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<CommandService>>] =
    &[&cmd::FAMILY, &agent::FAMILY, &process::FAMILY, &code::FAMILY];

/// Longest name of a place, in characters.
const MAX_PLACE_CHARS: usize = 1024;

/// Time that a place may take to be made or started, on top of a command's own limit.
const PLACE_SECS: u64 = 300;

/// Limit of a call with the limit of a command in a field.
fn with_place(input: &Value, field: &str, default_secs: u64) -> Option<u64> {
    let own = input.get(field).and_then(Value::as_u64).unwrap_or(default_secs);
    Some(own.saturating_add(PLACE_SECS))
}
