//! The daemon as a long conversation needs it: one that was killed is waited for, and nothing is said twice.

use std::{
    thread,
    time::{Duration, Instant},
};

use hivekeep_agent::acp::schema::{Error, ErrorCode};
use hivekeep_kernel::{ToolError, codes};
use serde_json::{Value, json};

use crate::{
    cli::{
        CommandFailure,
        client::{Client, object},
        output::word,
        reach::{DaemonReach, Unreachable},
        runs::list,
    },
    control::ControlMethod,
};

/// Pause between two attempts to find a daemon again.
const PAUSE: Duration = Duration::from_millis(100);
/// Most events of one page.
const PAGE: usize = 200;
/// Events by which an execution has its session.
const FIRST: usize = 4;

/// See the module.
pub(super) struct DaemonLink {
    pub(super) reach: DaemonReach,
    /// Time for which a lost daemon is waited for.
    pub(super) patience: Duration,
}

impl DaemonLink {
    /// Asks what changes nothing when it is asked twice.
    pub(super) fn ask(&self, method: &ControlMethod) -> Result<Value, Error> {
        let lost_at = Instant::now();
        loop {
            match self.once(method) {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.pause(&failure, lost_at)?,
            }
        }
    }

    /// Calls a tool that does no more when it is called twice.
    pub(super) fn call(&self, tool: &str, input: Value) -> Result<Value, Error> {
        self.ask(&call(tool, input))
    }

    /// Calls a tool that is not called twice, whatever happens.
    pub(super) fn call_once(&self, tool: &str, input: Value) -> Result<Value, Error> {
        self.once(&call(tool, input)).map_err(|failure| refusal(&failure))
    }

    /// Sends a message, once: whether it arrived before the daemon was lost is told by the events from `offset` on.
    pub(super) fn say(&self, id: &str, message: &str, offset: usize) -> Result<(), Error> {
        let method = call("agent_continue", json!({ "execution_id": id, "message": message }));
        let lost_at = Instant::now();
        loop {
            let Err(failure) = self.once(&method) else { return Ok(()) };
            self.pause(&failure, lost_at)?;
            let mut arrived = false;
            self.events(id, offset, |event| {
                arrived |= event["event_type"] == "message_received"
                    && event["payload"]["text"] == message;
            })?;
            if arrived {
                return Ok(());
            }
        }
    }

    /// Number of events so far, of which the first few are shown.
    pub(super) fn events_so_far(
        &self,
        id: &str,
        first: impl FnMut(&Value),
    ) -> Result<usize, Error> {
        let page = self.page(id, 0, FIRST)?;
        list(&page["events"]).iter().for_each(first);
        Ok(page["total"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or_default())
    }

    /// Reads events from one on; the place of the next.
    pub(super) fn events(
        &self,
        id: &str,
        mut offset: usize,
        mut each: impl FnMut(&Value),
    ) -> Result<usize, Error> {
        loop {
            let page = self.page(id, offset, PAGE)?;
            let events = list(&page["events"]);
            events.iter().for_each(&mut each);
            offset += events.len();
            if events.is_empty() || offset as u64 >= page["total"].as_u64().unwrap_or_default() {
                return Ok(offset);
            }
        }
    }

    fn page(&self, id: &str, offset: usize, limit: usize) -> Result<Value, Error> {
        let input = json!({ "execution_id": id, "limit": limit, "offset": offset });
        self.call("aegis.task.logs", input)
    }

    /// Pauses before another attempt, for a daemon that is away or busy, unless that has been so for too long.
    fn pause(&self, failure: &CommandFailure, lost_at: Instant) -> Result<(), Error> {
        let named = match failure {
            // A daemon that is there says when to come again.
            CommandFailure::Tool(error) => error.retry_after_ms.map(Duration::from_millis),
            _ => None,
        };
        if named.is_none() && (!is_lost(failure) || lost_at.elapsed() >= self.patience) {
            return Err(refusal(failure));
        }
        thread::sleep(named.unwrap_or_default().max(PAUSE));
        Ok(())
    }

    fn once(&self, method: &ControlMethod) -> Result<Value, CommandFailure> {
        Client::connect(&self.reach)?.get(method.clone())
    }
}

fn call(tool: &str, input: Value) -> ControlMethod {
    let mut args = object(input);
    args.retain(|_, value| !value.is_null());
    ControlMethod::Call { tool: tool.to_owned(), args, timeout_ms: None }
}

/// True when the daemon is away, or about to be, or busy for the moment.
fn is_lost(failure: &CommandFailure) -> bool {
    match failure {
        CommandFailure::Tool(error) => error.retryable || error.is(codes::DAEMON_STOPPING),
        CommandFailure::Unreachable(why) => {
            matches!(why, Unreachable::NotRunning(_) | Unreachable::Io { .. })
        }
        CommandFailure::Io(_) | CommandFailure::Other(_) => true,
        _ => false,
    }
}

fn refusal(failure: &CommandFailure) -> Error {
    let CommandFailure::Tool(error) = failure else {
        return Error::new(ErrorCode::InternalError.into(), failure.to_string());
    };
    tool_refusal(error)
}

/// A refusal of a tool as an editor is told it.
fn tool_refusal(error: &ToolError) -> Error {
    let code = match () {
        () if error.is(codes::INVALID_INPUT) => ErrorCode::InvalidParams,
        () if error.code.ends_with("_not_found") => ErrorCode::ResourceNotFound,
        () => ErrorCode::InternalError,
    };
    Error::new(code.into(), error.to_text()).data(json!({ "code": error.code }))
}

/// Failure that an event or a state tells, as the answer to a prompt.
pub(super) fn failed(code: &Value, message: &Value) -> Error {
    let error = Error::new(ErrorCode::InternalError.into(), word(message));
    error.data(json!({ "code": code }))
}
