//! Conversion of refusals into answers: the published codes and statuses, with our own code in the
//! details.

use std::borrow::Cow;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use serde_json::{Map, Value, json};

use super::published::{
    PlainErrorBody, ToolErrorBody, ToolErrorCode as Code, ToolErrorPayload, ToolReason as Reason,
};
use crate::{codes, doors::http::bearer};

/// An answer that is a refusal or a failure.
#[derive(Debug)]
pub(super) enum ApiError {
    /// Before any tool is looked at.
    Plain(StatusCode, Cow<'static, str>),
    /// No credential, or none that is known.
    Unauthorized { given: bool },
    /// The credential does not reach so far.
    Scope(&'static str),
    /// Of a tool.
    Tool(StatusCode, Box<ToolErrorPayload>),
}

impl ApiError {
    pub(super) fn plain(status: StatusCode, why: impl Into<Cow<'static, str>>) -> Self {
        Self::Plain(status, why.into())
    }

    /// Too much runs already.
    pub(super) fn unavailable(why: impl Into<Cow<'static, str>>) -> Self {
        Self::plain(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// A session, or another thing that is none or not the caller's: which, is not told.
    pub(super) fn not_there(what: &str, name: &str) -> Self {
        let shown: String = name.chars().take(80).collect();
        Self::plain(StatusCode::NOT_FOUND, format!("there is no {what} `{shown}`"))
    }

    /// A request that makes no sense.
    pub(super) fn invalid(reason: Reason, why: impl Into<String>) -> Self {
        let error = ToolError::new(Layer::Door, codes::INVALID_INPUT, why);
        Self::of_kind(Kind(StatusCode::BAD_REQUEST, Code::ToolInvalidInput, vec![reason]), error)
    }

    /// A refusal or failure of a call.
    pub(super) fn of_call(error: ToolError, tool_id: &str) -> Self {
        let kind = Kind::of(&error);
        Self::of_kind(kind, error).about(tool_id)
    }

    /// A request against another one.
    pub(super) fn conflict(error: ToolError) -> Self {
        Self::of_kind(Kind(StatusCode::CONFLICT, Code::ToolConflict, Vec::new()), error)
    }

    /// Names the tool.
    pub(super) fn about(mut self, tool_id: &str) -> Self {
        if let Self::Tool(_, payload) = &mut self {
            payload.tool_id = Some(tool_id.to_owned());
        }
        self
    }

    fn of_kind(Kind(status, code, reason_codes): Kind, error: ToolError) -> Self {
        let message = match &error.next_step {
            Some(step) => format!("{}. Next: {step}", error.message),
            None => error.message.clone(),
        };
        let layer = layer(&reason_codes);
        let payload = ToolErrorPayload {
            code,
            message,
            tool_id: None,
            reason_codes,
            layer,
            details: details(error),
        };
        Self::Tool(status, Box::new(payload))
    }
}

/// A session that is not there is a plain error, whatever was asked of it.
impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        if error.is_any(&[codes::SESSION_UNKNOWN, codes::SESSION_ENDED]) {
            return Self::plain(StatusCode::NOT_FOUND, error.to_text());
        }
        let kind = Kind::of(&error);
        Self::of_kind(kind, error)
    }
}

fn details(error: ToolError) -> Map<String, Value> {
    let mut details = *error.details;
    let mut put = |key: &str, value: Value| drop(details.insert(key.to_owned(), value));
    put("code", json!(error.code));
    put("refused_by", json!(error.layer));
    put("retryable", json!(error.retryable));
    if let Some(step) = error.next_step {
        put("next_step", json!(step));
    }
    if let Some(wait) = error.retry_after_ms {
        put("retry_after_ms", json!(wait));
    }
    details
}

/// The published layer of the first reason that belongs to one.
fn layer(reasons: &[Reason]) -> Option<&'static str> {
    reasons.iter().find_map(|reason| {
        Some(match reason {
            Reason::SourceDisabled => "source_policy",
            Reason::SessionDenied => "session_lineage",
            Reason::PolicyDenied | Reason::VisibilityDenied => "registry_policy",
            Reason::HookDenied => "hook",
            Reason::ApprovalRequired
            | Reason::ApprovalUnreachable
            | Reason::ApprovalTimedOut
            | Reason::ApprovalCanceled
            | Reason::ApprovalTokenMissing
            | Reason::ApprovalTokenExpired
            | Reason::ApprovalTokenMismatch
            | Reason::ApprovalTokenReplayed => "approval",
            Reason::BackendUnhealthy
            | Reason::BackendNotExecutable
            | Reason::ConflictedId
            | Reason::ConflictedSanitizedName => "availability",
            _ => return None,
        })
    })
}

/// Status, published code and reasons.
#[derive(Debug, PartialEq, Eq)]
struct Kind(StatusCode, Code, Vec<Reason>);

impl Kind {
    fn of(error: &ToolError) -> Self {
        let is = |codes| error.is_any(codes);
        let known = reasons(error);
        let or = |reason| if known.is_empty() { vec![reason] } else { known.clone() };
        if is(&[codes::UNKNOWN_TOOL]) {
            return Self(StatusCode::NOT_FOUND, Code::ToolNotFound, vec![Reason::ToolUnknown]);
        }
        if is(&[codes::INVALID_INPUT, codes::INVALID_PATH, codes::INVALID_PATTERN]) {
            let reasons = vec![Reason::SchemaInvalid];
            return Self(StatusCode::BAD_REQUEST, Code::ToolInvalidInput, reasons);
        }
        if let Some(kind) = Self::of_approval(error) {
            return kind;
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
        if is(&UNAVAILABLE) || matches!(error.layer, Layer::Rate | Layer::Quota | Layer::Admission)
        {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            // It is told before an approval is asked for.
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

/// What approvals refuse. A call that needs one was not made, and may pass once it has it: 202.
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

/// Codes of calls against the state of things, which may pass when that has changed.
const CONFLICTS: [&ErrorCode; 4] =
    [codes::NAME_TAKEN, codes::WORKSPACE_BUSY, codes::WORKSPACE_STATE, codes::MERGE_IN_PROGRESS];

/// Codes of calls that this daemon cannot make now.
const UNAVAILABLE: [&ErrorCode; 10] = [
    codes::ACTOR_UNAVAILABLE,
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let plain = |status: StatusCode, why: Cow<'static, str>| {
            (status, Json(PlainErrorBody { error: why.into_owned() })).into_response()
        };
        let challenged = |mut answer: Response, challenge: &'static str| {
            let challenge = HeaderValue::from_static(challenge);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            answer
        };
        match self {
            Self::Plain(status, why) => {
                let mut answer = plain(status, why);
                if status == StatusCode::SERVICE_UNAVAILABLE {
                    let soon = HeaderValue::from_static("1");
                    answer.headers_mut().insert(header::RETRY_AFTER, soon);
                }
                answer
            }
            Self::Unauthorized { given } => {
                let why = "a bearer credential is required; `hivekeep credential create` makes one";
                let challenge = if given { bearer::INVALID } else { bearer::CHALLENGE };
                challenged(plain(StatusCode::UNAUTHORIZED, why.into()), challenge)
            }
            Self::Scope(why) => {
                challenged(plain(StatusCode::FORBIDDEN, why.into()), bearer::INSUFFICIENT)
            }
            Self::Tool(status, error) => {
                let wait = error.details.get("retry_after_ms").and_then(Value::as_u64);
                let mut answer = (status, Json(ToolErrorBody { error: *error })).into_response();
                if let Some(wait) = wait {
                    let secs = HeaderValue::from(wait.div_ceil(1000));
                    answer.headers_mut().insert(header::RETRY_AFTER, secs);
                }
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let verdicts =
            json!([{ "reason_code": "visibility_denied" }, { "reason_code": "made_up" }]);
        let denied = ToolError::new(Layer::Policy, codes::DENIED, "x").detail("verdicts", verdicts);
        assert_eq!(kind(&denied).2, [Reason::VisibilityDenied]);
        let ApiError::Tool(_, payload) = ApiError::of_call(denied.next("ask"), "a_b") else {
            panic!("it is a tool's");
        };
        assert_eq!(
            (payload.layer, payload.tool_id.as_deref()),
            (Some("registry_policy"), Some("a_b"))
        );
        assert_eq!(payload.message, "x. Next: ask");
        assert_eq!(payload.details["code"], "denied");
    }
}
