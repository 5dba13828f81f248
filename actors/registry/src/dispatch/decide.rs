//! Authorization: the question to the policy engine, and what its decision means for a call.

use hivekeep_kernel::{Layer, ToolError, ports::SourceState};
use hivekeep_policy::{PolicyDecision, Question, ReasonCode, Ruling, Verdict};
use serde_json::Value;

use super::Inner;
use crate::{ToolEntry, ToolOrigin, codes};

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
    let available = || availability(inner, entry);
    match inner.policy.decide(question, &inner.policies, available, verdicts) {
        PolicyDecision::Allowed => Ok(None),
        PolicyDecision::Asks => {
            let asks = verdicts.iter().find(|verdict| verdict.ruling == Ruling::Ask);
            Ok(asks.map(|asks| Asks { layer: asks.layer, why: asks.why.to_string() }))
        }
        PolicyDecision::Denied => Err(denied(entry, verdicts)),
        PolicyDecision::Unavailable if verdicts.iter().any(|one| one.ruling == Ruling::Ask) => {
            Err(unavailable(entry, verdicts))
        }
        // The tool's actor or source may be back by the time that the call is routed.
        PolicyDecision::Unavailable => Ok(None),
    }
}

/// Whether the actor that serves the tool is there. One that an input names is looked for when the call
/// is routed.
pub(super) fn availability(inner: &Inner, entry: &ToolEntry) -> Verdict {
    if let Some(verdict) = entry.origin.as_ref().and_then(of_source) {
        return verdict;
    }
    match inner.routes.down(entry) {
        None => Verdict::allow(AVAILABILITY, "it is served"),
        Some(actor) => Verdict {
            ruling: Ruling::Unavailable,
            reason_code: Some(ReasonCode::BackendUnhealthy),
            ..Verdict::allow(AVAILABILITY, format!("the actor `{actor}` that serves it is down"))
        },
    }
}

/// Verdict that keeps a tool of a source from being called. There is none while the source is being
/// connected: the call waits for it.
fn of_source(ToolOrigin { source, raw_name, conflict }: &ToolOrigin) -> Option<Verdict> {
    let server = source.server();
    if let Some(other) = conflict {
        let why = format!(
            "`{raw_name}` and `{other}` of the source `{server}` would have one name; neither is called"
        );
        let reason = ReasonCode::ConflictedSanitizedName;
        return Some(Verdict::deny(AVAILABILITY, reason, why).by(server));
    }
    let state = source.state();
    let reason = match state {
        SourceState::Ready | SourceState::Connecting => return None,
        SourceState::Unreachable(_) => ReasonCode::McpUnreachable,
        SourceState::AuthRequired => ReasonCode::McpAuthRequired,
        SourceState::AuthExpired => ReasonCode::McpAuthExpired,
        SourceState::AuthInvalid => ReasonCode::McpAuthInvalid,
    };
    Some(Verdict {
        ruling: Ruling::Unavailable,
        reason_code: Some(reason),
        ..Verdict::allow(AVAILABILITY, format!("the source `{server}`: {state}")).by(server)
    })
}

fn denied(entry: &ToolEntry, verdicts: &[Verdict]) -> ToolError {
    let Some(last) = verdicts.last() else { return ToolError::internal("denied by no layer") };
    let message =
        format!("the {} policy does not allow `{}`: {}", last.layer, entry.name(), last.why);
    ToolError::new(Layer::Policy, codes::DENIED, message)
        .detail("policy", last.layer)
        .detail("verdicts", notable(verdicts))
}

fn unavailable(entry: &ToolEntry, verdicts: &[Verdict]) -> ToolError {
    let why = verdicts.last().map_or("it is not served", |verdict| &verdict.why);
    let message = format!("`{}` cannot be called now: {why}", entry.name());
    ToolError::new(Layer::Policy, codes::ACTOR_UNAVAILABLE, message)
        .next("look at `hivekeep ps`, then repeat the call")
        .retryable()
        .detail("verdicts", notable(verdicts))
}

/// The verdicts as refusals and events tell them: those that say more than that nothing speaks against
/// the call. `hivekeep policy explain` shows all.
pub(super) fn notable(verdicts: &[Verdict]) -> Value {
    verdicts
        .iter()
        .filter(|verdict| verdict.notable())
        .map(|verdict| serde_json::json!(verdict))
        .collect()
}
