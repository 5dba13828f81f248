//! Authorization: the question to the policy engine, and what its decision means for a call.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_policy::{Decision, Question, ReasonCode, Ruling, Verdict};
use serde_json::Value;

use super::Inner;
use crate::{ToolEntry, codes};

const AVAILABILITY: &str = "availability";

/// The first verdict that asks for a person's approval.
pub(super) struct Asks {
    pub(super) layer: &'static str,
    pub(super) why: String,
}

/// Judges a call.
///
/// # Errors
/// `denied`; `actor_unavailable` where a person would be asked for what cannot be done.
pub(super) fn pass(
    inner: &Inner,
    entry: &ToolEntry,
    question: &Question<'_>,
    verdicts: &mut Vec<Verdict>,
) -> Result<Option<Asks>, ToolError> {
    let available = || availability(inner, entry, question.args);
    match inner.policy.decide(question, &inner.policies, available, verdicts) {
        Decision::Allowed => Ok(None),
        Decision::Asks => {
            let asks = verdicts.iter().find(|verdict| verdict.ruling == Ruling::Ask);
            Ok(asks.map(|asks| Asks { layer: asks.layer, why: asks.why.to_string() }))
        }
        Decision::Denied => Err(denied(entry, verdicts)),
        Decision::Unavailable if verdicts.iter().any(|one| one.ruling == Ruling::Ask) => {
            Err(unavailable(entry, verdicts))
        }
        // It may be back by the time that the call is routed.
        Decision::Unavailable => Ok(None),
    }
}

/// Whether the actor that serves the tool is there. One that is named by an input which names none is
/// found wanting when the call is routed.
pub(super) fn availability(inner: &Inner, entry: &ToolEntry, args: Option<&Value>) -> Verdict {
    match inner.routes.down(entry, args.unwrap_or(&Value::Null)) {
        None => Verdict::allow(AVAILABILITY, "it is served"),
        Some(actor) => Verdict {
            ruling: Ruling::Unavailable,
            reason_code: Some(ReasonCode::BackendUnhealthy),
            ..Verdict::allow(AVAILABILITY, format!("the actor `{actor}` that serves it is down"))
        },
    }
}

fn denied(entry: &ToolEntry, verdicts: &[Verdict]) -> ToolError {
    let Some(last) = verdicts.last() else { return ToolError::internal("denied by no layer") };
    let message = format!("the {} policy does not allow `{}`: {}", last.layer, entry.name(), last.why);
    ToolError::new(Layer::Policy, codes::DENIED, message)
        .detail("policy", last.layer)
        .detail("verdicts", json(verdicts))
}

fn unavailable(entry: &ToolEntry, verdicts: &[Verdict]) -> ToolError {
    let why = verdicts.last().map_or("it is not served", |verdict| &verdict.why);
    let message = format!("`{}` cannot be called now: {why}", entry.name());
    ToolError::new(Layer::Policy, codes::ACTOR_UNAVAILABLE, message)
        .next("look at `hivekeep ps`, then repeat the call")
        .retryable()
        .detail("verdicts", json(verdicts))
}

/// The verdicts as a refusal tells them.
pub(super) fn json(verdicts: &[Verdict]) -> Value {
    serde_json::to_value(verdicts).expect("texts and unit variants serialise")
}

/// The verdicts as an event tells them: those that say more than that nothing speaks against the call.
pub(super) fn notable(verdicts: &[Verdict]) -> Value {
    verdicts.iter().filter(|verdict| verdict.notable()).map(|verdict| serde_json::json!(verdict)).collect()
}
