//! Ring of what a page's console said: bounded, numbered, and what fell out of it is counted.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;

const MAX_ENTRIES: usize = 1_000;
const TEXT_CHARS: usize = 2_000;
const URL_CHARS: usize = 500;

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ConsoleEntry {
    /// Its number; they count up.
    pub(crate) seq: u64,
    /// `log`, `info`, `debug`, `warn`, `error`; `exception`; `network` of a request that failed; `dialog`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The text.
    pub(crate) text: String,
    /// Time, RFC 3339.
    pub(crate) timestamp: DateTime<Utc>,
    /// URL of the script, or of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) url: String,
    /// Line in it, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct ConsoleLog {
    entries: VecDeque<ConsoleEntry>,
    next: u64,
}

impl ConsoleLog {
    pub(crate) fn push(&mut self, kind: &str, text: &str, url: &str, line: Option<u64>) {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        let entry = ConsoleEntry {
            seq: self.next,
            kind: if kind == "warning" { "warn".to_owned() } else { kind.to_owned() },
            text: text.chars().take(TEXT_CHARS).collect(),
            timestamp: Utc::now(),
            url: url.chars().take(URL_CHARS).collect(),
            line,
        };
        self.next += 1;
        self.entries.push_back(entry);
    }

    /// Number of the next message.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Messages from `since` on that are kept, and how many of them are not.
    pub(crate) fn since(&self, since: u64) -> (impl Iterator<Item = &ConsoleEntry>, u64) {
        let first = self.entries.front().map_or(self.next, |entry| entry.seq);
        let kept = self.entries.iter().filter(move |entry| entry.seq >= since);
        (kept, first.saturating_sub(since))
    }

    /// Forgets those before a number.
    pub(crate) fn clear(&mut self, before: u64) {
        self.entries.retain(|entry| entry.seq >= before);
    }
}
