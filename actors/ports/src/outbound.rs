//! Outbound port: requests of the daemon to addresses that others wrote down, behind the operator's egress filter.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::ToolError;

/// Sender of requests. Offered only while sessions may fetch from where they like.
#[async_trait]
pub trait OutboundRequests: Send + Sync {
    /// Makes one request; redirects are not followed.
    ///
    /// # Errors
    /// Those of the filter; `web_status_failed` for an answer that is no success. Retryable where it may pass.
    async fn send(&self, request: OutboundRequest) -> Result<OutboundAnswer, ToolError>;
}

/// Request with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// `GET`, which has no body, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// http or https URL.
    pub url: String,
    /// Header fields, over the usual ones.
    pub headers: BTreeMap<String, String>,
    /// Value of `Idempotency-Key`: the same for a second attempt.
    pub key: String,
    /// Body, JSON unless a header says otherwise.
    pub body: String,
    /// Longest time.
    pub timeout: Duration,
    /// Most bytes of the answer's body; the rest is left out.
    pub most_bytes: usize,
}

/// Successful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundAnswer {
    /// Status, one of success.
    pub status: u16,
    /// Header fields, those that are no text left out.
    pub headers: BTreeMap<String, String>,
    /// Body, as far as it was asked for.
    pub body: String,
}
