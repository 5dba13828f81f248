//! Jobs behind an output as records: which attempts were begun, and what came of them.
//!
//! ```text
//! the output is taken ─▶ handler ─▶ the end ─▶ parent and children are told ─▶ receivers ─▶ the session ends
//!                           └─ each: ( begun ─▶ failed )* begun ─▶ done, or failed for the last time
//! ```
//! An attempt is recorded before it is made. One that a crash cut is made again by the same key, which is its place:
//! the output's iteration and turn, and the job's number.

use hivekeep_kernel::{ExecutionId, ToolError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Place of a job: iteration and turn of the output, and its number in the plan.
pub(crate) type AfterKey = (usize, usize, usize);

/// Step of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AfterRecord {
    pub(crate) key: AfterKey,
    pub(crate) name: String,
    /// True for a receiver, false for the handler.
    pub(crate) delivers: bool,
    pub(crate) attempt: u64,
    pub(crate) stage: AfterStage,
}

/// Stage of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub(crate) enum AfterStage {
    /// Attempt that is about to be made.
    Begun {
        /// Execution that an agent's is.
        execution: Option<ExecutionId>,
    },
    /// Failure, that of the last attempt for good.
    Failed { error: Box<ToolError>, last: bool },
    /// Success, with what the receiver answered.
    Done { result: Value },
}

impl AfterRecord {
    pub(super) fn event(&self) -> (&'static str, Value) {
        let Self { key, name, delivers, attempt, stage } = self;
        let mut payload = json!({ "name": name, "attempt": attempt, "iteration": key.0 });
        let (event_types, key, value) = match stage {
            AfterStage::Begun { execution } => {
                (["handler_started", "delivery_started"], "execution_id", json!(execution))
            }
            AfterStage::Failed { error, last: true } => {
                (["handler_failed", "delivery_failed"], "error", json!(error))
            }
            AfterStage::Failed { error, last: false } => {
                (["handler_retried", "delivery_retried"], "error", json!(error))
            }
            AfterStage::Done { result } => {
                (["handler_completed", "delivery_completed"], "result", result.clone())
            }
        };
        payload[key] = value;
        (event_types[usize::from(*delivers)], payload)
    }
}
