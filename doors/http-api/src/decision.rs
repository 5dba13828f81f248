//! The published view of a decision, from the verdicts of its layers.

use hivekeep_kernel::{Door, SessionId};
use hivekeep_policy::{PermissionMode, PolicyDecision, Question, ReasonCode, Ruling, Verdict};
use hivekeep_registry::{DecisionRequest, DecisionView, ToolEntry};
use serde_json::Value;

use super::{
    error::ApiError,
    extract::CallScope,
    published::{
        PolicyResult, PublishedMode, ToolAvailability, ToolDecision, ToolReason, ToolVerdict,
    },
    state::Api,
};

/// A decision, as a tool shows it.
pub(super) struct Judged {
    pub(super) availability: ToolAvailability,
    pub(super) decision: ToolDecision,
}

/// The layers behind each published result.
const REGISTRY: [&str; 4] = ["switch", "visibility", "rules", "permission_mode"];
const AGENT: [&str; 4] = ["agent", "allow_list", "toolset", "context"];
const SESSION: [&str; 2] = ["lineage", "conversation"];
const SOURCE: [&str; 1] = ["source"];

impl Api {
    /// Judges a tool for a scope, without an input; `whole` shows each layer.
    pub(super) fn judge(
        &self,
        scope: &CallScope,
        entry: &ToolEntry,
        whole: bool,
    ) -> Result<Judged, ApiError> {
        let view = self.decided(scope, entry, None)?;
        let verdicts = &view.verdicts;
        let of = |layers: &[&str], usual| result(verdicts, layers, usual);
        let narrowed = scope.profile.tools.is_some() || scope.profile.parent.is_some();
        let usual_of_session =
            if narrowed { PolicyResult::Allowed } else { PolicyResult::Unrestricted };
        let up = view.availability.ruling == Ruling::Allow;
        let reason = view.availability.reason_code;
        let conflicted = reason == Some(ReasonCode::ConflictedSanitizedName);
        let unauthorized = matches!(
            reason,
            Some(
                ReasonCode::McpAuthRequired
                    | ReasonCode::McpAuthExpired
                    | ReasonCode::McpAuthInvalid
            )
        );
        let denied = view.outcome == PolicyDecision::Denied;
        let asks = view.outcome == PolicyDecision::Asks;
        let decision = ToolDecision {
            visible_to_operator: true,
            visible_to_session: !denied,
            callable: matches!(view.outcome, PolicyDecision::Allowed | PolicyDecision::Asks),
            approval_required: asks,
            system_permission_mode: view.permission_mode.into(),
            registry_policy_result: of(&REGISTRY, PolicyResult::Allowed),
            source_policy_result: of(&SOURCE, PolicyResult::Allowed),
            agent_policy_result: of(&AGENT, PolicyResult::Unrestricted),
            session_policy_result: of(&SESSION, usual_of_session),
            availability_result: match (up, conflicted) {
                (true, _) => PolicyResult::Allowed,
                (_, true) => PolicyResult::Conflicted,
                _ => PolicyResult::Unavailable,
            },
            hook_result: PolicyResult::Allowed,
            reason_codes: reasons(verdicts),
            verdicts: if whole { verdicts.iter().map(shown).collect() } else { Vec::new() },
        };
        let availability = ToolAvailability {
            registered: true,
            enabled: true,
            // A server that wants a credential is there.
            available: up || unauthorized,
            authorized: !unauthorized,
            executable: up,
            conflicted,
            reason_codes: reasons(std::slice::from_ref(&view.availability)),
        };
        Ok(Judged { availability, decision })
    }

    /// Verdicts of all layers for a scope; without an input, what depends on one is not ruled on.
    pub(super) fn decided(
        &self,
        scope: &CallScope,
        entry: &ToolEntry,
        args: Option<&Value>,
    ) -> Result<DecisionView, ApiError> {
        let (user, door) = (scope.user, Door::HttpApi);
        let mut view = self.core.dispatcher.decision(&DecisionRequest {
            session: scope.session,
            user,
            door,
            view: &scope.view,
            tool: entry,
            args,
        })?;
        if scope.session.is_none() && scope.profile.agent.is_some() {
            // An agent without a session is judged as in a session of its own.
            let policy = self.core.dispatcher.policy();
            let asked = (SessionId::new(), user, door);
            let question = Question::new(asked, &scope.view, &scope.profile, entry.spec, args);
            let (mut verdicts, available) = (Vec::new(), view.availability.clone());
            view.outcome = policy.decide(&question, &[], || available, &mut verdicts);
            view.permission_mode = policy.permission_mode(&question);
            view.verdicts = verdicts;
        }
        Ok(view)
    }
}

/// Result of the strictest verdict of these layers; `usual` where none decides.
fn result(verdicts: &[Verdict], layers: &[&str], usual: PolicyResult) -> PolicyResult {
    let of = || verdicts.iter().filter(|verdict| layers.contains(&verdict.layer));
    if let Some(denial) = of().find(|verdict| verdict.ruling == Ruling::Deny) {
        return match denial.reason_code {
            Some(ReasonCode::SourceDisabled) => PolicyResult::Disabled,
            _ => PolicyResult::Denied,
        };
    }
    if of().any(|verdict| verdict.ruling == Ruling::Ask) {
        return PolicyResult::ApprovalRequired;
    }
    match of().any(|verdict| verdict.rule.is_some()) {
        true => PolicyResult::Allowed,
        false => usual,
    }
}

fn reasons(verdicts: &[Verdict]) -> Vec<ToolReason> {
    let mut reasons = Vec::new();
    for reason in verdicts.iter().filter_map(|verdict| verdict.reason_code).map(published) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn published(reason: ReasonCode) -> ToolReason {
    match reason {
        ReasonCode::SourceDisabled => ToolReason::SourceDisabled,
        ReasonCode::VisibilityDenied => ToolReason::VisibilityDenied,
        ReasonCode::PolicyDenied => ToolReason::PolicyDenied,
        ReasonCode::SessionDenied => ToolReason::SessionDenied,
        ReasonCode::ApprovalRequired => ToolReason::ApprovalRequired,
        ReasonCode::BackendUnhealthy => ToolReason::BackendUnhealthy,
        ReasonCode::McpUnreachable => ToolReason::McpUnreachable,
        ReasonCode::McpAuthRequired => ToolReason::McpAuthRequired,
        ReasonCode::McpAuthExpired => ToolReason::McpAuthExpired,
        ReasonCode::McpAuthInvalid => ToolReason::McpAuthInvalid,
        ReasonCode::ConflictedSanitizedName => ToolReason::ConflictedSanitizedName,
    }
}

impl From<PermissionMode> for PublishedMode {
    fn from(mode: PermissionMode) -> Self {
        match mode {
            PermissionMode::DenyAll => Self::DenyAll,
            PermissionMode::ApproveReads => Self::ApproveReads,
            PermissionMode::ApproveAll => Self::ApproveAll,
        }
    }
}

pub(super) fn shown(verdict: &Verdict) -> ToolVerdict {
    let ruling = match verdict.ruling {
        Ruling::Allow => "allow",
        Ruling::Deny => "deny",
        Ruling::Ask => "ask",
        Ruling::Unavailable => "unavailable",
    };
    ToolVerdict {
        layer: verdict.layer.to_owned(),
        ruling: ruling.to_owned(),
        why: verdict.why.to_string(),
        rule: verdict.rule.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_that_of_its_strictest_layer() {
        let denies = Verdict::deny("rules", ReasonCode::PolicyDenied, "x");
        let off = Verdict::deny("switch", ReasonCode::SourceDisabled, "x");
        let asks = Verdict::ask("permission_mode", "x");
        let listed = Verdict::allow("allow_list", "x").by("ada");
        let open = Verdict::allow("agent", "x");
        let of = |verdicts: &[Verdict], layers: &[&str], usual| result(verdicts, layers, usual);
        let usual = PolicyResult::Allowed;
        assert_eq!(of(&[asks.clone(), denies.clone()], &REGISTRY, usual), PolicyResult::Denied);
        assert_eq!(of(&[off], &REGISTRY, usual), PolicyResult::Disabled);
        assert_eq!(
            of(std::slice::from_ref(&asks), &REGISTRY, usual),
            PolicyResult::ApprovalRequired
        );
        let usual = PolicyResult::Unrestricted;
        assert_eq!(of(&[open.clone(), listed], &AGENT, usual), PolicyResult::Allowed);
        assert_eq!(of(&[open], &AGENT, usual), PolicyResult::Unrestricted);
        assert_eq!(reasons(&[asks.clone(), asks, denies]).len(), 2);
    }
}
