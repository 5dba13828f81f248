//! `webview_console`.

use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    act::act,
    browser::Browser,
    state::{ConsoleEntry, ConsoleLog},
};

fn default_rows() -> usize {
    100
}

/// Least severity of messages that are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConsoleLevel {
    /// Everything.
    #[default]
    All,
    /// Warnings and errors.
    Warn,
    /// Errors, exceptions and failed requests.
    Error,
}

impl ConsoleLevel {
    fn shows(self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Warn => kind == "warn" || Self::Error.shows(kind),
            Self::Error => matches!(kind, "error" | "exception" | "network" | "assert"),
        }
    }
}

/// Read the console of the browser's pages: messages, exceptions, and requests that failed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Console {
    /// Whether what was read is forgotten.
    #[serde(default)]
    pub(crate) clear: bool,
    /// First number to read: the `next` of the answer before.
    #[serde(default)]
    pub(crate) since: u64,
    /// Least severity of messages that are shown.
    #[serde(default)]
    pub(crate) level: ConsoleLevel,
    /// Most messages, 1 to 500.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default = "default_rows")]
    pub(crate) limit: usize,
}

/// Messages.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConsoleRead {
    /// Messages, the oldest first.
    pub(crate) messages: Vec<ConsoleEntry>,
    /// Their number.
    pub(crate) count: usize,
    /// Where to go on.
    pub(crate) next: u64,
    /// Messages from `since` on that are not kept any more.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) dropped: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_console: Console => ConsoleRead = Browser::console {
        title: "Read the console",
    };
}

impl Browser {
    fn console(&mut self, cx: &CallCx, input: Console) -> Result<Reply<ConsoleRead>, ToolError> {
        Ok(act(self, cx, 10, move |page, _| async move {
            let mut state = page.chrome.state();
            let (messages, next, dropped) = read(&state.console, &input);
            if input.clear {
                state.console.clear(next);
            }
            Ok(ConsoleRead { count: messages.len(), messages, next, dropped })
        }))
    }
}

/// Messages that are asked for, where to go on, and how many are gone.
fn read(log: &ConsoleLog, input: &Console) -> (Vec<ConsoleEntry>, u64, u64) {
    let (kept, dropped) = log.since(input.since);
    let mut shown = kept.filter(|entry| input.level.shows(&entry.kind));
    let messages = shown.by_ref().take(input.limit).cloned().collect();
    let next = shown.next().map_or(log.next(), |entry| entry.seq);
    (messages, next, dropped)
}
