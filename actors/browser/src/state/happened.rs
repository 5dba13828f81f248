//! Events beside a call that its answer reports: dialogs, downloads, pages.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use super::SeenDownload;

const MAX_ENTRIES: usize = 100;

/// A dialog that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct HandledDialog {
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub(crate) kind: String,
    /// What it said.
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

/// What happened beside the call.
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
        if self.entries.len() == MAX_ENTRIES {
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
