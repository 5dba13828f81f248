//! What became of a task, as the host keeps it.

use std::sync::Arc;

use hivekeep_kernel::{
    MessageId,
    ports::{TaskOutcome, TaskResult, TaskText},
};
use serde::{Deserialize, Serialize};

use super::Task;
use crate::mailbox::book::Letter;

/// Instead of an output that is not kept.
const DROPPED: &str = "[output no longer kept]";
/// What is left of a reason when the output goes.
const SHORT_REASON_CHARS: usize = 200;

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Its command exited.
    Exited {
        /// With this status.
        exit_code: i32,
    },
    /// Its command was ended by a signal.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// It reached its time limit and was killed.
    TimedOut,
    /// Its machine went down under it. It is not run again.
    Interrupted,
    /// It was cancelled.
    Cancelled,
    /// It was not run.
    Invalid {
        /// For programs.
        code: String,
        /// For people.
        reason: String,
    },
    /// Its workspace is gone. Whether it ran is not known.
    Lost,
}

impl Outcome {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signalled { .. } => "signalled",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Invalid { .. } => "invalid",
            Self::Lost => "lost",
        }
    }
}

impl From<TaskOutcome> for Outcome {
    fn from(told: TaskOutcome) -> Self {
        match told {
            TaskOutcome::Exited { exit_code } => Self::Exited { exit_code },
            TaskOutcome::Signalled { signal } => Self::Signalled { signal },
            TaskOutcome::TimedOut => Self::TimedOut,
            TaskOutcome::Interrupted => Self::Interrupted,
            TaskOutcome::Cancelled => Self::Cancelled,
            TaskOutcome::Invalid { code, reason } => Self::Invalid { code, reason },
        }
    }
}

/// An outcome with what there is to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// Where it ran.
    pub workdir: Option<String>,
    /// What it wrote.
    pub stdout: TaskText,
    /// What it wrote there.
    pub stderr: TaskText,
    /// From its start to its end.
    pub elapsed_ms: u64,
}

fn nothing() -> TaskText {
    TaskText { text: String::new(), truncated: false, total_bytes: 0, path: None }
}

impl Ended {
    /// Of a task that did not get to run, as far as is known.
    pub fn without_run(outcome: Outcome) -> Self {
        Self { outcome, workdir: None, stdout: nothing(), stderr: nothing(), elapsed_ms: 0 }
    }
}

impl From<TaskResult> for Ended {
    fn from(told: TaskResult) -> Self {
        let TaskResult { outcome, workdir, stdout, stderr, elapsed_ms, .. } = told;
        Self { outcome: outcome.into(), workdir, stdout, stderr, elapsed_ms }
    }
}

/// A result. The same however often it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The message that assigned the task.
    pub message: MessageId,
    /// The task.
    pub task_id: String,
    /// Of the task as it was asked for.
    pub print: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where it ran.
    pub workdir: Option<String>,
    /// What it wrote.
    pub stdout: TaskText,
    /// What it wrote there.
    pub stderr: TaskText,
    /// From its start to its end.
    pub elapsed_ms: u64,
    /// What it takes, written down.
    pub bytes: usize,
}

impl Kept {
    pub(super) fn new(task: &Task, print: String, ended: Ended) -> Self {
        let Ended { outcome, workdir, stdout, stderr, elapsed_ms } = ended;
        let (message, task_id) = (task.message, task.work.task_id.clone());
        let kept = Self {
            message,
            task_id,
            print,
            outcome,
            workdir,
            stdout,
            stderr,
            elapsed_ms,
            bytes: 0,
        };
        kept.weighed()
    }

    fn weighed(mut self) -> Self {
        self.bytes = serde_json::to_vec(&self).map_or(0, |bytes| bytes.len());
        self
    }

    /// What is always remembered of it.
    pub(super) fn without_output(&self) -> Self {
        let bare = |text: &TaskText| TaskText {
            text: DROPPED.to_owned(),
            truncated: true,
            total_bytes: text.total_bytes,
            path: None,
        };
        let outcome = match &self.outcome {
            Outcome::Invalid { code, reason } => Outcome::Invalid {
                code: code.clone(),
                reason: reason.chars().take(SHORT_REASON_CHARS).collect(),
            },
            other => other.clone(),
        };
        let (stdout, stderr) = (bare(&self.stdout), bare(&self.stderr));
        Self { outcome, workdir: None, stdout, stderr, ..self.clone() }.weighed()
    }
}

impl Letter for Arc<Kept> {
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
