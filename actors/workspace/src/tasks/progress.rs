//! Events of running tasks, at a bounded pace.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use hivekeep_protocol::{TaskProgress, limits};
use serde_json::{Value, json};

use hivekeep_link::tasks::is_id;

/// Between two events about one task. A guest tells once a second; it may be early by a little.
const EVERY: Duration = Duration::from_millis(900);
/// Tasks that are told of in that time: some end and others begin.
const MOST_TASKS: usize = 2 * limits::TASKS_AT_ONCE;
/// Characters of a line that are shown.
const MAX_LINE_CHARS: usize = 200;

/// When which task was told of.
#[derive(Debug, Default)]
pub(crate) struct Pace(HashMap<String, Instant>);

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
