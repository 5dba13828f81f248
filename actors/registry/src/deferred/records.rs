//! An event-sourced call: its records, in its stream `deferred/<id>`, and what they add up to.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallId, SessionId, ToolError, User};
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum DeferredRecord {
    /// Written before the call is made.
    Begun { session: SessionId, user: User, tool: String, limit_secs: u64, at: DateTime<Utc> },
    /// Written after the call, or at the next start.
    Ended { end: DeferredEnd, at: DateTime<Utc> },
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub(super) enum DeferredEnd {
    /// The call ended by itself.
    Answered {
        call: CallId,
        result: Result<Value, ToolError>,
        /// True where the result is another MCP server's, whole.
        #[serde(default)]
        from_source: bool,
        notices: Vec<String>,
        duration_ms: u64,
    },
    /// The session cancelled the call.
    Cancelled,
    /// The daemon ended before the call did.
    Lost { error: ToolError },
}

/// A call as its records tell it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recorded {
    pub(super) session: SessionId,
    pub(super) user: User,
    pub(super) tool: String,
    pub(super) limit_secs: u64,
    pub(super) begun_at: DateTime<Utc>,
    pub(super) end: Option<DeferredEnd>,
    pub(super) ended_at: Option<DateTime<Utc>>,
}

impl Sourced for Recorded {
    const KIND: &'static str = "deferred";
    // An end with its result may be larger than what the journal takes at once.
    const PIECE_BYTES: Option<usize> = Some(64 * 1024);
    type Record = DeferredRecord;

    fn begin(record: DeferredRecord) -> Result<Self, DeferredRecord> {
        let DeferredRecord::Begun { session, user, tool, limit_secs, at } = record else {
            return Err(record);
        };
        Ok(Self { session, user, tool, limit_secs, begun_at: at, end: None, ended_at: None })
    }

    /// The first end counts.
    fn apply(&mut self, record: DeferredRecord) -> Result<(), DeferredRecord> {
        match record {
            DeferredRecord::Ended { end, at } if self.end.is_none() => {
                (self.end, self.ended_at) = (Some(end), Some(at));
                Ok(())
            }
            record => Err(record),
        }
    }
}
