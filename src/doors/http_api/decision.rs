//! The published view of a decision, from the verdicts of its layers.

use hivekeep_registry::ToolEntry;

use super::{
    Api,
    published::{PolicyResult, PublishedMode, ToolAvailability, ToolDecision, ToolReason},
    scope::CallScope,
};

/// A decision, as far as a listing shows it.
pub(super) struct Judged {
    pub(super) availability: ToolAvailability,
    pub(super) decision: ToolDecision,
}

impl Api {
    /// Judges a tool for a scope, without an input.
    pub(super) fn judge(&self, scope: &CallScope, entry: &ToolEntry) -> Judged {
        let (view, spec) = (&scope.view, &entry.info.spec);
        let visible = view.reaches(spec.tier);
        let callable = view.shows(entry.info);
        let mut reason_codes = Vec::new();
        if !visible {
            reason_codes.push(ToolReason::VisibilityDenied);
        } else if !callable {
            reason_codes.push(ToolReason::PolicyDenied);
        }
        let result = |good| if good { PolicyResult::Allowed } else { PolicyResult::Denied };
        let availability = ToolAvailability {
            registered: true,
            enabled: true,
            available: true,
            authorized: true,
            executable: true,
            conflicted: false,
            reason_codes: Vec::new(),
        };
        let decision = ToolDecision {
            visible_to_operator: true,
            visible_to_session: callable,
            callable,
            approval_required: false,
            system_permission_mode: PublishedMode::ApproveAll,
            registry_policy_result: result(visible),
            source_policy_result: PolicyResult::Allowed,
            agent_policy_result: result(callable || !visible),
            session_policy_result: PolicyResult::Unrestricted,
            availability_result: PolicyResult::Allowed,
            hook_result: PolicyResult::Allowed,
            reason_codes,
            verdicts: Vec::new(),
        };
        Judged { availability, decision }
    }
}
