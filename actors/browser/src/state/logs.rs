//! Logs of a browser, rings that are bounded: what the console of its pages said, and the events beside a call that
//! its answer reports, which are dialogs, downloads and pages.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;

use super::SeenDownload;

const MAX_MESSAGES: usize = 1_000;
const TEXT_CHARS: usize = 2_000;
const URL_CHARS: usize = 500;
const MAX_HAPPENED: usize = 100;

/// A message of a console.
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

/// Ring of messages: numbered, and what fell out of it is counted.
#[derive(Debug, Default)]
pub(crate) struct ConsoleLog {
    entries: VecDeque<ConsoleEntry>,
    next: u64,
}

impl ConsoleLog {
    pub(crate) fn push(&mut self, kind: &str, text: &str, url: &str, line: Option<u64>) {
        if self.entries.len() == MAX_MESSAGES {
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

/// A dialog that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct HandledDialog {
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub(crate) kind: String,
    /// Text of the dialog.
    pub(crate) message: String,
    /// Whether it was accepted.
    pub(crate) accepted: bool,
}

/// A page of the browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct OpenTab {
    /// Id.
    pub(crate) tab: String,
    /// URL.
    pub(crate) url: String,
    /// Title.
    pub(crate) title: String,
    /// Whether calls are about it.
    pub(crate) active: bool,
}

/// Dialogs, downloads and pages that came up beside the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Happened {
    /// Dialogs that opened since the last answer, answered as `webview_connect` was told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dialogs: Vec<HandledDialog>,
    /// Downloads of which something became since the last answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) downloads: Vec<SeenDownload>,
    /// Pages, where there is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tabs: Vec<OpenTab>,
}

#[derive(Debug)]
enum HappenedEntry {
    Dialog(HandledDialog),
    /// A change of a download, by its id.
    Download(String),
}

/// Ring of the latest entries.
#[derive(Debug, Default)]
pub(crate) struct HappenedLog {
    entries: VecDeque<(u64, HappenedEntry)>,
    next: u64,
}

impl HappenedLog {
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    pub(super) fn dialog(&mut self, dialog: HandledDialog) {
        self.push(HappenedEntry::Dialog(dialog));
    }

    pub(super) fn download(&mut self, guid: &str) {
        self.push(HappenedEntry::Download(guid.to_owned()));
    }

    fn push(&mut self, entry: HappenedEntry) {
        if self.entries.len() == MAX_HAPPENED {
            self.entries.pop_front();
        }
        self.entries.push_back((self.next, entry));
        self.next += 1;
    }

    /// Dialogs and ids of downloads since a mark, each once.
    pub(super) fn since(&self, mark: u64) -> (Vec<HandledDialog>, Vec<String>) {
        let (mut dialogs, mut downloads) = (Vec::new(), Vec::<String>::new());
        for (_, entry) in self.entries.iter().filter(|(at, _)| *at >= mark) {
            match entry {
                HappenedEntry::Dialog(dialog) => dialogs.push(dialog.clone()),
                HappenedEntry::Download(guid) if downloads.contains(guid) => {}
                HappenedEntry::Download(guid) => downloads.push(guid.clone()),
            }
        }
        (dialogs, downloads)
    }
}
