//! Calls of other DAGs side by side, and approvals by people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Items that a DAG is called for: a variable that holds them, a list, or a list with a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParallel {
    /// Variable.
    Variable(String),
    /// Items.
    Items(Vec<Value>),
    /// With a bound.
    Bounded(BoundedParallel),
}

/// Items with a bound of calls at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundedParallel {
    /// Items, or the variable that holds them.
    pub items: Value,
    /// Calls at a time. Default: 10.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: Option<u64>,
}

/// Approval by a person after a step has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagApproval {
    /// Question.
    pub prompt: Option<String>,
    /// Names of the values that are asked for.
    pub input: Option<Vec<String>>,
    /// Those of `input` that have to be given.
    pub required: Option<Vec<String>>,
    /// Step that a rejection goes back to: this one, or one before it.
    pub rewind_to: Option<String>,
}
