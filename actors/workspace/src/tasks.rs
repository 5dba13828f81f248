//! Tasks of the guests: put, read, acknowledged.
//!
//! [`hivekeep_link::tasks`] speaks with one guest; [`TaskNews`] has what a guest told before it was
//! asked: [`result_cache`] keeps results, [`progress`] makes events of what running tasks write.
//! [`TasksHandle`] is the port through which other actors reach every workspace's guest.

mod handle;
mod progress;
mod result_cache;

use std::time::Instant;

use hivekeep_kernel::ports::TaskHints;
use hivekeep_protocol::{TaskProgress, TaskResultsPush, TaskResultsReply};
use tokio::sync::watch;

pub use handle::TasksHandle;

use self::{progress::Pace, result_cache::ResultCache};
use crate::handle::WorkspaceHandle;

/// News of one guest's tasks that came without being asked for.
pub(crate) struct TaskNews {
    /// Changes when the guest's tasks may have changed.
    hints: watch::Sender<u64>,
    results: ResultCache,
    /// Number of times that the link came or went.
    links: u64,
    pace: Pace,
}

impl Default for TaskNews {
    fn default() -> Self {
        let hints = watch::channel(0).0;
        Self { hints, results: ResultCache::default(), links: 0, pace: Pace::default() }
    }
}

impl TaskNews {
    /// Hints that tell when to look for results.
    pub(crate) fn hints(&self) -> TaskHints {
        TaskHints::new(self.hints.subscribe())
    }

    /// Number of the present link.
    pub(crate) fn links(&self) -> u64 {
        self.links
    }

    /// Cached results beyond a number; `None` if the guest has to be asked.
    pub(crate) fn cached(&self, after: u64, limit: u32) -> Option<TaskResultsReply> {
        self.results.answer(after, limit)
    }

    /// Drops results that are durable elsewhere.
    pub(crate) fn acknowledged(&mut self, task_ids: &[String]) {
        self.results.acknowledged(task_ids);
    }

    /// Keeps a result that came with the hint, unless it came over an earlier link.
    pub(crate) fn ended(&mut self, links: u64, news: TaskResultsPush) {
        if links == self.links {
            self.results.keep(news);
        }
        self.changed();
    }

    /// Clears the cached results: they hold no longer than the link they came over.
    pub(crate) fn relinked(&mut self) {
        self.links += 1;
        self.results.clear();
    }

    /// Publishes the progress of a running task.
    pub(crate) fn progress(&mut self, workspace: &WorkspaceHandle, told: &TaskProgress) {
        let hide = workspace.shared.daemon.redact.clone();
        if let Some(data) = self.pace.event(Instant::now(), told, |text| hide(text)) {
            workspace.publish("task.progress", data);
        }
    }

    /// Hints that the guest's tasks changed, or may have while no link was up.
    pub(crate) fn changed(&self) {
        self.hints.send_modify(|count| *count = count.wrapping_add(1));
    }
}
