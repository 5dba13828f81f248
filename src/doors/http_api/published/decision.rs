//! Availability of a tool, and the decision about it.

use serde::Serialize;
use utoipa::ToSchema;

use super::ToolReason;

/// Whether a tool could be called by anybody.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolAvailability {
    pub registered: bool,
    pub enabled: bool,
    pub available: bool,
    pub authorized: bool,
    pub executable: bool,
    pub conflicted: bool,
    pub reason_codes: Vec<ToolReason>,
}

/// Result of one part of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyResult {
    /// Nothing against it.
    Allowed,
    /// No.
    Denied,
    /// Only with an approval.
    ApprovalRequired,
    /// Switched off.
    Disabled,
    /// Allowed for where it comes from.
    Trusted,
    /// Nothing is bound.
    Unrestricted,
    /// Nobody serves it now.
    Unavailable,
    /// Two tools have its id.
    Conflicted,
}

/// What the system allows when no rule says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SystemPermissionMode)]
pub enum PublishedMode {
    /// Nothing. It does deny.
    DenyAll,
    /// What only reads; an approval for all else.
    ApproveReads,
    /// Everything.
    ApproveAll,
}

/// Ruling of one layer of the decision. An addition.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolVerdict {
    /// The layer, in the order in which they are asked.
    pub layer: String,
    /// `allow`, `deny`, `ask` or `unavailable`.
    pub ruling: String,
    /// The reason; of a denial also what would lift it.
    pub why: String,
    /// The rule, grant or context that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Whether this caller may call a tool, and which part of the decision says so. It is made again at
/// each call.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolDecision {
    pub visible_to_operator: bool,
    pub visible_to_session: bool,
    pub callable: bool,
    pub approval_required: bool,
    pub system_permission_mode: PublishedMode,
    pub registry_policy_result: PolicyResult,
    pub source_policy_result: PolicyResult,
    pub agent_policy_result: PolicyResult,
    pub session_policy_result: PolicyResult,
    pub availability_result: PolicyResult,
    pub hook_result: PolicyResult,
    pub reason_codes: Vec<ToolReason>,
    /// Rulings of all layers, where one tool is asked for. An addition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub verdicts: Vec<ToolVerdict>,
}
