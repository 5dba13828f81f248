//! Event-sourced key: its request, and the outcome, kept to be given again.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ReceiptPad, ToolError, User};
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;

/// Header of an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A request that was carried out or refused.
pub(in super::super) struct KeptRun {
    pub(in super::super) answer: Response,
    /// Outcome to keep; none of a refusal before anything was done, which may be another one later.
    pub(in super::super) outcome: Option<KeptOutcome>,
    /// To be signed when the answer is durable.
    pub(in super::super) receipt: Option<ReceiptPad>,
}

/// Status and body of an answer, or how large the body was where that is too large to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct KeptOutcome {
    status: u16,
    bytes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Arc<str>>,
}

impl KeptOutcome {
    pub(in super::super) fn of(status: StatusCode, body: &Bytes, most: usize) -> Self {
        let text = std::str::from_utf8(body).ok().filter(|text| text.len() <= most);
        Self { status: status.as_u16(), bytes: body.len(), body: text.map(Arc::from) }
    }

    /// The kept answer, given again.
    pub(in super::super) fn again(self, tool_id: &str) -> Result<Response, ApiError> {
        let (Ok(status), Some(body)) = (StatusCode::from_u16(self.status), self.body) else {
            let why = "the call was made, and its answer was too large to be kept";
            let error = ToolError::new(Layer::Result, codes::RESULT_TOO_LARGE, why)
                .next("ask for less, with another key")
                .detail("status", self.status)
                .detail("bytes", self.bytes);
            return Err(ApiError::of_call(error, tool_id));
        };
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let replayed = (REPLAYED, HeaderValue::from_static("true"));
        Ok((status, [json, replayed], body.to_string()).into_response())
    }
}

/// A request that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Begun {
    pub(in super::super) user: User,
    pub(in super::super) key: String,
    pub(in super::super) tool: String,
    /// Digest of the input and of what else the request says.
    pub(in super::super) request: String,
    pub(in super::super) at: DateTime<Utc>,
}

/// Record of a key's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Begun(Begun),
    Ended { outcome: KeptOutcome, at: DateTime<Utc> },
}

/// A key as its records tell it.
#[derive(Debug, Clone)]
pub(in super::super) struct KeyState {
    pub(super) begun: Begun,
    pub(super) outcome: Option<KeptOutcome>,
}

impl Sourced for KeyState {
    const KIND: &'static str = "idempotency";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Begun(begun) => Ok(Self { begun, outcome: None }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Ended { outcome, .. } if self.outcome.is_none() => {
                self.outcome = Some(outcome);
                Ok(())
            }
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_again_or_told_to_be_too_large() {
        let kept = KeptOutcome::of(StatusCode::OK, &Bytes::from_static(b"{}"), 2);
        let kept = serde_json::to_vec(&kept).expect("plain data");
        let kept: KeptOutcome = serde_json::from_slice(&kept).expect("reads back");
        let answer = kept.again("a").expect("kept");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[REPLAYED], "true");
        let large = KeptOutcome::of(StatusCode::OK, &Bytes::from_static(b"{}"), 1);
        let refused = large.again("a").expect_err("not kept").into_response();
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    }
}
