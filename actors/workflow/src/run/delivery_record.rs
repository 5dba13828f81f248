//! Records of attempts at the receivers of a run's end.

use hivekeep_kernel::ToolError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Attempt at a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeliveryRecord {
    /// Place among the receivers.
    pub(super) place: usize,
    pub(super) name: String,
    pub(super) attempt: u64,
    #[serde(flatten)]
    pub(super) stage: DeliveryStage,
}

/// Stage of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub(crate) enum DeliveryStage {
    /// About to be made.
    Begun,
    /// Failed, for good where it was the last.
    Failed { error: Box<ToolError>, last: bool },
    /// Taken, with what the receiver answered.
    Done { result: Value },
}

impl DeliveryRecord {
    pub(super) fn event(&self) -> (&'static str, Value) {
        let Self { name, attempt, .. } = self;
        let about =
            |key: &str, value: Value| json!({ "name": name, "attempt": attempt, key: value });
        match &self.stage {
            DeliveryStage::Begun => {
                ("delivery_started", json!({ "name": name, "attempt": attempt }))
            }
            DeliveryStage::Failed { error, last: true } => {
                ("delivery_failed", about("error", json!(error)))
            }
            DeliveryStage::Failed { error, .. } => {
                ("delivery_retried", about("error", json!(error)))
            }
            DeliveryStage::Done { result } => {
                ("delivery_completed", about("result", result.clone()))
            }
        }
    }

    /// Whether no attempt follows.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.stage, DeliveryStage::Done { .. } | DeliveryStage::Failed { last: true, .. })
    }
}
