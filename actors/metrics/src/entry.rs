//! Entry: one thing that happened, as it is kept.

use chrono::{DateTime, NaiveDate, Utc};
use hivekeep_kernel::{ToolError, User};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most bytes of a type, a repository's or an agent's name.
pub(crate) const MOST_NAME_BYTES: usize = 128;

/// An entry. Its time has milliseconds, and a day (UTC) that decides in which segment it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MetricEntry {
    /// Unix milliseconds.
    pub(crate) at_ms: i64,
    /// User whose session recorded it; the daemon itself without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<User>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) repo: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) agent_id: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) data: Map<String, Value>,
}

impl MetricEntry {
    /// Refuses names that no tally or database could carry.
    ///
    /// # Errors
    /// `invalid_input`.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        if self.kind.trim().is_empty() {
            return Err(ToolError::invalid("`type` is empty"));
        }
        for (field, name) in
            [("type", &self.kind), ("repo", &self.repo), ("agent_id", &self.agent_id)]
        {
            if name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
                let why = format!("has more than {MOST_NAME_BYTES} bytes, or control characters");
                return Err(ToolError::invalid(format!("`{field}` {why}")));
            }
        }
        Ok(())
    }

    /// Size as JSON.
    pub(crate) fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len() as u64)
    }

    pub(crate) fn at(&self) -> DateTime<Utc> {
        time(self.at_ms)
    }

    pub(crate) fn date(&self) -> NaiveDate {
        self.at().date_naive()
    }
}

/// Time of so many Unix milliseconds; the epoch for what is no time.
pub(crate) fn time(unix_ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(unix_ms).unwrap_or_default()
}
