//! Conditions of transitions over the output of a state.

use hivekeep_manifest::workflow::{
    OUTPUT_NAMES, Transition, TransitionCondition, TransitionValue, WorkflowSpec, expression_text,
};
use hivekeep_runtime::{expression::Expression, template::TemplateValue};
use serde_json::Value;

use super::output::{StateOutput, StateStatus};

/// Score from which on a judge approves.
const APPROVAL: f64 = 0.8;
/// Answers of people that are a yes or a no, whatever their case.
const YES: [&str; 6] = ["yes", "y", "1", "true", "approve", "approved"];
const NO: [&str; 6] = ["no", "n", "0", "false", "reject", "rejected"];

/// Whether the condition of a transition holds. One over a score does not for an output without any, and so on.
///
/// # Errors
/// Why an expression is neither true nor false.
pub(super) fn holds(
    transition: &Transition,
    output: &StateOutput,
    spec: &WorkflowSpec,
    names: &[TemplateValue<'_>],
) -> Result<bool, String> {
    let (score, confidence) = (output.score(), output.confidence());
    let threshold = transition.threshold.map(|it| it.0);
    let over = |value: Option<f64>, bound: Option<f64>| {
        value.zip(bound).is_some_and(|(value, bound)| value > bound)
    };
    let answers = |words: &[&str]| {
        let response = output.response().map(|it| it.trim().to_lowercase());
        response.is_some_and(|response| words.contains(&response.as_str()))
    };
    let scores = output.individual_scores();
    Ok(match transition.condition {
        TransitionCondition::Always => true,
        TransitionCondition::OnSuccess => output.status == StateStatus::Succeeded,
        TransitionCondition::OnFailure => output.status == StateStatus::Failed,
        TransitionCondition::ExitCodeZero => output.exit_code() == Some(0),
        TransitionCondition::ExitCodeNonZero => output.exit_code().is_some_and(|code| code != 0),
        TransitionCondition::ExitCode => match &transition.value {
            Some(TransitionValue::Status(status)) => output.exit_code() == Some(*status),
            Some(TransitionValue::Text(_)) | None => false,
        },
        TransitionCondition::ScoreAbove => over(score, threshold),
        TransitionCondition::ScoreBelow => over(threshold, score),
        TransitionCondition::ScoreBetween => {
            let (min, max) = (transition.min.map(|it| it.0), transition.max.map(|it| it.0));
            score.is_some() && !over(min, score) && !over(score, max)
        }
        TransitionCondition::ConfidenceAbove => over(confidence, threshold),
        TransitionCondition::ScoreAndConfidenceAbove => {
            let score_bound = transition.score_threshold.map(|it| it.0).or(threshold);
            let confidence_bound = transition.confidence_threshold.map(|it| it.0).or(threshold);
            over(score, score_bound) && over(confidence, confidence_bound)
        }
        TransitionCondition::Consensus => {
            let agreement = transition.agreement.map(|it| it.0);
            score.is_some() && !over(threshold, score) && !over(agreement, confidence)
        }
        TransitionCondition::AllApproved => {
            let approves = |score: &Option<f64>| score.is_some_and(|score| score >= APPROVAL);
            !scores.is_empty() && scores.iter().all(approves)
        }
        TransitionCondition::AnyRejected => {
            scores.iter().any(|score| score.is_some_and(|score| score < APPROVAL))
        }
        TransitionCondition::InputEquals => {
            let value = match &transition.value {
                Some(TransitionValue::Status(status)) => status.to_string(),
                Some(TransitionValue::Text(text)) => text.clone(),
                None => return Ok(false),
            };
            output.response().is_some_and(|response| response.trim() == value.trim())
        }
        TransitionCondition::InputEqualsYes => answers(&YES),
        TransitionCondition::InputEqualsNo => answers(&NO),
        TransitionCondition::Custom => {
            let text = transition.expression.as_deref().unwrap_or_default();
            return custom(text, output, spec, names);
        }
    })
}

fn custom(
    text: &str,
    output: &StateOutput,
    spec: &WorkflowSpec,
    names: &[TemplateValue<'_>],
) -> Result<bool, String> {
    let expression = Expression::new(expression_text(text), &spec.expression_names())?;
    let state_output = output.to_value();
    let mut found: Vec<(&str, &Value)> = Vec::new();
    for name in OUTPUT_NAMES {
        let value = match name {
            "state_output" => Some(&state_output),
            part => state_output.get(part),
        };
        found.extend(value.map(|value| (name, value)));
    }
    for value in names.iter().filter(|it| !OUTPUT_NAMES.contains(&it.name())) {
        found.push((value.name(), value.value()));
    }
    let named = found.into_iter().filter(|(name, _)| expression.names(name));
    let variables = named.map(|(name, value)| Ok((name, expression.variable(name, value)?)));
    expression.holds(variables.collect::<Result<Vec<_>, String>>()?)
}
