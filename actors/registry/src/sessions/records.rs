//! What is written of a session, in its stream `session/<id>`.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Door, Layer, SessionId, ToolError};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use crate::codes;

use super::{EndReason, User};

/// The first part of every session's stream.
pub(super) const KIND: &str = "session";

/// One record. Attaching and detaching are not written: after a restart of the
/// daemon every session is detached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum Record {
    Opened {
        door: Door,
        client: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Not written by daemons that knew no users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
        at: DateTime<Utc>,
    },
    Ended {
        reason: EndReason,
        at: DateTime<Utc>,
    },
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, times and unit variants serialise")
    }
}

pub(super) fn stream(id: SessionId) -> StreamId {
    StreamId::new(KIND, &id.to_string()).expect("an id has only letters, digits and `_`")
}

/// A failure of the journal, as a caller is told.
pub(super) fn store_error(error: &hivekeep_store::Error) -> ToolError {
    ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
        .next("look at `hivekeep check` and the daemon's log; nothing was acknowledged")
        .retryable()
}
