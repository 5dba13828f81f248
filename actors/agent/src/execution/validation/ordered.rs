//! Judges of whoever ordered an execution: one validator behind those of the manifest, each of whose judges has
//! criteria and a weight of its own.

use hivekeep_manifest::agent::Validator;
use hivekeep_ports::OrderedJudge;
use serde::{Deserialize, Serialize};

use super::ValidationPlan;

/// Criteria where an order has none.
const CRITERIA: &str =
    "The output does what the task asks for: completely, correctly, and nothing beside it.";

/// Place of the validator among those of the output, and its judges in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OrderedPanel {
    place: usize,
    seats: Vec<JudgeSeat>,
}

/// Judge of such a validator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JudgeSeat {
    /// Criteria of its own.
    pub(crate) criteria: Option<String>,
    /// Weight beside the others.
    pub(crate) weight: f64,
}

/// Judgement of the last output that such judges judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderedScore {
    pub(crate) score: f64,
    pub(crate) confidence: f64,
    /// Scores of the judges that answered, in their order.
    pub(crate) scores: Vec<f64>,
}

impl ValidationPlan {
    /// Adds judges. Each of them has to answer.
    pub(crate) fn judge_by(&mut self, judges: Vec<OrderedJudge>) {
        if judges.is_empty() {
            return;
        }
        let seat = |judge: &OrderedJudge| {
            let criteria = judge.criteria.clone().filter(|text| !text.trim().is_empty());
            JudgeSeat { criteria, weight: judge.weight.max(0.0) }
        };
        let seats = judges.iter().map(seat).collect();
        self.ordered = Some(OrderedPanel { place: self.output.len(), seats });
        self.output.push(Validator::MultiJudge {
            min_judges_required: Some(judges.len() as u64),
            judges: judges.into_iter().map(|judge| judge.agent).collect(),
            consensus: None,
            criteria: CRITERIA.to_owned(),
            min_score: None,
            min_confidence: None,
            timeout_seconds: None,
        });
    }

    /// Whether a validator of the output is that of whoever ordered the execution.
    pub(super) fn is_ordered(&self, at: usize) -> bool {
        self.ordered.as_ref().is_some_and(|panel| panel.place == at)
    }

    /// Judge of whoever ordered the execution, by the places of its validator and of its own.
    pub(crate) fn seat(&self, validator: usize, judge: usize) -> Option<&JudgeSeat> {
        self.ordered.as_ref().filter(|panel| panel.place == validator)?.seats.get(judge)
    }
}
