//! State of a browser: a value that Chrome's events are applied to. It returns the effects to perform, and
//! performs none itself.

pub(crate) mod apply;
mod downloads;
mod logs;

use std::collections::{BTreeMap, HashMap};

pub(crate) use downloads::{SavedFile, SeenDownload};
pub(crate) use logs::{ConsoleEntry, ConsoleLog, HandledDialog, Happened, OpenTab};

/// Pages of a browser at a time; one more is closed.
pub(crate) const MAX_TABS: usize = 12;
/// Running requests of a page that are tracked.
const MAX_REQUESTS: usize = 2_000;

/// Answer to a page's dialogs; the page stands still until then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DialogPolicy {
    pub(crate) accept: bool,
    pub(crate) prompt_text: Option<String>,
}

/// Effect that an event calls for.
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
    /// Remove the file of a download.
    RemoveDownload(String),
    /// Save the file of a download in the session's place.
    SaveDownload(String),
    /// Publish the outcome of a download.
    TellDownload(String),
    /// Publish the end of a page.
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
    /// Why the page's process ended.
    pub(crate) crashed: Option<String>,
    /// Whether the page is being loaded again: late reports of its old process are ignored.
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
    /// Number of requests that began or ended so far.
    pub(crate) traffic: u64,
}

impl Tab {
    /// Records that the page's process ended, once.
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

    /// Records the document that the main frame has.
    fn document(&mut self, loader: &str) {
        if self.loader != loader {
            loader.clone_into(&mut self.loader);
            self.loaded.clear();
            self.requests.clear();
        }
    }

    /// Number of running requests.
    pub(crate) fn busy(&self) -> usize {
        self.requests.len()
    }
}

#[derive(Debug, Default)]
pub(crate) struct BrowserState {
    /// Pages in the order of their opening.
    pub(crate) tabs: Vec<Tab>,
    /// Target of the page that calls are about.
    pub(crate) active: String,
    pub(crate) console: ConsoleLog,
    pub(crate) dialogs: DialogPolicy,
    /// The browser context of the session's pages.
    pub(crate) context: String,
    /// Largest download.
    pub(crate) download_bytes: u64,
    pub(crate) happened: logs::HappenedLog,
    /// Mark in `happened` of the first entry that no answer has reported.
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

    /// Adds an attached page. The first one becomes the active one.
    pub(crate) fn add(&mut self, tab: Tab) {
        if self.tabs.is_empty() {
            self.active.clone_from(&tab.target);
        }
        self.tabs.push(tab);
    }

    /// Mark at the end of the log `happened`.
    pub(crate) fn mark(&self) -> u64 {
        self.happened.end()
    }

    /// Whether a download changed since a mark.
    pub(crate) fn downloads_since(&self, mark: u64) -> bool {
        !self.happened.since(mark).1.is_empty()
    }

    /// Whether no download is on its way.
    pub(crate) fn downloads_are_over(&self) -> bool {
        self.downloads.values().all(|seen| seen.state.is_final())
    }

    /// Report of an answer: events since its mark and earlier ones that no answer reported yet, and the pages
    /// if there are several.
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
