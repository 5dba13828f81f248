//! Transitions: ways from one state of a workflow to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::Share,
    problems::{ManifestPath, ProblemList, not_there},
};

/// Way out of a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transition {
    /// Condition under which the transition is taken.
    pub condition: TransitionCondition,
    /// Name of the state that the transition leads to.
    pub target: String,
    /// Text for the state that the transition leads to.
    pub feedback: Option<String>,
    /// Value that `exit_code` and `input_equals` compare with.
    pub value: Option<TransitionValue>,
    /// Bound of `score_above`, `score_below`, `confidence_above`, `consensus` and
    /// `score_and_confidence_above`.
    pub threshold: Option<Share>,
    /// Lower bound of `score_between`.
    pub min: Option<Share>,
    /// Upper bound of `score_between`.
    pub max: Option<Share>,
    /// Least agreement, for `consensus`.
    pub agreement: Option<Share>,
    /// Least score, for `score_and_confidence_above`.
    pub score_threshold: Option<Share>,
    /// Least confidence, for `score_and_confidence_above`.
    pub confidence_threshold: Option<Share>,
    /// Expression of `custom`.
    pub expression: Option<String>,
}

/// Value that a condition compares with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum TransitionValue {
    /// An exit status.
    Status(i64),
    /// A text.
    Text(String),
}

/// Condition under which a transition is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransitionCondition {
    /// In any case.
    Always,
    /// The state succeeded.
    OnSuccess,
    /// The state failed.
    OnFailure,
    /// The exit status is 0.
    ExitCodeZero,
    /// The exit status is not 0.
    ExitCodeNonZero,
    /// The exit status is `value`.
    ExitCode,
    /// The score is above `threshold`.
    ScoreAbove,
    /// The score is below `threshold`.
    ScoreBelow,
    /// The score is from `min` to `max`.
    ScoreBetween,
    /// The confidence is above `threshold`.
    ConfidenceAbove,
    /// Score and confidence are above their thresholds.
    ScoreAndConfidenceAbove,
    /// The consensus reaches `threshold` with `agreement`.
    Consensus,
    /// Every judge approves.
    AllApproved,
    /// A judge rejects.
    AnyRejected,
    /// The person's answer is `value`.
    InputEquals,
    /// The person's answer is a yes.
    InputEqualsYes,
    /// The person's answer is a no.
    InputEqualsNo,
    /// `expression` is true.
    Custom,
}

/// Fields that say more about a condition.
const PARAMETERS: [&str; 8] = [
    "value",
    "threshold",
    "min",
    "max",
    "agreement",
    "score_threshold",
    "confidence_threshold",
    "expression",
];

impl TransitionCondition {
    /// Fields that the condition needs, and those that it may have beside them.
    fn parameters(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::ExitCode | Self::InputEquals => (&["value"], &[]),
            Self::ScoreAbove | Self::ScoreBelow | Self::ConfidenceAbove => (&["threshold"], &[]),
            Self::ScoreBetween => (&["min", "max"], &[]),
            Self::ScoreAndConfidenceAbove => {
                (&[], &["threshold", "score_threshold", "confidence_threshold"])
            }
            Self::Consensus => (&["threshold"], &["agreement"]),
            Self::Custom => (&["expression"], &[]),
            _ => (&[], &[]),
        }
    }
}

/// Checks the ways out of a state against the names of all states.
pub(super) fn check_all(
    transitions: &[Transition],
    at: &ManifestPath,
    states: &[&str],
    problems: &mut ProblemList<'_>,
) {
    for (index, transition) in transitions.iter().enumerate() {
        check(transition, &at.join(index), states, problems);
    }
    let always = transitions.iter().position(|it| it.condition == TransitionCondition::Always);
    if let Some(behind) = always.map(|index| index + 1).filter(|it| *it < transitions.len()) {
        let message = "is never taken: `always` stands before it";
        problems.add(&at.join(behind).join("condition"), message);
    }
}

fn check(
    transition: &Transition,
    at: &ManifestPath,
    states: &[&str],
    problems: &mut ProblemList<'_>,
) {
    if !states.contains(&transition.target.as_str()) {
        problems.add(&at.join("target"), not_there("state", &transition.target, states));
    }
    let (needed, possible) = transition.condition.parameters();
    let given = [
        transition.value.is_some(),
        transition.threshold.is_some(),
        transition.min.is_some(),
        transition.max.is_some(),
        transition.agreement.is_some(),
        transition.score_threshold.is_some(),
        transition.confidence_threshold.is_some(),
        transition.expression.is_some(),
    ];
    for (name, given) in PARAMETERS.into_iter().zip(given) {
        if given && !needed.contains(&name) && !possible.contains(&name) {
            problems.add_key(&at.join(name), "says nothing about this condition");
        } else if !given && needed.contains(&name) {
            problems.add(&at.join("condition"), format!("this condition needs `{name}`"));
        }
    }
    if let (Some(min), Some(max)) = (transition.min, transition.max)
        && min.0 > max.0
    {
        problems.add(&at.join("max"), "has to be at least `min`");
    }
    match (transition.condition, &transition.value) {
        (TransitionCondition::ExitCode, Some(TransitionValue::Text(_))) => {
            problems.add(&at.join("value"), "an exit status is a whole number without quotes");
        }
        (TransitionCondition::ScoreAndConfidenceAbove, _)
            if transition.threshold.is_none()
                && (transition.score_threshold.is_none()
                    || transition.confidence_threshold.is_none()) =>
        {
            let message = "this condition needs `score_threshold` and `confidence_threshold`, or \
                `threshold` for both";
            problems.add(&at.join("condition"), message);
        }
        _ => {}
    }
}
