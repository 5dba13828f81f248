//! Decision on a call that is not made: what each layer would say, for whoever asks.

use hivekeep_kernel::{Door, SessionId, ToolError, User};
use hivekeep_policy::{PermissionMode, PolicyDecision, Question, SessionProfile, Verdict};
use serde::Serialize;
use serde_json::Value;

use super::{Dispatcher, decide};
use crate::{ToolEntry, ToolView};

/// Whoever would call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) session: SessionId,
    pub(super) user: User,
    pub(super) door: Door,
    pub(super) view: &'a ToolView,
    pub(super) profile: &'a SessionProfile,
}

impl<'a> Caller<'a> {
    pub(super) fn question(self, entry: &ToolEntry, args: Option<&'a Value>) -> Question<'a> {
        let Self { session, user, door, view, profile } = self;
        Question::new((session, user, door), view, profile, entry.spec, args)
    }
}

/// Request for the decision on a call.
#[derive(Debug, Clone, Copy)]
pub struct DecisionRequest<'a> {
    /// The session that would call; none asks for an operator without one.
    pub session: Option<SessionId>,
    /// The user, where there is no session.
    pub user: User,
    /// The door, where there is no session.
    pub door: Door,
    /// The caller's view.
    pub view: &'a ToolView,
    /// The tool.
    pub tool: &'a ToolEntry,
    /// The input; without it, what depends on one is not ruled on.
    pub args: Option<&'a Value>,
}

/// Verdicts of the layers, and the decision.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionView {
    /// The verdicts, in their order; up to the first denial.
    pub verdicts: Vec<Verdict>,
    /// Decision of all layers together.
    pub outcome: PolicyDecision,
    /// The permission mode that the call would be under.
    pub permission_mode: PermissionMode,
    /// Whether the tool is served now.
    pub availability: Verdict,
}

impl Dispatcher {
    /// Judges a call without making it. Asks nobody, and uses no approval up.
    ///
    /// # Errors
    /// `session_unknown`.
    pub fn decision(&self, request: &DecisionRequest<'_>) -> Result<DecisionView, ToolError> {
        let inner = &*self.0;
        let DecisionRequest { session, user, door, view, tool, args } = *request;
        let (user, door, profile) = match session {
            Some(session) => inner.sessions.standing_of(session)?,
            None => (user, door, Default::default()),
        };
        let session = session.unwrap_or_else(SessionId::new);
        let caller = Caller { session, user, door, view, profile: &profile };
        let question = caller.question(tool, args);
        let availability = decide::availability(inner, tool);
        let mut verdicts = Vec::new();
        let available = || availability.clone();
        let outcome = inner.policy.decide(&question, &inner.policies, available, &mut verdicts);
        let permission_mode = inner.policy.permission_mode(&question);
        Ok(DecisionView { verdicts, outcome, permission_mode, availability })
    }

    /// The policy engine, with rules and approvals.
    pub fn policy(&self) -> &hivekeep_policy::PolicyEngine {
        &self.0.policy
    }
}
