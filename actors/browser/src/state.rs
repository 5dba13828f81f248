//! What is known of a browser: a value that Chrome's events are applied to. Answers with what has to be
//! done about them; does nothing itself.

pub(crate) mod apply;
mod console;
mod downloads;
mod happened;

use std::collections::{BTreeMap, HashMap};

pub(crate) use console::{ConsoleEntry, ConsoleLog};
pub(crate) use downloads::{SavedFile, SeenDownload};
pub(crate) use happened::{HandledDialog, Happened, OpenTab};

/// Pages of a browser at a time; one more is closed.
pub(crate) const MAX_TABS: usize = 12;
/// Requests of a page that are known to run.
const MAX_REQUESTS: usize = 2_000;

/// What is done about a dialog of a page, which stands still until then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DialogPolicy {
    pub(crate) accept: bool,
    pub(crate) prompt_text: Option<String>,
}

/// Something that an event calls for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BrowserEffect {
    /// Attach to a page that a page opened.
    Attach(String),
    /// Close a page.
    CloseTarget(String),
    /// Answer a dialog.
    Dialog { session: String, accept: bool, text: Option<String> },
    /// Stop a download.
    CancelDownload(String),
    /// Remove what a download brought.
    RemoveDownload(String),
    /// Put what a download brought into the session's place.
    SaveDownload(String),
    /// Publish what became of a download.
    TellDownload(String),
    /// Publish what became of a page.
    TellPage(PageEnd),
}

/// End of a page, or of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageEnd {
    pub(crate) target: String,
    pub(crate) url: String,
    /// Why its process ended; `None` for a page that was closed.
    pub(crate) crashed: Option<String>,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Tab {
    pub(crate) target: String,
    /// Session of the target; messages about the page name it.
    pub(crate) session: String,
    pub(crate) frame: String,
    pub(crate) url: String,
    pub(crate) title: String,
    /// Why its process ended.
    pub(crate) crashed: Option<String>,
    /// Whether it is being loaded again: what is still told of its old process says nothing.
    pub(crate) reviving: bool,
    /// Document of the main frame, and how far it is loaded.
    pub(crate) loader: String,
    pub(crate) loaded: Vec<String>,
    /// Whether a document is on its way.
    pub(crate) loading: bool,
    /// Status of the document's answer, by its loader.
    pub(crate) status: Option<(String, u64)>,
    /// Requests that run: method and URL.
    pub(crate) requests: HashMap<String, String>,
    /// Counts up with each request that begins or ends.
    pub(crate) traffic: u64,
}

impl Tab {
    /// Takes note that its process ended, once.
    fn crash(&mut self, why: &str) -> Option<BrowserEffect> {
        if self.reviving || self.crashed.is_some() {
            return None;
        }
        self.crashed = Some(why.to_owned());
        Some(self.end())
    }

    fn end(&self) -> BrowserEffect {
        let (target, url, crashed) = (self.target.clone(), self.url.clone(), self.crashed.clone());
        BrowserEffect::TellPage(PageEnd { target, url, crashed })
    }

    /// Takes note of the document that the main frame has.
    fn document(&mut self, loader: &str) {
        if self.loader != loader {
            loader.clone_into(&mut self.loader);
            self.loaded.clear();
            self.requests.clear();
        }
    }

    /// Requests that run.
    pub(crate) fn busy(&self) -> usize {
        self.requests.len()
    }
}

/// The value.
#[derive(Debug, Default)]
pub(crate) struct BrowserState {
    /// In the order of their opening.
    pub(crate) tabs: Vec<Tab>,
    /// Target of the page that calls are about.
    pub(crate) active: String,
    pub(crate) console: ConsoleLog,
    pub(crate) dialogs: DialogPolicy,
    /// The browser context whose pages are ours.
    pub(crate) context: String,
    /// Largest download.
    pub(crate) download_bytes: u64,
    pub(crate) happened: happened::HappenedLog,
    /// Where what no answer has told yet begins in it.
    pub(crate) told: u64,
    pub(crate) downloads: BTreeMap<String, SeenDownload>,
}

impl BrowserState {
    /// The page that calls are about.
    pub(crate) fn tab(&self) -> Option<&Tab> {
        self.of_target(&self.active).or(self.tabs.last())
    }

    /// Forgets that the active page's process ended.
    pub(crate) fn revive(&mut self) {
        let active = self.tab().map(|tab| tab.target.clone());
        if let Some(tab) = self.tabs.iter_mut().find(|tab| Some(&tab.target) == active.as_ref()) {
            tab.reviving |= tab.crashed.take().is_some();
        }
    }

    pub(crate) fn of_target(&self, target: &str) -> Option<&Tab> {
        self.tabs.iter().find(|tab| tab.target == target)
    }

    fn of_session(&mut self, session: Option<&str>) -> Option<&mut Tab> {
        let session = session?;
        self.tabs.iter_mut().find(|tab| tab.session == session)
    }

    /// Takes a page that was attached to. The first one is the active one.
    pub(crate) fn add(&mut self, tab: Tab) {
        if self.tabs.is_empty() {
            self.active.clone_from(&tab.target);
        }
        self.tabs.push(tab);
    }

    /// Where the log of what happened ends.
    pub(crate) fn mark(&self) -> u64 {
        self.happened.end()
    }

    /// Whether something became of a download since a mark.
    pub(crate) fn downloads_since(&self, mark: u64) -> bool {
        !self.happened.since(mark).1.is_empty()
    }

    /// Whether no download is on its way.
    pub(crate) fn downloads_are_over(&self) -> bool {
        self.downloads.values().all(|seen| seen.state.is_final())
    }

    /// What an answer has to tell: what happened since its mark, and before it that no answer told yet; and
    /// which pages there are where it is more than one.
    pub(crate) fn tell(&mut self, mark: u64) -> Happened {
        let (dialogs, guids) = self.happened.since(mark.min(self.told));
        self.told = self.happened.end();
        let downloads = guids.iter().filter_map(|guid| self.downloads.get(guid)).cloned();
        let row = |tab: &Tab| OpenTab {
            tab: tab.target.clone(),
            url: tab.url.chars().take(500).collect(),
            title: tab.title.chars().take(100).collect(),
            active: self.tab().is_some_and(|active| active.target == tab.target),
        };
        let tabs = match self.tabs.len() {
            0 | 1 => Vec::new(),
            _ => self.tabs.iter().map(row).collect(),
        };
        Happened { dialogs, downloads: downloads.collect(), tabs }
    }
}

#[cfg(test)]
mod tests;
