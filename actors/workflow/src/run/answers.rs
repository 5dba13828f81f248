//! Answers of people as they are recorded, and what they leave to the steps that are done again.

use chrono::{DateTime, Utc};
use hivekeep_manifest::common::JsonObject;
use hivekeep_plan::{
    lower::StepWork,
    resolve::{NamedTexts, value_text},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Most push-backs that `DAG_PUSHBACK` tells of.
const MOST_TOLD: usize = 20;

/// Question of a try that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeWait {
    pub(crate) prompt: String,
    /// Exit status of what is to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
}

/// Answer as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PersonAnswer {
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) given: GivenAnswer,
}

/// Answer with its values checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum GivenAnswer {
    Approved { values: JsonObject },
    Rejected { reason: Option<String> },
    PushedBack { values: JsonObject, reason: Option<String> },
}

/// Push-back, for the nodes that are done again because of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PushBack {
    /// Number among the push-backs of the run, from 1.
    pub(crate) iteration: usize,
    pub(crate) by: String,
    pub(crate) at: DateTime<Utc>,
    pub(crate) reason: Option<String>,
    pub(crate) inputs: JsonObject,
}

impl PushBack {
    /// Variables of a step that is done again because of the last of some: `DAG_PUSHBACK`, and the values, of which one
    /// with an approval of its own gets those that this asks for.
    pub(super) fn variables(all: &[Self], work: &StepWork) -> NamedTexts {
        let wanted = work.step.approval.as_ref().and_then(|approval| approval.input.as_ref());
        let seen = |push_back: &Self| {
            let mut seen = push_back.clone();
            seen.inputs.retain(|name, _| wanted.is_none_or(|wanted| wanted.contains(name)));
            seen
        };
        let history: Vec<Self> = all.iter().rev().take(MOST_TOLD).rev().map(seen).collect();
        let Some(last) = history.last() else { return NamedTexts::new() };
        let mut whole = json!(last);
        whole["history"] = json!(history);
        let inputs = last.inputs.iter();
        let inputs = inputs.map(|(name, it)| (name.clone(), value_text(it).into_owned()));
        inputs.chain([("DAG_PUSHBACK".to_owned(), whole.to_string())]).collect()
    }
}
