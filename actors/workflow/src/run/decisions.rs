//! Decisions of the agent of a DAG, as its run records them.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_plan::{plan::NodeIndex, progress::RetryFrom};
use hivekeep_ports::ModelToolCall;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A decision, with what the agent saw last before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentDecision {
    /// Result of the step that the decision before chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) observed: Option<String>,
    /// Text of the answer.
    pub(crate) text: String,
    /// Tool that the model called; of several the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<DecidedCall>,
    /// Meaning of the call.
    #[serde(flatten)]
    pub(crate) choice: DecisionChoice,
    /// Model that answered.
    pub(crate) model: String,
    /// Tokens that it read.
    pub(crate) input_tokens: u64,
}

/// Call of a tool, as the model has it in its conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecidedCall {
    id: String,
    name: String,
    pub(crate) arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

impl From<ModelToolCall> for DecidedCall {
    fn from(call: ModelToolCall) -> Self {
        let ModelToolCall { id, name, arguments, signature } = call;
        Self { id, name, arguments, signature }
    }
}

impl From<&DecidedCall> for ModelToolCall {
    fn from(call: &DecidedCall) -> Self {
        let DecidedCall { id, name, arguments, signature } = call.clone();
        Self { id, name, arguments, signature }
    }
}

/// Choice of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub(crate) enum DecisionChoice {
    /// A step is done.
    Step { node: NodeIndex },
    /// A person is asked.
    AskUser { node: NodeIndex, question: String },
    /// A task is said to be so.
    TaskStatus { task: String, status: GoalStatus, reason: String },
    /// A call that nothing is done for.
    Rejected { why: String },
    /// An answer without a call.
    Stalled,
}

/// Status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalStatus {
    /// To be done.
    Open,
    /// Done.
    Completed,
    /// Not needed.
    Skipped,
    /// Not to be reached.
    Failed,
}

impl GoalStatus {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// Task that is not open any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettledGoal {
    pub(crate) status: GoalStatus,
    pub(crate) reason: String,
}

/// All decisions of a run, and what they say of its tasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DecisionLog {
    pub(crate) all: Vec<Arc<AgentDecision>>,
    /// Decisions before the run was retried.
    before: usize,
    pub(crate) goals: BTreeMap<String, SettledGoal>,
}

impl DecisionLog {
    pub(super) fn take(&mut self, decision: AgentDecision) {
        if let DecisionChoice::TaskStatus { task, status, reason } = &decision.choice {
            match status {
                GoalStatus::Open => drop(self.goals.remove(task)),
                status => {
                    let settled = SettledGoal { status: *status, reason: reason.clone() };
                    self.goals.insert(task.clone(), settled);
                }
            }
        }
        self.all.push(Arc::new(decision));
    }

    /// Opens again what failed; from the beginning, everything.
    pub(super) fn retried(&mut self, from: RetryFrom) {
        if from == RetryFrom::Beginning {
            *self = Self::default();
        }
        self.before = self.all.len();
        self.goals.retain(|_, goal| goal.status != GoalStatus::Failed);
    }

    /// Keeps what became of the tasks.
    pub(super) fn rest(&mut self) {
        (self.all, self.before) = Default::default();
    }

    /// Decisions since the run was begun or retried.
    pub(super) fn current(&self) -> &[Arc<AgentDecision>] {
        self.all.get(self.before..).unwrap_or_default()
    }
}
