//! Conversion of refusals into the answers that the SDKs expect, on each of the planes.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hivekeep_door_server::codes;
use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use serde::Serialize;
use serde_json::{Value, json};

/// Kind of a refusal: Connect's codes, and two that only HTTP tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    ResourceExhausted,
    Unimplemented,
    Unavailable,
    DeadlineExceeded,
    Internal,
    /// The sandbox is not there, or does not run.
    #[serde(rename = "unavailable")]
    Gone,
    /// The sandbox's disk is full.
    #[serde(rename = "resource_exhausted")]
    NoSpace,
}

/// Codes of tools by the kind that they are to an SDK.
const KINDS: &[(Kind, &[&ErrorCode])] = &[
    (
        Kind::Gone,
        &[
            codes::WORKSPACE_NOT_FOUND,
            codes::NOT_OWNER,
            codes::WORKSPACE_STATE,
            codes::PLACE_UNKNOWN,
        ],
    ),
    (
        Kind::InvalidArgument,
        &[
            codes::INVALID_INPUT,
            codes::INVALID_PATH,
            codes::IS_A_DIRECTORY,
            codes::NOT_A_DIRECTORY,
            codes::NOT_A_FILE,
            codes::OUTSIDE_PLACE,
            codes::INVALID_RULE,
            hivekeep_files::codes::PAST_END,
        ],
    ),
    (Kind::Unauthenticated, &[hivekeep_link::codes::USER_UNKNOWN]),
    (
        Kind::PermissionDenied,
        &[
            codes::PERMISSION_DENIED,
            codes::DENIED,
            codes::APPROVAL_REQUIRED,
            codes::APPROVAL_DENIED,
            codes::APPROVAL_TIMED_OUT,
            hivekeep_command::codes::COMMAND_NOT_ALLOWED,
        ],
    ),
    (
        Kind::NotFound,
        &[
            codes::NOT_FOUND,
            hivekeep_link::codes::UNKNOWN_JOB,
            hivekeep_oci::codes::IMAGE_NOT_FOUND,
            hivekeep_image::codes::IMAGE_UNKNOWN,
            hivekeep_image::codes::IMAGE_MISSING,
            codes::SNAPSHOT_NOT_FOUND,
            hivekeep_link::codes::WATCH_UNKNOWN,
        ],
    ),
    (
        Kind::AlreadyExists,
        &[hivekeep_files::codes::FILE_EXISTS, codes::NAME_TAKEN, codes::SNAPSHOT_EXISTS],
    ),
    (
        Kind::ResourceExhausted,
        &[
            codes::RATE_LIMITED,
            codes::QUOTA_EXCEEDED,
            codes::TIER_LIMIT_REACHED,
            hivekeep_workspace::codes::TOO_MANY_WORKSPACES,
            codes::HOST_FULL,
            hivekeep_link::codes::GUEST_BUSY,
        ],
    ),
    (
        Kind::FailedPrecondition,
        &[
            hivekeep_workspace::codes::ISOLATION_UNAVAILABLE,
            hivekeep_kernel::codes::SNAPSHOT_UNSUPPORTED,
            hivekeep_workspace::codes::PARK_UNSUPPORTED,
            hivekeep_files::codes::METADATA_UNSUPPORTED,
            hivekeep_workspace::codes::NOT_WOKEN,
            codes::NETWORK_UNAVAILABLE,
            hivekeep_link::codes::INPUT_CLOSED,
            codes::CANNOT_START,
            hivekeep_workspace::codes::SNAPSHOT_HAS_DEPENDENTS,
            hivekeep_command::codes::NO_INTERPRETER,
        ],
    ),
    (Kind::NoSpace, &[codes::GUEST_DISK_FULL]),
    (Kind::Unavailable, &[codes::BUSY]),
    (Kind::DeadlineExceeded, &[codes::DEADLINE_EXCEEDED]),
];

/// A refusal or failure.
#[derive(Debug, Clone)]
pub(super) struct E2bError {
    pub(super) kind: Kind,
    pub(super) message: String,
    retry_after_secs: Option<u64>,
}

impl E2bError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_secs: None }
    }

    /// A request that makes no sense.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidArgument, message)
    }

    /// Something that this door does not have.
    pub(super) fn unsupported(what: &str) -> Self {
        Self::new(Kind::Unimplemented, format!("{what} is not supported by this server"))
    }

    /// A sandbox that is not the caller's. The SDKs look for `was not found`.
    pub(super) fn no_sandbox(sandbox: &str) -> Self {
        let shown: String = sandbox.chars().take(80).collect();
        Self::new(Kind::Gone, format!("The sandbox {shown} was not found"))
    }

    /// The refusal as an error frame or a unary answer of Connect.
    pub(super) fn of_rpc(&self) -> Value {
        json!({ "code": self.kind, "message": self.message })
    }

    /// The answer of a unary call.
    pub(super) fn into_rpc(self) -> Response {
        // The proxy before a sandbox answers in its own words for a sandbox that is gone.
        match self.kind {
            Kind::Gone => self.into_response(),
            kind => (kind.of_unary(), Json(self.of_rpc())).into_response(),
        }
    }

    /// On the control plane a sandbox that is gone is not found.
    pub(super) fn of_control(mut self) -> Self {
        if self.kind == Kind::Gone {
            self.kind = Kind::NotFound;
        }
        self
    }
}

impl Kind {
    fn of(error: &ToolError) -> Self {
        let known = KINDS.iter().find(|(_, codes)| error.is_any(codes)).map(|(kind, _)| *kind);
        match known {
            Some(kind) => kind,
            None if error.retryable || error.layer == Layer::Link => Self::Unavailable,
            None => Self::Internal,
        }
    }

    /// Status of a refusal outside of Connect.
    fn of_http(self) -> StatusCode {
        match self {
            Self::InvalidArgument => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists | Self::FailedPrecondition => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Gone => StatusCode::BAD_GATEWAY,
            Self::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    /// Status of a refused unary call, as Connect's specification has it.
    fn of_unary(self) -> StatusCode {
        match self {
            Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::NoSpace => StatusCode::TOO_MANY_REQUESTS,
            other => other.of_http(),
        }
    }
}

impl From<ToolError> for E2bError {
    fn from(error: ToolError) -> Self {
        let message = match &error.next_step {
            Some(step) => format!("{} ({step})", error.message),
            None => error.message.clone(),
        };
        let kind = Kind::of(&error);
        // Text that the SDKs look for, to tell a sandbox that is gone from one that is slow.
        let message = match kind {
            Kind::Gone => format!("The sandbox was not found: {message}"),
            _ => message,
        };
        let retry_after_secs = error.retry_after_ms.map(|wait| wait.div_ceil(1000));
        Self { kind, message, retry_after_secs }
    }
}

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let status = self.kind.of_http();
        let body = json!({ "code": status.as_u16(), "message": self.message });
        let mut answer = (status, Json(body)).into_response();
        if let Some(secs) = self.retry_after_secs {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        // The SDKs repeat a 502 of an unknown kind; a sandbox that is gone stays gone.
        if self.kind == Kind::Gone {
            let no = HeaderValue::from_static("false");
            answer.headers_mut().insert("should-retry", no);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_is_gone_is_told_in_the_words_that_clients_look_for() {
        let error = ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, "it is stopped");
        let gone = E2bError::from(error);
        assert_eq!(gone.kind, Kind::Gone);
        assert!(gone.message.contains("was not found"));
        assert_eq!(gone.clone().into_rpc().status(), StatusCode::BAD_GATEWAY);
        assert_eq!(gone.of_control().into_response().status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let wait = std::time::Duration::from_millis(1_500);
        let busy = ToolError::new(Layer::Rate, codes::RATE_LIMITED, "x").retry_after(wait);
        let answer = E2bError::from(busy).into_response();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
    }
}
