//! The result of a task, as it is recorded and, once it was received, remembered.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::MessageId;
use hivekeep_ports::{TaskCapture, TaskOutcome, TaskResult, TaskText};
use serde::{Deserialize, Serialize};

use super::Task;
use crate::inbox::Item;

/// Instead of an output that is not kept.
const DROPPED: &str = "[output no longer kept]";
/// Characters that are left of a reason when the output goes.
const SHORT_REASON_CHARS: usize = 200;

/// Tasks that are remembered; the guest remembers as many.
const MOST_KNOWN: usize = 1_000;
/// Bytes of the outputs of all of them. The oldest are remembered without.
const MOST_KNOWN_BYTES: usize = 2 * 1024 * 1024;

/// A result of a task that did not get to run, as far as is known.
pub(crate) fn without_run(task_id: &str, outcome: TaskOutcome) -> TaskResult {
    TaskResult {
        number: 0,
        task_id: task_id.to_owned(),
        message_id: String::new(),
        outcome,
        capture: TaskCapture::default(),
    }
}

/// Result, with its task. The same however often the guest reports it, but for the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResult {
    /// The message that assigned the task.
    pub message: MessageId,
    /// The task.
    pub task_id: String,
    /// [`Assignment::print`](super::Assignment::print) of the task.
    pub print: String,
    /// End of its command.
    #[serde(flatten)]
    pub outcome: TaskOutcome,
    /// Folder, output and time of its command.
    #[serde(flatten)]
    pub capture: TaskCapture,
    /// Time at which it came to the host; absent from those of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime<Utc>>,
    /// Bytes that it takes, recorded.
    pub bytes: usize,
}

impl StoredResult {
    pub(super) fn new(task: &Task, result: TaskResult, at: DateTime<Utc>) -> Self {
        let stored = Self {
            message: task.message,
            task_id: task.work.task_id.clone(),
            print: task.work.print(),
            outcome: result.outcome,
            capture: result.capture,
            at: Some(at),
            bytes: 0,
        };
        stored.weighed()
    }

    fn weighed(mut self) -> Self {
        self.bytes = serde_json::to_vec(&self).map_or(0, |bytes| bytes.len());
        self
    }

    /// The part of it that is always remembered.
    fn without_output(&self) -> Self {
        let bare = |text: &TaskText| TaskText {
            text: DROPPED.to_owned(),
            truncated: true,
            total_bytes: text.total_bytes,
            path: None,
        };
        let outcome = match &self.outcome {
            TaskOutcome::Invalid { code, reason } => TaskOutcome::Invalid {
                code: code.clone(),
                reason: reason.chars().take(SHORT_REASON_CHARS).collect(),
            },
            other => other.clone(),
        };
        let capture = TaskCapture {
            workdir: None,
            stdout: bare(&self.capture.stdout),
            stderr: bare(&self.capture.stderr),
            elapsed_ms: self.capture.elapsed_ms,
        };
        Self { outcome, capture, ..self.clone() }.weighed()
    }
}

impl Item for Arc<StoredResult> {
    fn id(&self) -> MessageId {
        self.message
    }

    fn weight(&self) -> usize {
        self.bytes
    }

    fn answer_bytes(&self) -> usize {
        // The names of fields differ a little.
        256 + self.bytes
    }

    fn most_answer_bytes(&self) -> usize {
        self.answer_bytes()
    }
}

/// Results that were received, remembered so that a repeat of their tasks runs nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The oldest first.
    order: VecDeque<String>,
    results: HashMap<String, Arc<StoredResult>>,
    bytes: usize,
    /// So many of the oldest are without outputs.
    bare: usize,
}

impl Known {
    /// Adds one. Names those that are forgotten for it.
    pub(super) fn add(&mut self, result: Arc<StoredResult>) -> Vec<String> {
        self.bytes += result.bytes;
        self.order.push_back(result.task_id.clone());
        self.results.insert(result.task_id.clone(), result);
        let mut forgotten = Vec::new();
        while self.order.len() > MOST_KNOWN
            && let Some(id) = self.order.pop_front()
        {
            self.bytes -= self.results.remove(&id).map_or(0, |result| result.bytes);
            self.bare = self.bare.saturating_sub(1);
            forgotten.push(id);
        }
        while self.bytes > MOST_KNOWN_BYTES
            && let Some(id) = self.order.get(self.bare)
        {
            self.bare += 1;
            if let Some(result) = self.results.get_mut(id) {
                let bare = result.without_output();
                self.bytes = self.bytes + bare.bytes - result.bytes;
                *result = Arc::new(bare);
            }
        }
        forgotten
    }

    pub(super) fn get(&self, task_id: &str) -> Option<&Arc<StoredResult>> {
        self.results.get(task_id)
    }

    /// The oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<StoredResult>> {
        self.order.iter().filter_map(|id| self.results.get(id))
    }
}
