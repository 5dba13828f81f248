//! Lease of a workspace: when it ends, and what happens to the workspace then. Pure.
//!
//! ```text
//! none ── set ──► running ── the time comes ──► over ── carried out ──► none
//!                    ▲                            │
//!                    └────────── set anew ────────┘
//! ```
//! Times are those of the host's wall clock, which is what people mean by them and which outlives a
//! restart. A clock that is set back delays an end, one that is set forward brings it near.
//! Once a lifetime is found to be over, that is recorded, and no clock takes it back.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::ToolError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Longest lifetime in seconds: a year and a day.
pub(crate) const MAX_LIFETIME_SECS: u64 = 366 * 86_400;
/// Most labels of one workspace, bytes of a name and of a value.
const MAX_LABELS: usize = 64;
const MAX_LABEL_NAME: usize = 128;
const MAX_LABEL_VALUE: usize = 1024;

/// Names and values that mean something to whoever gave them.
pub type WorkspaceLabels = BTreeMap<String, String>;

/// Action at the end of a workspace's lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtEnd {
    /// The workspace is removed.
    Destroy,
    /// The machine is paused, with its memory; not in a sandbox.
    Pause,
    /// The workspace is saved with its memory and takes no memory of the host; not in a sandbox.
    Park,
    /// The machine is stopped in order; the disk is kept.
    #[default]
    Stop,
}

/// The schema has the words alone: each tool that takes one says what they mean, in fewer bytes.
impl JsonSchema for AtEnd {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AtEnd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ["destroy", "pause", "park", "stop"] })
    }
}

impl AtEnd {
    /// Whether a workspace in this phase is already in the wanted state.
    pub(crate) fn holds_in(self, phase: Phase) -> bool {
        match self {
            Self::Destroy => false,
            Self::Pause => {
                matches!(phase, Phase::Paused | Phase::Parked | Phase::Stopped | Phase::Crashed)
            }
            Self::Park => matches!(phase, Phase::Parked | Phase::Stopped | Phase::Crashed),
            Self::Stop => matches!(phase, Phase::Stopped | Phase::Parked),
        }
    }
}

/// A lifetime as it is asked for; it begins when the workspace is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeRequest {
    /// Length in seconds.
    pub secs: u64,
    /// Action at the end.
    pub at_end: AtEnd,
}

impl LifetimeRequest {
    /// The lifetime that a creation asks for.
    ///
    /// # Errors
    /// `invalid_input` when the creation asks for an end without a time.
    pub(crate) fn of(secs: Option<u64>, at_end: Option<AtEnd>) -> Result<Option<Self>, ToolError> {
        match (secs, at_end) {
            (Some(secs), at_end) => Ok(Some(Self { secs, at_end: at_end.unwrap_or_default() })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(no_time()),
        }
    }

    pub(crate) fn from(self, begun: DateTime<Utc>) -> Lifetime {
        Lifetime { ends_at: after(begun, self.secs), at_end: self.at_end, over: false }
    }
}

/// A lifetime that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// When it ends.
    pub ends_at: DateTime<Utc>,
    /// Action at the end.
    pub at_end: AtEnd,
    /// The time came; the action is being carried out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
}

impl Lifetime {
    /// Whether the action at the end is due.
    pub(crate) fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.over || self.ends_at <= now
    }
}

/// A change of a lifetime. Applied to the lifetime in force when it is recorded, so that of two changes
/// at the same time neither takes back what the other one extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeChange {
    /// Change of the time.
    pub end: EndChange,
    /// New action at the end; `None`: as before, or [`AtEnd::Stop`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_end: Option<AtEnd>,
}

/// Change of the time at which a lifetime ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", content = "at", rename_all = "snake_case")]
pub enum EndChange {
    /// The end stays.
    Keep,
    /// The workspace has no end any more.
    Never,
    /// The end is at this time.
    At(DateTime<Utc>),
    /// The end is at this time, unless it is later already, or never.
    NotBefore(DateTime<Utc>),
}

impl LifetimeChange {
    /// Whether the change changes anything.
    pub(crate) fn is_one(self) -> bool {
        self.end != EndChange::Keep || self.at_end.is_some()
    }

    pub(crate) fn applied_to(self, before: Option<Lifetime>) -> Option<Lifetime> {
        let at_end = self.at_end.or(before.map(|it| it.at_end)).unwrap_or_default();
        let begin = |ends_at| Some(Lifetime { ends_at, at_end, over: false });
        match (self.end, before) {
            (EndChange::Never, _) | (EndChange::Keep | EndChange::NotBefore(_), None) => None,
            (EndChange::NotBefore(at), Some(before)) if before.ends_at < at => begin(at),
            (EndChange::Keep | EndChange::NotBefore(_), Some(before)) => {
                Some(Lifetime { at_end, ..before })
            }
            (EndChange::At(at), _) => begin(at),
        }
    }
}

/// The time `secs` seconds later; at most the longest lifetime.
pub(crate) fn after(begun: DateTime<Utc>, secs: u64) -> DateTime<Utc> {
    let secs = i64::try_from(secs.min(MAX_LIFETIME_SECS)).unwrap_or(i64::MAX);
    begun + TimeDelta::seconds(secs)
}

/// The refusal of an end without a time.
pub(crate) fn no_time() -> ToolError {
    ToolError::invalid("at_end says what happens when lifetime_secs are over, and there are none")
        .next("give lifetime_secs too")
}

/// Checks labels.
///
/// # Errors
/// `invalid_input` for too many labels, or too long ones.
pub(crate) fn check_labels(labels: &WorkspaceLabels) -> Result<(), ToolError> {
    if labels.len() > MAX_LABELS {
        return Err(ToolError::invalid(format!("labels are at most {MAX_LABELS}")));
    }
    for (name, value) in labels {
        if !(1..=MAX_LABEL_NAME).contains(&name.len()) {
            let message = format!("a label's name must be 1 to {MAX_LABEL_NAME} bytes");
            return Err(ToolError::invalid(message));
        }
        if value.len() > MAX_LABEL_VALUE {
            let message = format!("a label's value must be at most {MAX_LABEL_VALUE} bytes");
            return Err(ToolError::invalid(message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
