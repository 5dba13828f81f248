//! Reason codes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason of a refusal or failure, for programs: the published list and no other value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReasonCode)]
pub enum ToolReason {
    IdEmpty,
    IdEmptySegment,
    IdInvalidFormat,
    ReservedConflict,
    ReservedNamespace,
    IdTooLong,
    DependencyMissing,
    BackendUnhealthy,
    BackendNotExecutable,
    ExtensionInactive,
    ExtensionRuntimeMismatch,
    ExtensionCapabilityMissing,
    RuntimeDescriptorMissing,
    RuntimeDescriptorMismatch,
    HandlerMissing,
    McpUnreachable,
    McpAuthUnconfigured,
    McpAuthRequired,
    McpAuthExpired,
    McpAuthInvalid,
    McpAuthRefreshFailed,
    SourceDisabled,
    PolicyDenied,
    VisibilityDenied,
    ApprovalRequired,
    ApprovalUnreachable,
    ApprovalTimedOut,
    ApprovalCanceled,
    ApprovalTokenMissing,
    ApprovalTokenExpired,
    ApprovalTokenMismatch,
    ApprovalTokenReplayed,
    SessionDenied,
    HookDenied,
    SchemaInvalid,
    ConflictedId,
    ConflictedSanitizedName,
    ResultBudgetExceeded,
    CallCanceled,
    CallTimedOut,
    SecretMetadata,
    ToolsetUnknown,
    ToolsetCycle,
    ToolUnknown,
}
