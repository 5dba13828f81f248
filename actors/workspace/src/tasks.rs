//! Tasks of the guests: put, read, acknowledged.
//!
//! [`hivekeep_link::tasks`] speaks with one guest; [`TaskNews`] has what a guest told before it was
//! asked: [`result_cache`] keeps results, [`Pace`] makes events of what running tasks write.
//! [`TasksHandle`] is the port through which other actors reach every workspace's guest.

mod handle;
mod result_cache;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use hivekeep_link::tasks::is_id;
use hivekeep_ports::TaskHints;
use hivekeep_protocol::{TaskProgress, TaskResultsPush, TaskResultsReply, limits};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use handle::TasksHandle;

use self::result_cache::ResultCache;
use crate::handle::WorkspaceHandle;

/// Between two events about one task. A guest tells once a second; it may be early by a little.
const EVERY: Duration = Duration::from_millis(900);
/// Tasks that are told of in that time: some end and others begin.
const MOST_TASKS: usize = 2 * limits::TASKS_AT_ONCE;
/// Characters of a line that are shown.
const MAX_LINE_CHARS: usize = 200;

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

/// When which task was told of.
#[derive(Debug, Default)]
struct Pace(HashMap<String, Instant>);

impl Pace {
    /// The data of the event, unless the guest says too much. `hide` takes credentials out.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        told: &TaskProgress,
        hide: impl FnOnce(&str) -> String,
    ) -> Option<Value> {
        let named = !told.task_id.is_empty() && is_id(&told.task_id) && is_id(&told.message_id);
        self.0.retain(|_, last| now.duration_since(*last) < EVERY);
        if !named || self.0.contains_key(&told.task_id) || self.0.len() >= MOST_TASKS {
            return None;
        }
        self.0.insert(told.task_id.clone(), now);
        Some(json!({
            "task_id": told.task_id,
            "message_id": told.message_id,
            "stdout_bytes": told.stdout_bytes,
            "stderr_bytes": told.stderr_bytes,
            "last_line": last_line(&told.tail)
                .map(|line| hide(&line).chars().take(MAX_LINE_CHARS).collect::<String>()),
        }))
    }
}

/// The last line that is there from its beginning to its end: of a part of one nobody can tell
/// what it is a part of.
fn last_line(tail: &[u8]) -> Option<String> {
    let tail = &tail[tail.len().saturating_sub(limits::MAX_TASK_TAIL_BYTES)..];
    let is_whole = tail.len() < limits::MAX_TASK_TAIL_BYTES;
    let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let end = tail.iter().rposition(ends_line)?;
    let mut lines: Vec<_> = tail[..end].split(ends_line).collect();
    if !is_whole {
        lines.remove(0);
    }
    let text = |line: &[u8]| -> String {
        let text = String::from_utf8_lossy(line);
        text.chars().filter(|c| !c.is_control()).collect()
    };
    let line = lines.into_iter().rev().map(text).find(|line| !line.trim().is_empty())?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(task_id: &str, tail: &[u8]) -> TaskProgress {
        TaskProgress {
            task_id: task_id.into(),
            message_id: "m".into(),
            stdout_bytes: 7,
            stderr_bytes: 8,
            tail: tail.to_vec(),
        }
    }

    #[test]
    fn a_task_is_told_of_once_a_second_and_a_flood_is_not_passed_on() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let mut event = |after_ms, id: &str| {
            let now = begun + Duration::from_millis(after_ms);
            pace.event(now, &told(id, b"a\nb\n"), str::to_owned)
        };
        let wanted = json!({
            "task_id": "t", "message_id": "m", "stdout_bytes": 7, "stderr_bytes": 8,
            "last_line": "b",
        });
        assert_eq!(event(0, "t"), Some(wanted.clone()));
        assert_eq!(event(500, "t"), None);
        assert_eq!(event(1000, "t"), Some(wanted));
        let passed = (0..1000).filter(|n| event(2000, &n.to_string()).is_some()).count();
        assert_eq!(passed, MOST_TASKS);
        for bad in ["", "a\nb", &"x".repeat(limits::MAX_TASK_ID_BYTES + 1)] {
            assert_eq!(event(9000, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_a_whole_line_is_shown_bounded_and_without_credentials() {
        let line = |tail: &[u8]| last_line(tail);
        assert_eq!(line(b"done 10%\rdone 20%\rdone 3").as_deref(), Some("done 20%"));
        assert_eq!(line(b"first\n\n \n"), Some("first".into()));
        assert_eq!(line(b"no end"), None);
        assert_eq!(line(b""), None);
        let cut = [b"ret=hunter22 ".repeat(39).as_slice(), b"0123\n"].concat();
        assert_eq!(cut.len(), limits::MAX_TASK_TAIL_BYTES);
        assert_eq!(line(&cut), None, "its beginning is not there");
        assert_eq!(line(b"\x1b[1mok\xff\n").as_deref(), Some("[1mok\u{fffd}"));
        let mut pace = Pace::default();
        let event = pace.event(Instant::now(), &told("t", b"password=x\n"), |_| "hidden".into());
        assert_eq!(event.expect("told")["last_line"], "hidden");
    }
}
