//! Verdicts: what a layer is asked, and what it answers.

use std::{borrow::Cow, collections::BTreeSet, fmt::Debug};

use hivekeep_kernel::{Door, SessionId, ToolSpec, User, view::ToolView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::CallFacts;

/// Question to the layers: may this session call this tool with this input?
#[derive(Debug)]
pub struct Question<'a> {
    /// The caller's session.
    pub session: SessionId,
    /// The user of the session.
    pub user: User,
    /// The door it came through.
    pub door: Door,
    /// The caller's view of the catalogue.
    pub view: &'a ToolView,
    /// Profile of the session.
    pub profile: &'a SessionProfile,
    /// The tool.
    pub tool: &'static ToolSpec,
    /// The input; its schema has not been checked yet. `None` asks about the tool for a listing:
    /// what depends on an input is then not ruled on.
    pub args: Option<&'a Value>,
    /// Facts of the input, read when a layer wants them.
    pub(crate) facts: CallFacts<'a>,
}

impl<'a> Question<'a> {
    /// A question.
    pub fn new(
        (session, user, door): (SessionId, User, Door),
        view: &'a ToolView,
        profile: &'a SessionProfile,
        tool: &'static ToolSpec,
        args: Option<&'a Value>,
    ) -> Self {
        Self { session, user, door, view, profile, tool, args, facts: CallFacts::of(args) }
    }
}

/// A layer's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// Nothing speaks against the call.
    Allow,
    /// The call is refused.
    Deny,
    /// The call needs a person's approval.
    Ask,
    /// Nobody serves the tool now.
    Unavailable,
}

/// Reason of a verdict, for programs: the published vocabulary of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// All tools, or the tool's source, are switched off.
    SourceDisabled,
    /// The tool is for callers of another kind.
    VisibilityDenied,
    /// A rule, a list or a context does not have it.
    PolicyDenied,
    /// The session was narrowed to other tools.
    SessionDenied,
    /// A person has to approve it.
    ApprovalRequired,
    /// Its actor is down.
    BackendUnhealthy,
    /// The server that it comes from is not there.
    McpUnreachable,
    /// The server wants a credential.
    McpAuthRequired,
    /// The server's credential is over.
    McpAuthExpired,
    /// The server does not take its credential.
    McpAuthInvalid,
    /// Another tool of its server would have the same name.
    ConflictedSanitizedName,
}

/// Ruling of a layer and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The layer.
    pub layer: &'static str,
    /// The ruling.
    pub ruling: Ruling,
    /// The reason; of a denial also the change that would lift it.
    pub why: Cow<'static, str>,
    /// The reason for programs; none of what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<ReasonCode>,
    /// Name of the rule, grant or context that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Verdict {
    /// Allows the call, without a reason for programs.
    pub fn allow(layer: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        Self { layer, ruling: Ruling::Allow, why: why.into(), reason_code: None, rule: None }
    }

    /// Denies the call; `why` also says which change would lift it.
    pub fn deny(
        layer: &'static str,
        reason: ReasonCode,
        why: impl Into<Cow<'static, str>>,
    ) -> Self {
        let why = why.into();
        Self { layer, ruling: Ruling::Deny, why, reason_code: Some(reason), rule: None }
    }

    /// Wants a person's approval.
    pub fn ask(layer: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        let reason_code = Some(ReasonCode::ApprovalRequired);
        Self { layer, ruling: Ruling::Ask, why: why.into(), reason_code, rule: None }
    }

    /// Names what decided.
    #[must_use]
    pub fn by(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// True when the verdict says more than that nothing speaks against the call.
    pub fn notable(&self) -> bool {
        self.ruling != Ruling::Allow || self.rule.is_some()
    }
}

/// A layer of the decision. Quick and without effects: it runs within the call.
pub trait Policy: Debug + Send + Sync {
    /// The layer's verdict, given those of the layers before it.
    fn rule(&self, question: &Question<'_>, before: &[Verdict]) -> Verdict;
}

/// Decision of all layers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDecision {
    /// The call may be made.
    Allowed,
    /// A layer denies it: the last verdict.
    Denied,
    /// Nobody serves it now.
    Unavailable,
    /// A person has to approve it; the first verdict that asks says why.
    Asks,
}

impl PolicyDecision {
    /// Takes a layer's verdict in, behind those of the layers before it. `false` when it was a denial,
    /// which ends the decision.
    pub(crate) fn hear(&mut self, verdict: Verdict, verdicts: &mut Vec<Verdict>) -> bool {
        let ruling = verdict.ruling;
        verdicts.push(verdict);
        match (ruling, *self) {
            (Ruling::Deny, _) => *self = Self::Denied,
            // Told before an approval is asked for: nobody approves what cannot be done.
            (Ruling::Unavailable, _) => *self = Self::Unavailable,
            (Ruling::Ask, Self::Allowed) => *self = Self::Asks,
            (Ruling::Allow | Ruling::Ask, _) => {}
        }
        *self != Self::Denied
    }
}

/// Profile of a session: what binds it beyond its user, from its creation on. Empty for a session that was opened without any of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionProfile {
    /// The agent that it works for: a name of `policy.agents`, or any other for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its security context: a name of `policy.contexts`, in place of its user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The session that it was made for. It was given no tool that its parent did not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Names of the only tools that it may call; of a child without them, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Mode of its conversation: a name of `policy.conversations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl SessionProfile {
    /// True when nothing is bound.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
