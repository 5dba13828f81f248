//! Authorization: a chain of policies, each with its verdict.
//!
//! The policies are asked in order. The first `deny` ends it. An `ask` is
//! remembered, and the rest is still asked, since a later policy may deny. All
//! verdicts are kept for the audit and named in a refusal.

use std::{borrow::Cow, fmt::Debug, sync::Arc};

use hivekeep_kernel::{Door, Layer, SessionId, ToolError, ToolInfo};
use serde::Serialize;
use serde_json::Value;

use crate::{ToolEntry, ToolView, codes};

/// The layer that asks a person, in verdicts.
const APPROVAL: &str = "approval";

/// Question to a policy.
#[derive(Debug)]
pub struct Question<'a> {
    /// The caller's session.
    pub session: SessionId,
    /// The door it came through.
    pub door: Door,
    /// The caller's view of the catalogue.
    pub view: &'a ToolView,
    /// The tool.
    pub tool: &'static ToolInfo,
    /// The input; its schema has not been checked yet.
    pub args: &'a Value,
}

/// A policy's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// Nothing against it.
    Allow,
    /// No.
    Deny,
    /// Only with a person's approval.
    Ask,
}

/// One policy's ruling and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The policy.
    pub layer: &'static str,
    /// The ruling.
    pub ruling: Ruling,
    /// The reason; of a denial also the change that would lift it.
    pub why: Cow<'static, str>,
}

/// One layer of the decision. Quick and without effects: it runs within the call.
pub trait Policy: Debug + Send + Sync {
    /// The policy's name, in verdicts and refusals.
    fn name(&self) -> &'static str;
    /// The policy's ruling and the reason.
    fn rule(&self, question: &Question<'_>) -> (Ruling, Cow<'static, str>);
}

/// The policies that are always there, asked last.
pub(super) fn built_in() -> [Arc<dyn Policy>; 3] {
    [Arc::new(TierPolicy), Arc::new(ToolsetPolicy), Arc::new(DefaultPolicy)]
}

/// The need for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Nothing,
    /// This policy wants one.
    Approval(&'static str),
}

pub(super) fn pass(
    policies: &[Arc<dyn Policy>],
    question: &Question<'_>,
    verdicts: &mut Vec<Verdict>,
) -> Result<Asks, ToolError> {
    let mut asks = Asks::Nothing;
    verdicts.reserve_exact(policies.len() + 1);
    for policy in policies {
        let (ruling, why) = policy.rule(question);
        let layer = policy.name();
        if ruling == Ruling::Deny {
            let error = denied(question, layer, &why);
            verdicts.push(Verdict { layer, ruling, why });
            return Err(error.detail("verdicts", json(verdicts)));
        }
        if ruling == Ruling::Ask && asks == Asks::Nothing {
            asks = Asks::Approval(layer);
        }
        verdicts.push(Verdict { layer, ruling, why });
    }
    Ok(asks)
}

fn denied(question: &Question<'_>, layer: &'static str, why: &str) -> ToolError {
    let name = question.tool.spec.name;
    let message = format!("the {layer} policy does not allow `{name}`: {why}");
    ToolError::new(Layer::Policy, codes::DENIED, message).detail("policy", layer)
}

/// A person's approval, where a policy asks for one. No one can be asked yet, so such a call is
/// refused. That is an answer, not a gap: it must never run unapproved.
pub(super) fn approve(
    asks: Asks,
    entry: &ToolEntry,
    verdicts: &mut Vec<Verdict>,
) -> Result<(), ToolError> {
    let Asks::Approval(policy) = asks else {
        let why = "no approval is needed".into();
        verdicts.push(Verdict { layer: APPROVAL, ruling: Ruling::Allow, why });
        return Ok(());
    };
    let why = "there is nobody who could be asked".into();
    verdicts.push(Verdict { layer: APPROVAL, ruling: Ruling::Deny, why });
    let message = format!(
        "the {policy} policy wants a person's approval for `{}`, and there is no way to ask for one",
        entry.name()
    );
    Err(ToolError::new(Layer::Approval, codes::APPROVAL_REQUIRED, message)
        .next("do without it, or have the operator change the policy")
        .detail("policy", policy)
        .detail("verdicts", json(verdicts)))
}

pub(super) fn json(verdicts: &[Verdict]) -> Value {
    serde_json::to_value(verdicts).expect("texts and unit variants serialise")
}

/// Tools for operators are for operators.
#[derive(Debug)]
struct TierPolicy;

impl Policy for TierPolicy {
    fn name(&self) -> &'static str {
        "tier"
    }
    fn rule(&self, question: &Question<'_>) -> (Ruling, Cow<'static, str>) {
        if question.view.reaches(question.tool.spec.tier) {
            return (Ruling::Allow, "within the caller's tier".into());
        }
        (Ruling::Deny, "it is for operators; attach as one".into())
    }
}

/// An attachment has only the families that it asked for.
#[derive(Debug)]
struct ToolsetPolicy;

impl Policy for ToolsetPolicy {
    fn name(&self) -> &'static str {
        "toolset"
    }
    fn rule(&self, question: &Question<'_>) -> (Ruling, Cow<'static, str>) {
        let family = question.tool.spec.family;
        if question.view.has_family(family) {
            return (Ruling::Allow, "within the attachment's toolsets".into());
        }
        let why = format!("the attachment was made without the toolset `{family}`; add it there");
        (Ruling::Deny, why.into())
    }
}

/// The last policy: allows everything that no other policy denies.
#[derive(Debug)]
struct DefaultPolicy;

impl Policy for DefaultPolicy {
    fn name(&self) -> &'static str {
        "default"
    }
    fn rule(&self, _: &Question<'_>) -> (Ruling, Cow<'static, str>) {
        (Ruling::Allow, "nothing speaks against it".into())
    }
}
