//! Conversion of refusals into answers: the published codes and statuses, with the daemon's own code in the
//! details.

mod kind;

use std::borrow::Cow;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hivekeep_door_server::{codes, http::caller};
use hivekeep_kernel::{Layer, PoolFull, ToolError};
use serde_json::{Map, Value, json};

use super::published::{
    PlainErrorBody, ToolErrorBody, ToolErrorCode as Code, ToolErrorPayload, ToolReason as Reason,
};
use kind::Kind;

/// An answer that is a refusal or a failure.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A refusal before any tool is looked at.
    Plain(StatusCode, Cow<'static, str>),
    /// No credential, or none that is known.
    Unauthorized { given: bool },
    /// The credential does not reach so far.
    Scope(&'static str),
    /// A refusal or failure of a tool.
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

    /// A session or another object that does not exist or is not the caller's: the answer does not say which.
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

    /// A refusal with a status of its own.
    pub(super) fn with(status: StatusCode, error: ToolError) -> Self {
        let Kind(_, code, reasons) = Kind::of(&error);
        Self::of_kind(Kind(status, code, reasons), error)
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

/// The door has no place for one request more.
impl From<PoolFull> for ApiError {
    fn from(full: PoolFull) -> Self {
        Self::plain(StatusCode::SERVICE_UNAVAILABLE, full.to_string())
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
                if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS]
                    .contains(&status)
                {
                    let soon = HeaderValue::from_static("1");
                    answer.headers_mut().insert(header::RETRY_AFTER, soon);
                }
                answer
            }
            Self::Unauthorized { given } => {
                let why = "a bearer credential is required; `hivekeep credential create` makes one";
                let challenge = if given { caller::INVALID_CHALLENGE } else { caller::CHALLENGE };
                challenged(plain(StatusCode::UNAUTHORIZED, why.into()), challenge)
            }
            Self::Scope(why) => {
                challenged(plain(StatusCode::FORBIDDEN, why.into()), caller::INSUFFICIENT_CHALLENGE)
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

    #[test]
    fn a_refusal_names_its_layer_its_tool_and_the_next_step() {
        let verdicts = json!([{ "reason_code": "visibility_denied" }]);
        let denied = ToolError::new(Layer::Policy, codes::DENIED, "x").detail("verdicts", verdicts);
        let ApiError::Tool(_, payload) = ApiError::of_call(denied.next("ask"), "a_b") else {
            panic!("it is a tool's");
        };
        assert_eq!(payload.layer, Some("registry_policy"));
        assert_eq!(payload.tool_id.as_deref(), Some("a_b"));
        assert_eq!(payload.message, "x. Next: ask");
        assert_eq!(payload.details["code"], "denied");
    }
}
