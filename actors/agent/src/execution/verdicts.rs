//! Verdicts of validators as records: what is judged, what judges answered, and what it comes to.

use hivekeep_kernel::{ExecutionId, ToolError};
use hivekeep_manifest::common::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{forks::TurnKey, records::CallKey};

/// Thing that is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JudgedSubject {
    /// Output of an iteration.
    Output { iteration: usize, turn: usize },
    /// Call that has side effects, before it is made.
    Call { key: CallKey },
}

/// Place of a verdict: the subject, and the validator's place among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct VerdictKey {
    pub(crate) subject: JudgedSubject,
    pub(crate) validator: usize,
}

/// Outcome of asking a judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum JudgeOpinion {
    Given {
        score: f64,
        confidence: f64,
        reasoning: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        signals: Vec<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<JsonObject>,
    },
    /// The judge gave no answer, or one that is of no use.
    Failed { error: Box<ToolError> },
}

/// Verdict of a validator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ValidationVerdict {
    pub(crate) passed: bool,
    pub(crate) score: f64,
    pub(crate) confidence: f64,
    pub(crate) reasons: Vec<String>,
    /// Too few judges answered: nothing was found out.
    pub(crate) unavailable: bool,
}

/// Record about a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "judging", rename_all = "snake_case")]
pub(crate) enum JudgingRecord {
    /// A judge is about to be asked, by an execution of this id.
    Asked { key: VerdictKey, judge: usize, agent: String, execution: ExecutionId },
    /// A judge's execution is over, or could not be begun.
    Ended { key: VerdictKey, judge: usize, execution: ExecutionId, opinion: JudgeOpinion },
    /// A validator of a type has its verdict.
    Validated { key: VerdictKey, kind: String, verdict: ValidationVerdict },
}

impl VerdictKey {
    pub(super) fn iteration(self) -> usize {
        self.turn().0
    }

    /// Iteration and turn, each from 0.
    pub(crate) fn turn(self) -> TurnKey {
        match self.subject {
            JudgedSubject::Output { iteration, turn } => (iteration, turn),
            JudgedSubject::Call { key: (iteration, turn, _) } => (iteration, turn),
        }
    }
}
