//! Authorization: the question to the policy engine, what its decision means for a call, and what each
//! layer would say of one that is not made, for whoever asks.

use hivekeep_kernel::{Door, Layer, SessionId, ToolError, User};
use hivekeep_policy::{
    PermissionMode, PolicyDecision, Question, ReasonCode, Ruling, SessionProfile, Verdict,
};
use hivekeep_ports::SourceState;
use serde::Serialize;
use serde_json::Value;

use super::{Dispatcher, Inner};
use crate::{ToolEntry, ToolOrigin, ToolView, codes};

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
pub(super) fn authorize(
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
fn availability(inner: &Inner, entry: &ToolEntry) -> Verdict {
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
        let availability = availability(inner, tool);
        let mut verdicts = Vec::new();
        let available = || availability.clone();
        let outcome = inner.policy.decide(&question, &inner.policies, available, &mut verdicts);
        let permission_mode = inner.policy.permission_mode(&question);
        Ok(DecisionView { verdicts, outcome, permission_mode, availability })
    }

    /// Decision on a tool whatever its input, for a session of this profile. Whether the tool is served now
    /// is left out.
    pub(crate) fn rules_on(
        &self,
        (session, user, door): (SessionId, User, Door),
        profile: &SessionProfile,
        tool: &ToolEntry,
    ) -> PolicyDecision {
        let (inner, view) = (&*self.0, ToolView::default());
        let caller = Caller { session, user, door, view: &view, profile };
        let question = caller.question(tool, None);
        let served = || Verdict::allow(AVAILABILITY, "it is not looked at");
        inner.policy.decide(&question, &inner.policies, served, &mut Vec::new())
    }

    /// The policy engine, with rules and approvals.
    pub fn policy(&self) -> &hivekeep_policy::PolicyEngine {
        &self.0.policy
    }
}
