//! A session as it is listed.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Door, Resources, SessionId};
use hivekeep_policy::SessionProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EndReason, User};

/// What becomes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A client is attached.
    Attached,
    /// No client is attached; it can be resumed.
    Detached,
    /// It is over; what it owned can be adopted.
    Ended,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// What becomes of it.
    pub state: SessionState,
    /// The door it was opened through.
    pub door: Door,
    /// What its client calls itself.
    pub client: String,
    /// Whom it is for; all sessions of one user share an allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Its name, if it is one that does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Clients attached now.
    pub attachments: u32,
    /// Calls running now, also those whose callers have gone.
    pub calls_in_flight: u32,
    /// Calls since the daemon started.
    pub calls_total: u64,
    /// Seconds since a client was attached or a call running.
    pub idle_secs: u64,
    /// What it holds.
    pub used: Resources,
    /// What it may hold.
    pub allowed: Resources,
    /// When it was opened.
    pub opened_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// What it is bound to.
    #[serde(default, skip_serializing_if = "SessionProfile::is_empty")]
    pub profile: SessionProfile,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}
