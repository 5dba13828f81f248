//! Event-sourced key: its request, and the outcome.

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use super::kept::KeptOutcome;

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
