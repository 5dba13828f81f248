//! Status, published code and reasons of a refusal, by who refused.

use axum::http::StatusCode;
use hivekeep_door_server::codes;
use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use serde_json::Value;

use crate::published::{ToolErrorCode as Code, ToolReason as Reason};

/// Status, published code and reasons.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind(pub(super) StatusCode, pub(super) Code, pub(super) Vec<Reason>);

impl Kind {
    pub(super) fn of(error: &ToolError) -> Self {
        let is = |codes| error.is_any(codes);
        let known = reasons(error);
        let or = |reason| if known.is_empty() { vec![reason] } else { known.clone() };
        if is(&[codes::UNKNOWN_TOOL]) {
            return Self(StatusCode::NOT_FOUND, Code::ToolNotFound, vec![Reason::ToolUnknown]);
        }
        if is(&INVALID) {
            let reasons = vec![Reason::SchemaInvalid];
            return Self(StatusCode::BAD_REQUEST, Code::ToolInvalidInput, reasons);
        }
        if let Some(kind) = Self::of_approval(error) {
            return kind;
        }
        if is(&[codes::DENIED]) && known.contains(&Reason::ConflictedSanitizedName) {
            return Self(StatusCode::CONFLICT, Code::ToolConflict, known);
        }
        if is(&[codes::DENIED, codes::NOT_OWNER, codes::PERMISSION_DENIED]) {
            let reason = match error.layer {
                Layer::Policy => Reason::PolicyDenied,
                _ => Reason::SessionDenied,
            };
            return Self(StatusCode::FORBIDDEN, Code::ToolDenied, or(reason));
        }
        if is(&CONFLICTS) {
            return Self(StatusCode::CONFLICT, Code::ToolConflict, known);
        }
        if is(&[codes::RESULT_TOO_LARGE]) {
            let reasons = vec![Reason::ResultBudgetExceeded];
            return Self(StatusCode::UNPROCESSABLE_ENTITY, Code::ToolResultTooLarge, reasons);
        }
        if is(&[codes::CANCELLED, codes::SESSION_ENDED]) {
            return Self(StatusCode::BAD_GATEWAY, Code::ToolCanceled, vec![Reason::CallCanceled]);
        }
        if is(&[codes::DEADLINE_EXCEEDED]) {
            return Self(StatusCode::BAD_GATEWAY, Code::ToolTimedOut, vec![Reason::CallTimedOut]);
        }
        // A call that was under way has no such reason: its effect is unknown.
        let of_source = known.iter().any(|reason| SOURCE_DOWN.contains(reason));
        if of_source
            || is(&UNAVAILABLE)
            || matches!(error.layer, Layer::Rate | Layer::Quota | Layer::Admission)
        {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            // Unavailability is reported before an approval is asked for.
            let mut reasons = or(Reason::BackendNotExecutable);
            reasons.retain(|reason| *reason != Reason::ApprovalRequired);
            return Self(status, Code::ToolUnavailable, reasons);
        }
        let status = match error.is(codes::INTERNAL) {
            true => StatusCode::INTERNAL_SERVER_ERROR,
            false => StatusCode::BAD_GATEWAY,
        };
        Self(status, Code::ToolBackendFailed, known)
    }

    fn of_approval(error: &ToolError) -> Option<Self> {
        let (_, status, code, reasons) = APPROVALS.iter().find(|(known, ..)| error.is(known))?;
        Some(Self(*status, *code, reasons.to_vec()))
    }
}

/// Refusals by approvals. A call that needs one was not made, and may pass once it has it: 202.
const APPROVALS: [(&ErrorCode, StatusCode, Code, &[Reason]); 8] = {
    const ASKS: Code = Code::ToolApprovalRequired;
    const DENIED: Code = Code::ToolDenied;
    const NO: StatusCode = StatusCode::FORBIDDEN;
    [
        (
            codes::APPROVAL_REQUIRED,
            StatusCode::ACCEPTED,
            ASKS,
            &[Reason::ApprovalRequired, Reason::ApprovalTokenMissing],
        ),
        (codes::APPROVAL_TOKEN_MISMATCH, NO, ASKS, &[Reason::ApprovalTokenMismatch]),
        (codes::APPROVAL_TOKEN_EXPIRED, NO, ASKS, &[Reason::ApprovalTokenExpired]),
        (codes::APPROVAL_TOKEN_REPLAYED, NO, ASKS, &[Reason::ApprovalTokenReplayed]),
        (codes::APPROVAL_DENIED, NO, DENIED, &[Reason::ApprovalCanceled]),
        (codes::APPROVAL_TIMED_OUT, NO, DENIED, &[Reason::ApprovalTimedOut]),
        (codes::SELF_APPROVAL, NO, DENIED, &[Reason::PolicyDenied]),
        (
            codes::APPROVALS_FULL,
            StatusCode::UNPROCESSABLE_ENTITY,
            Code::ToolUnavailable,
            &[Reason::ApprovalUnreachable],
        ),
    ]
};

/// Codes of invalid requests.
const INVALID: [&ErrorCode; 4] =
    [codes::INVALID_INPUT, codes::INVALID_PATH, codes::INVALID_PATTERN, codes::INVALID_RULE];

/// Codes of calls against the state of things, which may pass when that has changed.
const CONFLICTS: [&ErrorCode; 5] = [
    codes::MERGE_IN_PROGRESS,
    codes::NAME_TAKEN,
    codes::RUN_OVER,
    codes::WORKSPACE_BUSY,
    codes::WORKSPACE_STATE,
];

/// Codes of calls that this daemon cannot make now.
const UNAVAILABLE: [&ErrorCode; 11] = [
    codes::ACTOR_UNAVAILABLE,
    codes::AUDIT_DISABLED,
    codes::AUDIT_UNAVAILABLE,
    codes::BUSY,
    codes::DAEMON_STOPPING,
    codes::HOST_DISK_FULL,
    codes::NETWORK_UNAVAILABLE,
    codes::POLICY_UNAVAILABLE,
    codes::TOO_MANY_SESSIONS,
    codes::VAULT_DISABLED,
    codes::VOLUMES_UNSUPPORTED,
];

/// Reasons of a server whose tools cannot be called now.
const SOURCE_DOWN: [Reason; 4] = [
    Reason::McpUnreachable,
    Reason::McpAuthRequired,
    Reason::McpAuthExpired,
    Reason::McpAuthInvalid,
];

/// Reasons that the layers of the decision have left in an error.
fn reasons(error: &ToolError) -> Vec<Reason> {
    let told = ["reason_codes", "reason_code"].map(|key| error.details.get(key));
    let verdicts = error.details.get("verdicts").and_then(Value::as_array).into_iter().flatten();
    let of_verdicts = verdicts.filter_map(|verdict| verdict.get("reason_code"));
    let listed = told.into_iter().flatten().flat_map(|value| match value {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    });
    let mut reasons = Vec::new();
    for value in listed.chain(of_verdicts) {
        if let Ok(reason) = serde_json::from_value(value.clone())
            && !reasons.contains(&reason)
        {
            reasons.push(reason);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(error: &ToolError) -> (u16, Code, Vec<Reason>) {
        let Kind(status, code, reasons) = Kind::of(error);
        (status.as_u16(), code, reasons)
    }

    #[test]
    fn each_refusal_has_its_published_status_and_code() {
        let error = |layer, code| ToolError::new(layer, code, "x");
        for (told, status, code, reasons) in [
            (
                error(Layer::Resolve, codes::UNKNOWN_TOOL),
                404,
                Code::ToolNotFound,
                vec![Reason::ToolUnknown],
            ),
            (
                error(Layer::Schema, codes::INVALID_INPUT),
                400,
                Code::ToolInvalidInput,
                vec![Reason::SchemaInvalid],
            ),
            (
                error(Layer::Policy, codes::DENIED),
                403,
                Code::ToolDenied,
                vec![Reason::PolicyDenied],
            ),
            (
                error(Layer::Actor, codes::NOT_OWNER),
                403,
                Code::ToolDenied,
                vec![Reason::SessionDenied],
            ),
            (
                error(Layer::Rate, codes::RATE_LIMITED),
                422,
                Code::ToolUnavailable,
                vec![Reason::BackendNotExecutable],
            ),
            (
                error(Layer::Admission, codes::BUSY),
                422,
                Code::ToolUnavailable,
                vec![Reason::BackendNotExecutable],
            ),
            (
                error(Layer::Result, codes::RESULT_TOO_LARGE),
                422,
                Code::ToolResultTooLarge,
                vec![Reason::ResultBudgetExceeded],
            ),
            (error(Layer::Actor, codes::NAME_TAKEN), 409, Code::ToolConflict, vec![]),
            (
                error(Layer::Actor, codes::CANCELLED),
                502,
                Code::ToolCanceled,
                vec![Reason::CallCanceled],
            ),
            (
                error(Layer::Actor, codes::DEADLINE_EXCEEDED),
                502,
                Code::ToolTimedOut,
                vec![Reason::CallTimedOut],
            ),
            (error(Layer::Guest, codes::GUEST_UNREACHABLE), 502, Code::ToolBackendFailed, vec![]),
            (error(Layer::Actor, codes::INTERNAL), 500, Code::ToolBackendFailed, vec![]),
        ] {
            assert_eq!(kind(&told), (status, code, reasons), "{told}");
        }
    }

    #[test]
    fn an_approval_is_202_until_its_token_is_wrong_and_reasons_come_from_the_layers() {
        let asks = ToolError::new(Layer::Approval, codes::APPROVAL_REQUIRED, "x");
        assert_eq!(kind(&asks).0, 202);
        let wrong = ToolError::new(Layer::Approval, codes::APPROVAL_TOKEN_EXPIRED, "x");
        assert_eq!((kind(&wrong).0, kind(&wrong).2), (403, vec![Reason::ApprovalTokenExpired]));
        let verdicts =
            json!([{ "reason_code": "visibility_denied" }, { "reason_code": "made_up" }]);
        let denied = ToolError::new(Layer::Policy, codes::DENIED, "x").detail("verdicts", verdicts);
        assert_eq!(kind(&denied).2, [Reason::VisibilityDenied]);
    }
}
